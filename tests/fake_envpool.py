"""Stands for envpool, which is too large for every test run: the part of it that is used, said and done as it does."""

from types import SimpleNamespace
from typing import Any

import numpy as np

MADE: list["Pool"] = []
BROKEN: list[str] = []  # what importing a game says, if it cannot be imported


def list_all_envs() -> list[str]:
    return ["CartPole-v1", "MazeEasy-v0", "MazeHard-v0", "MazeMemory-v0", "BossfightEasy-v0", "BossfightHard-v0"]


def make(task_id: str, env_type: str, **options: Any) -> "Pool":
    assert task_id in list_all_envs() and env_type == "gymnasium"
    if BROKEN:
        raise ImportError(BROKEN[0])
    MADE.append(Pool(task_id, **options))
    return MADE[-1]


class Pool:
    """Episodes of 3 steps, those of every other lane ended by a clock; an image of the level, which the seed draws.

    After an end, the next step takes no action: it begins the next level.
    """

    render_mode = None
    single_action_space = SimpleNamespace(n=15)

    def __init__(self, task: str, *, num_envs: int, seed: int, channel_first: bool = True, **options: Any) -> None:
        self.task, self.options, self.num_envs, self.closed = task, options, num_envs, False
        self.config = {"max_episode_steps": 3}
        self.shape = (3, 64, 64) if channel_first else (64, 64, 3)
        self.single_observation_space = SimpleNamespace(shape=self.shape, dtype=np.dtype(np.uint8))
        self.rng = np.random.default_rng(seed)
        self.level, self.t = np.zeros(num_envs, int), np.zeros(num_envs, int)
        self.buffer = np.zeros((num_envs, *self.shape), np.uint8)  # always the same one

    def reset(self, *, seed: int | None = None) -> tuple[np.ndarray, dict]:
        assert seed is None, "envpool warns: seeds are fixed when a pool is made"
        return self.begin(np.ones(self.num_envs, bool)), {}

    def begin(self, where: np.ndarray) -> np.ndarray:
        levels = self.options.get("num_levels") or 200
        self.level[where] = self.options.get("start_level", 0) + self.rng.integers(levels, size=where.sum())
        self.t[where] = 0
        self.buffer[:] = (self.level + self.t).reshape(-1, 1, 1, 1)
        return self.buffer

    def step(self, action: np.ndarray) -> tuple:
        over = self.t == 3
        self.t += 1
        obs, ended, lanes = self.begin(over), self.t == 3, np.arange(self.num_envs)
        reward = np.where(over, 0.0, action).astype(np.float32)
        return obs, reward, ended & (lanes % 2 == 0), ended & (lanes % 2 == 1), {"elapsed_step": self.t}

    def close(self) -> None:
        self.closed = True
