"""Crafter: survive and craft in a small open world, seen as images. Hafner 2021 (https://arxiv.org/abs/2109.06780)."""

from functools import partial
from typing import Any

import numpy as np

from discorl.envs.adapters.gym import DRAWN, Separate
from discorl.envs.adapters.libraries import library
from discorl.envs.base import EnvSpec
from discorl.envs.host import HostEnvironment
from discorl.envs.spaces import flat_actions, observations
from discorl.errors import DiscorlError, near_matches

REWARDED = {"reward": True, "noreward": False}
TIME_LIMIT = 10_000


def from_name(name: str) -> HostEnvironment:
    """reward: the benchmark's, for achievements and health; noreward: none, to explore without."""
    full = f"crafter:{name}"
    if name not in REWARDED:
        raise DiscorlError(f"unknown environment {full!r}; {near_matches(name, REWARDED)}")
    crafter = library("crafter", "crafter", f"environment {full!r}")
    make = partial(crafter.Env, reward=REWARDED[name], length=TIME_LIMIT)
    example = make(seed=0)
    actions = flat_actions(example.action_space, f"environment {full!r}")
    seen = observations(example.observation_space, f"environment {full!r}")
    spec = EnvSpec(full, actions.total, seen.spec, tuple(example.action_names), time_limit=TIME_LIMIT)
    return HostEnvironment(spec, lambda size, render: Separate([Single(make) for _ in range(size)], actions, seen))


class Single:
    """One world in Gymnasium's manner. A seeded reset makes it anew: Crafter takes a seed when it is made."""

    render_mode = DRAWN

    def __init__(self, make: Any) -> None:
        self._make = make
        self._env: Any = None

    def reset(self, seed: int | None = None) -> tuple[np.ndarray, dict]:
        if seed is not None:
            self._env = self._make(seed=seed)
        return self._env.reset(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        obs, reward, done, info = self._env.step(action)
        dead = done and info["discount"] == 0  # otherwise a clock ended it
        return obs, float(reward), dead, done and not dead, {}

    def render(self) -> np.ndarray:
        return self._env.render((256, 256))

    def close(self) -> None:
        pass
