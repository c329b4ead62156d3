"""Small environments in Gymnasium's manner, without Gymnasium: spaces are recognised by what they have."""

from types import SimpleNamespace
from typing import Any

import numpy as np

TWO = SimpleNamespace(n=2)
BOX = SimpleNamespace(shape=(2,), dtype=np.dtype(np.float64), low=0, high=1)


class Counter:
    """Shows (episode, step); episodes last 3, 4, 5, 3, ... steps, every other one ended by a clock. Reward: the step.

    What happens depends on no action and, but for the length of the first episode, on no seed: a walk through it is
    known in advance.
    """

    action_space: Any = TWO
    observation_space: Any = BOX

    def __init__(self) -> None:
        self.episode, self.t = -1, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        if seed is not None:
            self.episode = seed % 3 - 1
        self.episode, self.t = self.episode + 1, 0
        return self.seen(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.t += 1
        over = self.t == 3 + self.episode % 3
        return self.seen(), float(self.t), over and self.episode % 2 == 0, over and self.episode % 2 == 1, {}

    def seen(self) -> np.ndarray:
        return np.array([self.episode, self.t], np.float64)

    def close(self) -> None:
        pass


class Bandit(Counter):
    """One step; the second action is right: something to learn."""

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        return self.seen(), float(action == 1), True, False, {}


class NanReward(Counter):
    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        obs, reward, terminated, truncated, info = super().step(action)
        return obs, reward if self.episode < 3 else np.nan, terminated, truncated, info


class Growing(Counter):
    def seen(self) -> np.ndarray:
        return np.zeros(2 if self.t < 3 else 3)


class Raising(Counter):
    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        if self.episode == 4:
            raise RuntimeError("the simulator is gone\nwith a long story")
        return super().step(action)


class Lost(Counter):
    def seen(self) -> np.ndarray:
        return np.array([np.inf, 0])


class Uncopyable(Counter):
    def __deepcopy__(self, memo: Any) -> Any:
        raise TypeError("there is only one")
