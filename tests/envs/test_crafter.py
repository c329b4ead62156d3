"""Crafter: its own steps, death and the clock told apart, worlds by seed."""

import sys
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from discorl import envs
from discorl.envs.adapters import crafter as adapter
from discorl.errors import DiscorlError


def host(name: str) -> envs.HostEnvironment:
    env = envs.make(name)
    assert isinstance(env, envs.HostEnvironment)
    return env


class Stub:
    """Ends after 3 steps: by death in worlds of even seeds, by the clock in others. Crafter's manner of saying so."""

    action_names = ("noop", "do")
    action_space = SimpleNamespace(n=2)
    observation_space = SimpleNamespace(shape=(np.int64(4), np.int64(4), 3), dtype=np.uint8)

    def __init__(self, reward: bool, length: int, seed: int) -> None:
        assert length == 10_000
        self.rewarded, self.seed, self.t = reward, seed, 0

    def render(self, size: Any = None) -> np.ndarray:
        return np.full((4, 4, 3), self.t, np.uint8)

    def reset(self) -> np.ndarray:
        self.t = 0
        return self.render()

    def step(self, action: int) -> tuple:
        self.t += 1
        done = self.t == 3
        info = {"discount": 1 - float(done and self.seed % 2 == 0)}
        return self.render(), float(action * self.rewarded), done, info


@pytest.mark.parametrize("name, paid", [("crafter:reward", 1.0), ("crafter:noreward", 0.0)])
def test_death_and_the_clock_are_different_ends(name: str, paid: float, monkeypatch: Any) -> None:
    stub = ModuleType("crafter")
    vars(stub)["Env"] = Stub
    monkeypatch.setitem(sys.modules, "crafter", stub)
    env = host(name)
    assert (env.spec.name, env.spec.num_actions, env.spec.time_limit) == (name, 2, 10_000)
    assert env.spec.action_names == ("noop", "do")
    vector = env.open(8)
    vector.reset(0)
    even = np.random.SeedSequence(0).generate_state(8) // 2 % 2 == 0
    assert 0 < even.sum() < 8
    came = [vector.step(np.ones(8, int)) for _ in range(3)][-1]
    np.testing.assert_array_equal(came.terminated, even)
    np.testing.assert_array_equal(came.truncated, ~even)
    assert (came.reward == paid).all() and (came.final_obs == 3).all() and (came.obs == 0).all() and came.first.all()
    drawn = vector.render()
    assert drawn is not None and drawn.shape[-1] == 3


def test_crafter_itself(monkeypatch: Any) -> None:
    crafter = pytest.importorskip("crafter", reason="crafter is not installed: pip install 'discorl[crafter]'")
    small = partial(crafter.Env, area=(16, 16))  # a whole world takes seconds to make
    monkeypatch.setattr(crafter, "Env", small)
    monkeypatch.setattr(adapter, "TIME_LIMIT", 12)
    env = host("crafter:reward")
    assert env.spec.num_actions == 17 == len(env.spec.action_names)
    assert (env.spec.observation.shape, env.spec.observation.dtype) == ((64, 64, 3), np.uint8)
    vector, seeds = env.open(2), np.random.SeedSequence(1).generate_state(2) >> 1
    theirs = [small(seed=int(seed), length=12) for seed in seeds]
    np.testing.assert_array_equal(vector.reset(1), [one.reset() for one in theirs])
    clocks = 0
    for action in np.random.default_rng(0).integers(17, size=(26, 2)):
        came = vector.step(action)
        for i, one in enumerate(theirs):
            obs, reward, done, info = one.step(action[i])
            np.testing.assert_array_equal(came.final_obs[i], obs)
            np.testing.assert_array_equal(came.obs[i], one.reset() if done else obs)
            assert came.reward[i] == np.float32(reward)
            assert (came.terminated[i], came.truncated[i]) == (
                done and not info["discount"],
                done and info["discount"] == 1,
            )
            clocks += came.truncated[i]
    assert clocks >= 2


def test_wrong_names_and_a_missing_library(monkeypatch: Any) -> None:
    with pytest.raises(DiscorlError, match="unknown environment 'crafter:rewards'; did you mean 'reward'"):
        envs.make("crafter:rewards")
    monkeypatch.setitem(sys.modules, "crafter", None)
    with pytest.raises(
        DiscorlError, match=r"crafter is not installed; install it with: pip install 'discorl\[crafter\]'"
    ):
        envs.make("crafter:reward")
