"""Gymnasium environments that tell their legal actions in `info["action_mask"]`, as ones that show them to agents."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np

from discorl.envs.base import ACTION_MASK

REST = "observation"  # the name of what else is seen, where that had none


def tells_masks(env: Any) -> bool:
    """Whether the environment's info has one flag per action. It is reset to find out.

    What goes wrong there goes wrong again where training resets it, and is reported there.
    """
    one_choice = hasattr(env.action_space, "n") and not getattr(env.action_space, "shape", None)
    if not one_choice or ACTION_MASK in getattr(env.observation_space, "spaces", ()):
        return False
    try:
        _, info = env.reset(seed=0)
        return np.shape(info.get(ACTION_MASK)) == (int(env.action_space.n),)
    except Exception:
        return False


class MaskShown:
    """The same environment; its observation has one more entry."""

    def __init__(self, env: Any) -> None:
        self._env = env
        spaces = getattr(env.observation_space, "spaces", None)
        self._every = np.ones(int(env.action_space.n), bool)
        self._named = isinstance(spaces, Mapping)
        entries = dict(spaces) if isinstance(spaces, Mapping) else {REST: env.observation_space}
        flags = SimpleNamespace(shape=self._every.shape, dtype=self._every.dtype)
        self.observation_space = SimpleNamespace(spaces=entries | {ACTION_MASK: flags})

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
