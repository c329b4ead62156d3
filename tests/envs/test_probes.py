"""Probes give exactly the rewards their docstrings promise."""

import jax
import jax.numpy as jnp
import pytest

from discorl.envs import probes


def episode(env, key, action):
    """Observations before each step, and rewards, of one episode in which one action is repeated."""
    state, obs = env.reset(key)
    seen, rewards, terminated = [], [], False
    while not terminated:
        seen.append(tuple(obs.tolist()))
        state, timestep = env.step(key, state, jnp.int32(action))
        rewards.append(float(timestep.reward))
        obs, terminated = timestep.obs, bool(timestep.terminated)
        assert len(rewards) < 5, "a probe ends after one or two steps"
        assert not timestep.truncated
    return seen, rewards


@pytest.mark.parametrize("action", [0, 1])
def test_probes_without_a_signal(action, key):
    assert episode(probes.constant(), key, action) == ([(1, 0)], [1])
    assert episode(probes.delayed(), key, action) == ([(1, 0), (1, 1)], [0, 1])
    assert episode(probes.action(), key, action) == ([(1, 0)], [1 if action == 1 else -1])


@pytest.mark.parametrize("action", [0, 1])
def test_probes_with_a_signal(action, key):
    signals = set()
    for i in range(8):
        (obs,), rewards = episode(probes.observation(), jax.random.fold_in(key, i), action)
        assert rewards == [obs[0]]
        (obs,), rewards = episode(probes.both(), jax.random.fold_in(key, i), action)
        assert rewards == [1 if (obs[0] == 1) == (action == 1) else -1]
        signals.add(obs)
    assert signals == {(-1, 0), (1, 0)}


def test_render_says_signal_and_step(key):
    env = probes.delayed()
    state, _ = env.reset(key)
    assert env.render(state) == "signal +1, step 0 of 2"


def test_the_memory_probe_shows_its_signal_once_and_asks_for_it_at_the_end(key):
    signals = set()
    for i in range(8):
        seen, rewards = episode(probes.memory(3), jax.random.fold_in(key, i), 1)
        assert seen[1:] == [(0, 1), (0, 2)]
        assert rewards == [0, 0, seen[0][0]]
        signals.add(seen[0])
    assert signals == {(-1, 0), (1, 0)}


def test_the_clock_probe_ends_by_itself_only_where_one_leaves(key):
    env = probes.clock()
    state, obs = env.reset(key)
    for action, reward in ((0, 0.5), (1, 2.0)):
        after, timestep = env.step(key, state, jnp.int32(action))
        assert float(timestep.reward) == reward
        assert (bool(timestep.terminated), bool(timestep.truncated)) == (action == 1, action == 0)
        assert timestep.obs.tolist() == obs.tolist() == [1, 0]  # nothing tells that a clock rang
        assert after == state
    assert env.spec.time_limit == 1
