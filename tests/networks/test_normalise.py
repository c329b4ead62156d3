"""Running statistics: those of all that was seen, moved by data alone, and part of the agent wherever it goes."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import small
import tiny

from discorl import acting, networks, play, trainer
from discorl.envs.base import EnvSpec
from discorl.errors import DiscorlError
from discorl.learner import make_learner
from discorl.networks.normalise import LIMIT, apply_running, fresh_running, update_running
from discorl.optim import Hypers

SPEC = EnvSpec("small", small.A, jax.ShapeDtypeStruct((small.OBS,), jnp.float32))


def test_statistics_are_those_of_all_that_was_seen() -> None:
    rng = np.random.default_rng(0)
    parts = [rng.normal(100 + 3 * i, 1 + i, (4 + i, 3, 2)).astype(np.float32) for i in range(5)]
    running, update = fresh_running((2,)), jax.jit(update_running)
    for part in parts:
        running = update(running, part)
    everything = np.concatenate([part.reshape(-1, 2) for part in parts]).astype(np.float64)
    assert running.samples == len(everything)
    np.testing.assert_allclose(running.mean, everything.mean(0), rtol=1e-5)
    np.testing.assert_allclose(running.variance, everything.var(0), rtol=1e-4)
    seen = apply_running(running, jnp.asarray(everything[None], jnp.float32))[0]
    np.testing.assert_allclose(seen.mean(0), 0, atol=1e-2)
    np.testing.assert_allclose(seen.std(0), 1, atol=1e-2)
    assert apply_running(running, jnp.full((1, 1, 2), 1e9)).max() == LIMIT


def test_a_newborn_sees_as_if_nothing_was_normalised() -> None:
    x = jnp.array([[[0.5, -3.0]]])
    np.testing.assert_allclose(apply_running(fresh_running((2,)), x), x, rtol=1e-6)


def test_only_data_moves_statistics_and_the_target_network_shares_them() -> None:
    """Neither a gradient nor weight decay does."""
    rule, eta = small.small().rule, small.small().eta
    plain = networks.mlp(SPEC, rule.needs, hidden=(4,), model_width=3, head_hidden=(3,))
    learner = make_learner(networks.normalised(plain, SPEC), rule)
    state = jax.jit(learner.init)(jax.random.key(0), jnp.zeros(small.OBS))
    obs = 3 + 2 * small.rollout().obs
    state = jax.jit(learner.watch)(state, obs)
    np.testing.assert_allclose(state.params.statistics[0].mean, obs.mean(axis=(0, 1)), rtol=1e-5)
    after, info = jax.jit(learner.step)(eta, Hypers(0.1, weight_decay=0.5), state, small.rollout())
    assert info.gradient_norm > 0
    for params in (state.target_params, after.params, after.target_params):
        jax.tree.map(np.testing.assert_array_equal, params.statistics, state.params.statistics)
    assert not np.array_equal(after.params.network.logits.w, state.params.network.logits.w)


def test_images_and_integers_pass_as_they_are(key: jax.Array) -> None:
    observation = {"picture": jax.ShapeDtypeStruct((4, 4), jnp.uint8), "place": jax.ShapeDtypeStruct((2,), jnp.float32)}
    spec, needs = EnvSpec("toy", 3, observation), small.small().rule.needs
    network = networks.normalised(networks.mlp(spec, needs, hidden=(4,)), spec)
    params = jax.jit(network.init)(key)
    assert [running.mean.shape for running in params.statistics] == [(2,)]
    networks.check_network(network, spec, needs)
    board = EnvSpec("board", 3, jax.ShapeDtypeStruct((4, 4), jnp.float32))
    with pytest.raises(DiscorlError, match="'board' observes no vectors of floats"):
        networks.normalised(networks.mlp(board, needs), board)


def test_statistics_are_saved_with_the_agent_and_used_when_it_plays(tmp_path: Path) -> None:
    folder, sizes = tmp_path / "run", {**tiny.SIZES, "eval_episodes": 0}
    result = trainer.train("probe/delayed", tiny.RULE, normalise=True, run_dir=str(folder), **sizes)
    player = play.load(folder)
    (saved,) = player.params.statistics
    jax.tree.map(np.testing.assert_array_equal, saved, result.params.statistics[0])
    # prefill and every update: one rollout of each environment
    assert saved.samples[0] == (1 + sizes["updates"]) * sizes["envs"] * sizes["rollout"]
    np.testing.assert_allclose(saved.mean[0], [1, 0.5], atol=0.1)  # signal 1 always, clock 0 or 1
    params = jax.tree.map(lambda x: x[0], player.params)
    other = params._replace(statistics=(fresh_running((2,)),))
    obs, first = jnp.array([[1.0, 1.0]]), jnp.ones(1, jnp.bool_)
    one, two = (acting.act(player.network, p, (), obs, first, jax.random.key(0)).logits for p in (params, other))
    assert not np.array_equal(one, two)
    assert list(play.play(player, episodes=1))[-1].episode_return == 1
