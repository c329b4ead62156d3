"""Environments stepped by Python: what they say is understood, and what they do wrong is said."""

from types import SimpleNamespace
from typing import Any

import host_worlds as worlds
import numpy as np
import pytest

from discorl import envs
from discorl.envs.spaces import flat_actions, observations
from discorl.errors import DiscorlError

MULTI = SimpleNamespace(nvec=np.array([2, 3]), shape=(2,), dtype=np.dtype(np.int64))


def walk(env: Any, steps: int, lanes: int = 2) -> list[envs.HostStep]:
    made = envs.as_environment(env)
    assert isinstance(made, envs.HostEnvironment)
    vector = made.open(lanes)
    vector.reset(0)
    return [vector.step(np.zeros(lanes, np.int32)) for _ in range(steps)]


@pytest.mark.parametrize("given", [worlds.Counter, worlds.Counter(), lambda: worlds.Counter(), "host_worlds:Counter"])
def test_classes_objects_functions_and_names_become_environments(given: Any) -> None:
    env = envs.as_environment(given)
    assert isinstance(env, envs.HostEnvironment)
    assert env.spec.num_actions == 2
    assert (env.spec.observation.shape, env.spec.observation.dtype) == ((2,), np.float32)
    assert given is not worlds.Counter or env.spec.name == "Counter"
    assert walk(given, 1)[0].obs.dtype == np.float32


def test_an_end_keeps_apart_what_ended_what_was_seen_and_what_comes_next() -> None:
    for lane in range(2):
        steps = [envs.HostStep(*(x[lane] for x in step)) for step in walk(worlds.Counter, 30)]
        ends = [i for i, step in enumerate(steps) if step.first]
        assert len(ends) >= 5
        for i in ends:
            episode, t = steps[i].final_obs
            assert t == steps[i].reward == 3 + episode % 3
            assert (steps[i].terminated, steps[i].truncated) == (episode % 2 == 0, episode % 2 == 1)
            np.testing.assert_array_equal(steps[i].obs, [episode + 1, 0])
        for i in set(range(30)) - set(ends):
            np.testing.assert_array_equal(steps[i].obs, steps[i].final_obs)
            assert not (steps[i].terminated or steps[i].truncated)


def test_lanes_begin_differently_and_the_same_seed_the_same() -> None:
    env = envs.as_environment(worlds.Counter)
    assert isinstance(env, envs.HostEnvironment)
    first, again, other = (env.open(16).reset(seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert len(np.unique(first[:, 0])) == 3
    assert (first != other).any()


@pytest.mark.parametrize(
    "world, message",
    [
        (
            worlds.NanReward,
            "environment 'NanReward': the reward must be a finite number, but it was nan after action 0",
        ),
        (worlds.Growing, "gave an observation of shape (3,), but its observation space says (2,): the shape may not"),
        (worlds.Raising, "environment 'Raising': step raised RuntimeError: the simulator is gone"),
        (worlds.Lost, "environment 'Lost': observations must be finite, but one of reset was not"),
        (worlds.Uncopyable(), "'Uncopyable' cannot be copied (TypeError: there is only one); give its class, or a"),
    ],
)
def test_what_an_environment_does_wrong_is_one_sentence(world: Any, message: str) -> None:
    with pytest.raises(DiscorlError) as caught:
        walk(world, 40)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "space, message",
    [
        (SimpleNamespace(low=np.zeros(2), high=np.ones(2)), "'Counter' has a continuous action space"),
        (SimpleNamespace(nvec=[16, 17]), "makes 272 combinations, and at most 256 can be one choice"),
        (SimpleNamespace(spaces=()), "'Counter' has a composite action space"),
    ],
)
def test_action_spaces_that_are_no_choice_are_refused(space: Any, message: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(worlds.Counter, "action_space", space)
    with pytest.raises(DiscorlError) as caught:
        envs.as_environment(worlds.Counter)
    assert message in str(caught.value)


def test_combinations_of_a_multi_dimensional_space_are_one_choice() -> None:
    actions = flat_actions(MULTI, "it")
    assert actions.total == 6
    assert actions.names == ("0,0", "0,1", "0,2", "1,0", "1,1", "1,2")
    np.testing.assert_array_equal(actions.decode(np.array([0, 4, 5])), [[0, 0], [1, 1], [1, 2]])
    binary = flat_actions(SimpleNamespace(n=3, shape=(3,)), "it")
    np.testing.assert_array_equal(binary.decode(np.array([5])), [[1, 0, 1]])
    shifted = flat_actions(SimpleNamespace(n=3, start=-1), "it")
    np.testing.assert_array_equal(shifted.decode(np.array([0, 2])), [-1, 1])


def test_observations_keep_small_types_and_numbers_become_one_hot() -> None:
    image = SimpleNamespace(shape=(2, 2), dtype=np.dtype(np.uint8), low=0, high=255)
    both = observations(SimpleNamespace(spaces={"image": image, "which": SimpleNamespace(n=3, start=1)}), "it")
    assert both.spec["image"].dtype == np.uint8
    assert both.spec["which"].shape == (3,)
    got = both.stacked([{"image": np.full((2, 2), 7, np.uint8), "which": 3}] * 2)
    np.testing.assert_array_equal(got["which"], [[False, False, True]] * 2)
    assert (got["image"].dtype, got["image"].shape) == (np.uint8, (2, 2, 2))
    buffer = np.zeros((2, 2, 2), np.uint8)
    kept = both.batched({"image": buffer, "which": [1, 2]})
    buffer += 1  # environments reuse their buffers
    assert not kept["image"].any()
    with pytest.raises(DiscorlError, match="no network here can see"):
        observations(SimpleNamespace(shape=None, dtype=str), "it")
