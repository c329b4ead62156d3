"""One way to step environments that reset themselves: Gymnasium's vector environments, or a plain function."""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np

from discorl.errors import DiscorlError
from discorl_torch.types import Tree


class Stepped(NamedTuple):
    obs: Tree  # [B, ...]
    reward: np.ndarray  # [B]
    terminated: np.ndarray  # [B] the task ended: nothing comes after
    truncated: np.ndarray  # [B] a clock ended it: something would have come after
    final_obs: Tree = None  # [B, ...] what the action led to, before any reset; None: `obs`


class Stepper(Protocol):
    resets_next: bool  # an environment that ended spends the next step on its reset

    def __call__(self, action: np.ndarray, pending: np.ndarray) -> Stepped: ...

    def reset(self) -> Tree: ...


def stepper(env: Any) -> Stepper:
    if hasattr(env, "num_envs") and hasattr(env, "step"):
        return _Gymnasium(env)
    if callable(env):
        return _Function(env)  # pyright: ignore[reportArgumentType]
    raise DiscorlError(
        f"cannot act in {type(env).__name__}; give a Gymnasium vector environment (gymnasium.make_vec) or a function "
        "that takes actions and returns (obs, reward, done)"
    )


class _Function:
    resets_next = False

    def __init__(self, step: Callable[[np.ndarray], tuple]):
        self.step = step

    def __call__(self, action: np.ndarray, pending: np.ndarray) -> Stepped:
        obs, reward, terminated, *rest = self.step(action)
        terminated = np.asarray(terminated).astype(bool)
        truncated = np.asarray(rest[0]).astype(bool) if rest else np.zeros_like(terminated)
        return Stepped(obs, np.asarray(reward), terminated, truncated)

    def reset(self) -> Tree:
        raise DiscorlError("a step function cannot reset; hand its current observations to collect_rollout as obs")


class _Gymnasium:
    """`autoreset_mode` of the environment's metadata says who resets, and when."""

    def __init__(self, env: Any):
        self.env = env
        mode = env.metadata.get("autoreset_mode", "NextStep")
        self.mode = getattr(mode, "value", mode)
        if self.mode not in ("NextStep", "SameStep", "Disabled"):
            raise DiscorlError(
                f"the environment's autoreset_mode {self.mode!r} is none of NextStep, SameStep, Disabled"
            )
        self.resets_next = self.mode == "NextStep"

    def __call__(self, action: np.ndarray, pending: np.ndarray) -> Stepped:
        obs, reward, terminated, truncated, info = self.env.step(action)
        ended = terminated | truncated
        if self.mode == "Disabled":
            final = _copy(obs)
            if ended.any():
                obs, _ = self.env.reset(options={"reset_mask": ended})
            return Stepped(_copy(obs), reward, terminated, truncated, final)
        final = obs
        if self.mode == "SameStep" and ended.any():
            final = _replace(_copy(obs), info["final_obs"], ended)
        # environments reuse their observation arrays, and a rollout keeps them all
        return Stepped(_copy(obs), reward, terminated, truncated, final)

    def reset(self) -> Tree:
        return _copy(self.env.reset()[0])


def _copy(obs: Tree) -> Tree:
    if isinstance(obs, dict):
        return {key: _copy(x) for key, x in obs.items()}
    return tuple(map(_copy, obs)) if isinstance(obs, tuple) else np.array(obs)


def _replace(obs: Tree, final: Any, where: np.ndarray) -> Tree:
    """`obs` with the rows of `final`, of which only those in `where` are present, put in."""
    for i in np.flatnonzero(where).tolist():
        _put(obs, final[i], i)
    return obs


def _put(obs: Tree, row: Any, i: int) -> None:
    if isinstance(obs, dict):
        for key, x in obs.items():
            _put(x, row[key], i)
    elif isinstance(obs, tuple):
        for x, part in zip(obs, row, strict=True):
            _put(x, part, i)
    else:
        obs[i] = row
