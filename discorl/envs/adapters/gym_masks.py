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


class MaskShown:
    """The same environment; its observation has one more entry."""

    def __init__(self, env: Any) -> None:
        self._env = env
        self._every = np.ones(int(env.action_space.n), bool)
        self._named, self.observation_space = _with_mask(env.observation_space, self._every)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)

    def reset(self, **options: Any) -> tuple[dict, dict]:
        obs, info = self._env.reset(**options)
        return self._shown(obs, info), info

    def step(self, action: Any) -> tuple[dict, Any, Any, Any, dict]:
        obs, *rest, info = self._env.step(action)
        return self._shown(obs, info), *rest, info

    def _shown(self, obs: Any, info: dict) -> dict:
        mask = info.get(ACTION_MASK, self._every)  # after the end some say nothing
        return (obs if self._named else {REST: obs}) | {ACTION_MASK: np.asarray(mask, bool)}


class VectorMaskShown:
    """The same for a vector of environments, whose info has the masks of all, and flags of those who told one."""

    def __init__(self, vector: Any) -> None:
        self._vector = vector
        self._every = np.ones(int(vector.single_action_space.n), bool)
        self._named, self.single_observation_space = _with_mask(vector.single_observation_space, self._every)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._vector, name)

    def reset(self, **options: Any) -> tuple[dict, dict]:
        obs, info = self._vector.reset(**options)
        return self._shown(obs, self._masks(info)), info

    def step(self, action: Any) -> tuple[dict, Any, Any, Any, dict]:
        obs, *rest, info = self._vector.step(action)
        if "final_obs" in info:  # of those who ended, None for others; nothing can be done there any more
            ended = [lane(info["final_obs"], i) for i in range(self._vector.num_envs)]
            info = info | {"final_obs": [None if x is None else self._shown(x, self._every) for x in ended]}
        return self._shown(obs, self._masks(info)), *rest, info

    def _masks(self, info: dict) -> np.ndarray:
        count = self._vector.num_envs
        told = np.asarray(info.get(f"_{ACTION_MASK}", np.full(count, ACTION_MASK in info)), bool)
        return np.asarray(info.get(ACTION_MASK, np.tile(self._every, (count, 1))), bool) | ~told[:, None]

    def _shown(self, obs: Any, mask: np.ndarray) -> dict:
        return (obs if self._named else {REST: obs}) | {ACTION_MASK: mask}


def _with_mask(space: Any, every: np.ndarray) -> tuple[bool, Any]:
    """Whether the parts of observations have names already, and the space of those with a mask."""
    spaces = getattr(space, "spaces", None)
    named = isinstance(spaces, Mapping)
    entries = dict(spaces) if isinstance(spaces, Mapping) else {REST: space}
    return named, SimpleNamespace(spaces=entries | {ACTION_MASK: SimpleNamespace(shape=every.shape, dtype=every.dtype)})


def lane(batch: Any, i: int) -> Any:
    """One environment's entry of an info: a dict of arrays, or an array of anything."""
    return {name: lane(x, i) for name, x in batch.items()} if isinstance(batch, dict) else batch[i]
