"""Gymnasium itself: ids, and vectors of environments in all three modes of resetting."""

from typing import Any

import host_worlds as worlds
import jax
import numpy as np
import pytest

from discorl import envs, networks
from discorl.errors import DiscorlError
from discorl.host_acting import Collector, example_rollout, make_policy
from discorl.types import Cuts, Needs, Rollout

gymnasium = pytest.importorskip("gymnasium", reason="Gymnasium is not installed: pip install 'discorl[gym]'")
LENGTH, LANES = 7, 3


class Counter(worlds.Counter, gymnasium.Env):
    action_space = gymnasium.spaces.Discrete(2)
    observation_space = gymnasium.spaces.Box(0, 100, (2,), np.float64)


def trajectories(env: envs.HostEnvironment, rollouts: int) -> list[Rollout]:
    network = networks.mlp(env.spec, Needs(), hidden=(4,))
    example = example_rollout(network, env.spec, LENGTH, 2, LANES)
    collector = Collector(network, make_policy(network), env.open(LANES), example)
    collector.begin(0)
    params = network.init(jax.random.key(0))
    return [collector.collect(params)[0] for _ in range(rollouts)]


@pytest.mark.parametrize("mode", list(gymnasium.vector.AutoresetMode))
def test_all_modes_of_resetting_give_the_same_experience(mode: Any) -> None:
    """Step by step what `Counter` does, and nothing else: no step that only reset, no final observation acted on."""
    env = envs.as_environment(gymnasium.vector.SyncVectorEnv([Counter] * LANES, autoreset_mode=mode))
    assert isinstance(env, envs.HostEnvironment)
    assert env.size == LANES
    rollouts = trajectories(env, 6)
    for rollout in rollouts:
        assert isinstance(rollout.cuts, Cuts)
        for b in range(LANES):
            for t in range(LENGTH):
                (episode, step), reward = rollout.obs[t, b], rollout.reward[t, b]
                ended = reward == 3 + episode % 3
                assert reward == step + 1  # an action was taken
                assert rollout.first[t, b] == (step == 0)
                assert rollout.discount[t, b] == 1 - ended
                if t + 1 < LENGTH:  # the next row is what came next
                    expected = [episode + 1, 0] if ended else [episode, step + 1]
                    np.testing.assert_array_equal(rollout.obs[t + 1, b], expected)
            if rollout.discount[LENGTH - 1, b]:  # what is bootstrapped from
                np.testing.assert_array_equal(rollout.obs[LENGTH, b], rollout.obs[LENGTH - 1, b] + [0, 1])
            clocks = [t for t in range(LENGTH) if not rollout.discount[t, b] and rollout.obs[t, b, 0] % 2]
            assert [t for t in rollout.cuts.at[:, b] if t < LENGTH] == clocks[:2]
            for t, final in zip(clocks, rollout.cuts.obs[:, b], strict=False):
                np.testing.assert_array_equal(final, rollout.obs[t, b] + [0, 1])
    # nothing was left out: after the beginning and before the end, every lane has every step of every episode
    episodes = np.concatenate([rollout.obs[:-1, :, 0].ravel() for rollout in rollouts])
    for episode in range(2, 8):
        assert (episodes == episode).sum() == LANES * (3 + episode % 3)


@pytest.mark.parametrize("mode", list(gymnasium.vector.AutoresetMode))
def test_final_observations_are_those_before_the_reset(mode: Any) -> None:
    env = envs.as_environment(gymnasium.vector.SyncVectorEnv([Counter] * LANES, autoreset_mode=mode))
    assert isinstance(env, envs.HostEnvironment)
    vector = env.open(LANES)
    vector.reset(0)
    truncated = 0
    for _ in range(30):
        came = vector.step(np.zeros(LANES, np.int32))
        for b in np.flatnonzero(came.truncated):
            np.testing.assert_array_equal(came.final_obs[b, 1], 3 + came.final_obs[b, 0] % 3)
            truncated += 1
    assert truncated >= 6


def test_a_vector_that_hides_how_it_resets_is_refused() -> None:
    vector = gymnasium.vector.SyncVectorEnv([Counter])
    vector.metadata = {}
    with pytest.raises(DiscorlError, match="does not say how it resets"):
        envs.as_environment(vector)


@pytest.mark.parametrize("name", ["CartPole-v1", "gymnasium:CartPole-v1"])
def test_ids_with_and_without_their_prefix(name: str) -> None:
    env = envs.make(name)
    assert (env.spec.name, env.spec.num_actions, env.spec.time_limit) == ("CartPole-v1", 2, 500)


@pytest.mark.parametrize(
    "name, message",
    [
        ("CartPol-v1", "unknown environment 'CartPol-v1' to Gymnasium; did you mean 'CartPole-v1'"),
        ("Nothing/Alike-v3", "unknown environment 'Nothing/Alike-v3' to Gymnasium; "),
        ("Pendulum-v1", "environment 'Pendulum-v1' has a continuous action space (Box of shape (1,))"),
    ],
)
def test_ids_that_will_not_do(name: str, message: str) -> None:
    with pytest.raises(DiscorlError) as caught:
        envs.make(name)
    assert message in str(caught.value)
