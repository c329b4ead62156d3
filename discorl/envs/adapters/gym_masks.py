"""Gymnasium environments that tell their legal actions in `info["action_mask"]`, as ones that show them to agents."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np

from discorl.envs.base import ACTION_MASK

REST = "observation"  # the name of what else is seen, where that had none


def tells_masks(env: Any) -> bool:
    """Whether the environment's info has one flag per action. It is reset to find out."""
    return _tells_masks(env, env.action_space, env.observation_space, ())


def vector_tells_masks(vector: Any) -> bool:
    return _tells_masks(vector, vector.single_action_space, vector.single_observation_space, (vector.num_envs,))


def _tells_masks(env: Any, actions: Any, seen: Any, batch: tuple[int, ...]) -> bool:
    """What goes wrong here goes wrong again where training resets it, and is reported there."""
    one_choice = hasattr(actions, "n") and not getattr(actions, "shape", None)
    if not one_choice or ACTION_MASK in getattr(seen, "spaces", ()):
        return False
    try:
        _, info = env.reset(seed=0)
        return np.shape(info.get(ACTION_MASK)) == (*batch, int(actions.n))
    except Exception:
        return False


class _Shown:
    """The same environment, or vector of them; what is seen has one more entry."""

    def __init__(self, given: Any, actions: Any, space: Any) -> None:
        self._given = given
        self._every = np.ones(int(actions.n), bool)
        spaces = getattr(space, "spaces", None)
        self._named = isinstance(spaces, Mapping)  # whether what is seen has names already
        entries = dict(spaces) if isinstance(spaces, Mapping) else {REST: space}
        flags = SimpleNamespace(shape=self._every.shape, dtype=self._every.dtype)
        self._space = SimpleNamespace(spaces=entries | {ACTION_MASK: flags})

    def __getattr__(self, name: str) -> Any:
        return getattr(self._given, name)

    def reset(self, **options: Any) -> tuple[dict, dict]:
        obs, info = self._given.reset(**options)
        return self._shown(obs, self._mask(info)), info

    def _mask(self, info: dict) -> np.ndarray:
        raise NotImplementedError

    def _shown(self, obs: Any, mask: np.ndarray) -> dict:
        return (obs if self._named else {REST: obs}) | {ACTION_MASK: mask}


class MaskShown(_Shown):
    def __init__(self, env: Any) -> None:
        super().__init__(env, env.action_space, env.observation_space)
        self.observation_space = self._space

    def step(self, action: Any) -> tuple[dict, Any, Any, Any, dict]:
        obs, *rest, info = self._given.step(action)
        return self._shown(obs, self._mask(info)), *rest, info

    def _mask(self, info: dict) -> np.ndarray:
        return np.asarray(info.get(ACTION_MASK, self._every), bool)  # after the end some say nothing


class VectorMaskShown(_Shown):
    """A vector's info has the masks of all, and flags of those who told one."""

    def __init__(self, vector: Any) -> None:
        super().__init__(vector, vector.single_action_space, vector.single_observation_space)
        self.single_observation_space = self._space

    def step(self, action: Any) -> tuple[dict, Any, Any, Any, dict]:
        obs, *rest, info = self._given.step(action)
        if "final_obs" in info:  # of those who ended, None for others; nothing can be done there any more
            ended = [lane(info["final_obs"], i) for i in range(self._given.num_envs)]
            info = info | {"final_obs": [None if x is None else self._shown(x, self._every) for x in ended]}
        return self._shown(obs, self._mask(info)), *rest, info

    def _mask(self, info: dict) -> np.ndarray:
        count = self._given.num_envs
        told = np.asarray(info.get(f"_{ACTION_MASK}", np.full(count, ACTION_MASK in info)), bool)
        return np.asarray(info.get(ACTION_MASK, np.tile(self._every, (count, 1))), bool) | ~told[:, None]


def lane(batch: Any, i: int) -> Any:
    """One environment's entry of an info: a dict of arrays, or an array of anything."""
    return {name: lane(x, i) for name, x in batch.items()} if isinstance(batch, dict) else batch[i]
