"""Training as a pure function of its key: repeatable, divisible, vmappable, flat in memory."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import small

from discorl import networks
from discorl.envs import catch
from discorl.errors import DiscorlError
from discorl.learner import make_learner
from discorl.optim import Hypers
from discorl.replay import make_replay
from discorl.training import TrainConfig, Training, make_training, over_seeds

CONFIG = TrainConfig(envs=2, batch=4, rollout=5, replay_size=6)


@pytest.fixture(scope="module")
def training() -> Training:
    env, rule = catch(4, 3), small.small().rule
    network = networks.mlp(env.spec, rule.needs, hidden=(6,), model_width=4, head_hidden=(4,))
    return make_training(env, network, rule, CONFIG)


@pytest.fixture(scope="module")
def eta():
    return small.small().eta


def run(training: Training, eta, key, stretches=(6,), rate: float = 1e-2):
    advance = jax.jit(training.advance, static_argnums=3)
    state = jax.jit(training.init)(key, Hypers(rate))
    infos = []
    for updates in stretches:
        state, info = advance(eta, Hypers(rate), state, updates)
        infos.append(info)
    return state, infos


def same_bits(a, b) -> None:
    raw = lambda x: jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x  # noqa: E731
    jax.tree.map(lambda x, y: np.testing.assert_array_equal(raw(x), raw(y)), a, b)


def test_the_same_seed_gives_the_same_bits_and_another_does_not(training, eta) -> None:
    one, two, other = (run(training, eta, jax.random.key(s))[0] for s in (3, 3, 4))
    same_bits(one, two)
    assert not np.array_equal(one.learner.params.logits.w, other.learner.params.logits.w)


def test_two_stretches_equal_one(training, eta) -> None:
    whole, _ = run(training, eta, jax.random.key(0), (6,))
    parts, _ = run(training, eta, jax.random.key(0), (2, 4))
    same_bits(whole, parts)
    assert int(whole.updates) == 6


def test_a_stretch_reports_on_its_last_update(training, eta) -> None:
    """Looking closer changes nothing, and what is seen does not depend on where a stretch began."""
    _, (whole,) = run(training, eta, jax.random.key(0), (6,))
    _, parts = run(training, eta, jax.random.key(0), (2, 4))
    assert whole.learner.report._fields
    for name, seen in whole.learner.report._asdict().items():
        assert np.isnan(seen[:-1]).all() and np.isfinite(seen[-1]), name
        assert np.isfinite(getattr(parts[0].learner.report, name)[-1]), name
        np.testing.assert_allclose(getattr(parts[1].learner.report, name)[-1], seen[-1], rtol=1e-4, atol=1e-6)


def test_many_seeds_equal_one_by_one(training, eta) -> None:
    """Two programs, so equal up to rounding."""
    keys = jax.random.split(jax.random.key(7), 3)
    together, (info,) = run(over_seeds(training), eta, keys)
    assert info.loss.shape == (3, 6)
    for i, key in enumerate(keys):
        alone, (single,) = run(training, eta, key)
        np.testing.assert_allclose(info.loss[i], single.loss, rtol=1e-3)
        np.testing.assert_array_equal(info.episodes[i], single.episodes)
        np.testing.assert_array_equal(together.replay.data.obs[i], alone.replay.data.obs)


def test_a_sweep_over_learning_rates_is_a_vmap(training, eta) -> None:
    rates = jnp.array([1e-3, 1e-2])

    def last_loss(rate):
        state = training.init(jax.random.key(0), Hypers(rate))
        return training.advance(eta, Hypers(rate), state, 6)[1].loss[-1]

    swept = jax.jit(jax.vmap(last_loss))(rates)
    for rate, loss in zip(rates, swept, strict=True):
        _, (info,) = run(training, eta, jax.random.key(0), rate=float(rate))
        np.testing.assert_allclose(loss, info.loss[-1], rtol=1e-3)
    assert swept[0] != swept[1]


def test_the_second_stretch_does_not_trace_again(training, eta) -> None:
    traces = []

    def counted(eta, hypers, state):
        traces.append(1)
        return training.advance(eta, hypers, state, 2)

    step = jax.jit(counted)
    state = jax.jit(training.init)(jax.random.key(0), Hypers())
    for _ in range(3):
        state, _ = step(eta, Hypers(), state)
    assert len(traces) == 1


def test_memory_does_not_grow_with_the_number_of_updates(training, eta) -> None:
    """What a stretch returns beside its state is a few numbers per update; its temporaries do not depend on it."""
    state = jax.jit(training.init)(jax.random.key(0), Hypers())
    advance = jax.jit(training.advance, static_argnums=3)
    short, long = (advance.lower(eta, Hypers(), state, n).compile().memory_analysis() for n in (10, 1000))
    assert long.temp_size_in_bytes - short.temp_size_in_bytes < 990 * 200
    assert long.output_size_in_bytes - short.output_size_in_bytes < 990 * 200


def test_learning_starts_once_the_replay_holds_a_batch(training) -> None:
    state = jax.jit(training.init)(jax.random.key(0), Hypers())
    assert int(state.replay.size) == CONFIG.batch - CONFIG.envs  # the first update adds the rest
    assert training.steps_before == CONFIG.envs * CONFIG.rollout


def test_several_updates_may_follow_a_rollout(training, eta) -> None:
    """Against the same training taken apart: rollouts by the one-update program, the rest by hand."""
    env, rule = catch(4, 3), small.small().rule
    network = networks.mlp(env.spec, rule.needs, hidden=(6,), model_width=4, head_hidden=(4,))
    seldom = make_training(env, network, rule, replace(CONFIG, updates_per_rollout=3))
    state, (info,) = run(seldom, eta, jax.random.key(3), (5,))

    learner, replay = make_learner(network, rule, CONFIG.mask), make_replay(CONFIG.replay_size, CONFIG.batch)
    twin, rollouts = jax.jit(training.init)(jax.random.key(3), Hypers()), 0
    for update in range(5):
        before = twin
        twin, sampled, _ = jax.jit(training.gather)(twin.learner.params, twin)
        rollouts += update % 3 == 0
        if update % 3:  # as if nobody had acted
            key = jax.random.split(jax.random.fold_in(before.key, update))[1]
            sampled = replay.sample(key, before.replay, sampled)
            twin = before._replace(updates=before.updates + 1)
        learning, _ = jax.jit(learner.step)(eta, Hypers(1e-2), twin.learner, sampled)
        twin = twin._replace(learner=learning)
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-6), state.learner.params, twin.learner.params)
    same_bits(state.replay.next, twin.replay.next)
    assert rollouts == 2
    assert info.episodes[1:3].tolist() == [0, 0] and info.episodes[4] == 0
    assert info.episodes[0] > 0 and info.episodes[3] > 0


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"envs": 0}, "envs must be positive"),
        ({"batch": -1}, "batch must be positive"),
        ({"rollout": 0}, "rollout must be positive"),
        ({"replay_share": 1.5}, r"replay_share must lie in \[0, 1\]"),
        ({"replay_share": 0.0, "batch": 64, "envs": 2}, "only 2 environments"),
        ({"replay_size": 1}, "must hold one rollout"),
        ({"updates_per_rollout": 0}, "updates_per_rollout must be positive"),
        ({"updates_per_rollout": 2, "replay_share": 0.99, "batch": 64}, "most have none: set replay_share to 1"),
        ({"mask": "al"}, "unknown mask 'al'; did you mean 'all'"),
    ],
)
def test_impossible_sizes_are_refused(wrong: dict, message: str) -> None:
    with pytest.raises(DiscorlError, match=message):
        TrainConfig(**({"envs": 2} | wrong))
