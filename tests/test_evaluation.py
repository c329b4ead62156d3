"""Evaluation: whole episodes, each counted once, and a spread that means something."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from discorl import envs, evaluation, networks
from discorl.envs import Environment
from discorl.networks import AgentNetwork
from discorl.types import Needs


def agent(env: Environment) -> AgentNetwork:
    return networks.mlp(env.spec, Needs(y=1), hidden=(4,))


def played(env: Environment, episodes: int = 8, greedy: bool = False) -> evaluation.Episodes:
    network = agent(env)
    key = jax.random.key(0)
    return evaluation.run_episodes(env, network, network.init(key), key, jnp.asarray(greedy), episodes=episodes)


def test_every_episode_counts_once_and_only_to_its_end() -> None:
    constant = played(envs.make("probe/constant"))
    np.testing.assert_array_equal(constant.returns, np.ones(8))  # one step, reward 1
    np.testing.assert_array_equal(played(envs.make("probe/delayed")).returns, np.ones(8))  # 0, then 1
    assert constant.finished.all()


def test_episodes_of_different_lengths_do_not_leak_rewards() -> None:
    """Reward 1 per step for as many steps as the start says: the return is the length."""
    base = envs.probes.constant()

    def reset(key: jax.Array) -> tuple[jax.Array, jax.Array]:
        left = jax.random.randint(key, (), 1, 6, jnp.int32)
        return jnp.stack([left, left]), jnp.zeros(2)

    def step(key: jax.Array, state: jax.Array, action: jax.Array) -> tuple[jax.Array, envs.TimeStep]:
        state = state - jnp.array([0, 1], jnp.int32)
        return state, envs.TimeStep(jnp.zeros(2), jnp.float32(1), state[1] == 0, jnp.zeros((), bool))

    env = base._replace(reset=reset, step=step)
    key_reset, _ = jax.random.split(jax.random.key(0))
    lengths = jax.vmap(reset)(jax.random.split(key_reset, 8))[0][:, 0]
    assert len(set(lengths.tolist())) > 1
    episodes = played(env)
    np.testing.assert_array_equal(episodes.returns, lengths)
    np.testing.assert_array_equal(episodes.lengths, lengths)


def test_an_endless_episode_is_cut_and_said_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "MAX_STEPS", 7)
    base = envs.probes.constant()

    def step(key: jax.Array, state: jax.Array, action: jax.Array) -> tuple[jax.Array, envs.TimeStep]:
        state, after = base.step(key, state, action)
        return state, after._replace(terminated=jnp.zeros((), bool))

    episodes = played(base._replace(step=step))
    assert not episodes.finished.any()
    np.testing.assert_array_equal(episodes.returns, np.full(8, 7.0))


def test_greedy_repeats_itself_and_sampling_does_not() -> None:
    env = envs.make("probe/action")  # +1 or -1, by the action alone
    assert len(set(played(env, 32, greedy=True).returns.tolist())) == 1
    assert len(set(played(env, 32, greedy=False).returns.tolist())) == 2


def test_spread_is_the_bootstrap_of_the_mean() -> None:
    same = evaluation.spread(np.full(5, 2.0))
    assert same == evaluation.Spread(2.0, 2.0, 2.0, 2.0, 2.0)
    values = np.random.default_rng(1).normal(3.0, 1.0, 100)
    s = evaluation.spread(values)
    half = 1.96 * values.std() / 10  # normal theory
    assert s.mean == pytest.approx(values.mean())
    assert (s.low, s.high) == pytest.approx((s.mean - half, s.mean + half), abs=0.03)
    assert (s.worst, s.best) == (values.min(), values.max())


def test_the_interval_knows_episodes_and_agents() -> None:
    rng = np.random.default_rng(2)
    alone = rng.normal(3.0, 1.0, (1, 100))
    low, high = evaluation.interval(alone)
    half = 1.96 * alone.std() / 10
    assert (low, high) == pytest.approx((alone.mean() - half, alone.mean() + half), abs=0.03)
    steady = np.repeat(rng.normal(0.0, 1.0, (8, 1)), 50, axis=1)  # episodes tell nothing, agents all
    s = evaluation.spread(steady[:, 0])
    assert evaluation.interval(steady) == pytest.approx((s.low, s.high), abs=0.05)
    assert evaluation.interval(np.full((3, 4), 2.0)) == (2.0, 2.0)


def test_the_interval_needs_little_memory_and_no_luck(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(3).normal(0.0, 1.0, (2, 30))
    whole = evaluation.interval(values)
    assert whole == evaluation.interval(values)
    monkeypatch.setattr(evaluation, "DRAWN_AT_ONCE", 7 * values.size)
    assert evaluation.interval(values) == pytest.approx(whole, abs=0.02)


def test_a_known_clock_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "MAX_STEPS", 2)
    assert played(envs.make("catch:4x3")).lengths.tolist() == [2] * 8
    assert evaluation.longest(envs.make("cartpole").spec) == 500
