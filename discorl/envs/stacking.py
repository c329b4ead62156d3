"""Several observations at once: what moves, and which way, is not in one picture.

The newest stands last along the last axis, [H, W, C] becomes [H, W, count·C] and [D] becomes [count·D]; where an
episode begins, its first observation stands in every place. Masks of legal actions are those of now alone.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from discorl.envs.base import ACTION_MASK, Environment, EnvSpec, EnvState, TimeStep
from discorl.envs.host import HostEnvironment, HostStep, HostVector
from discorl.errors import DiscorlError
from discorl.types import Key, Observation


def stacked(env: Environment | HostEnvironment, count: int) -> Environment | HostEnvironment:
    """`env` whose observations are its last `count` ones."""
    if count == 1:
        return env
    if env.spec.stack:
        raise DiscorlError(
            f"{env.spec.name!r} shows {env.spec.stack} frames at once already; leave out frame_stack, or set it to 1"
        )
    return _host(env, count) if isinstance(env, HostEnvironment) else _compiled(env, count)


def channels_first(shape: tuple[int, ...]) -> bool:
    """Whether [a, b, c] is a stack of small square planes [C, H, H] rather than an image [H, W, C]."""
    return len(shape) == 3 and shape[0] < shape[1] == shape[2]


def _wide_spec(spec: EnvSpec, count: int) -> EnvSpec:
    seen = _each(lambda x: jax.eval_shape(lambda y: jnp.concatenate([_last(y)] * count, -1), x), spec.observation)
    alone = not isinstance(spec.observation, (dict, tuple))  # then the replay holds every frame once
    return replace(spec, observation=seen, stack=count if alone else 0)


def _last(x: Any) -> Any:
    """Of one observation: what is stacked side by side comes last."""
    if channels_first(x.shape):
        return x.transpose(1, 2, 0)
    return x[..., None] if x.ndim in (0, 2) else x


def _each(function: Callable[..., Any], *trees: Observation) -> Observation:
    """On all entries of observations but masks, of which the last tree's are kept."""
    return jax.tree_util.tree_map_with_path(
        lambda path, *x: x[-1] if _is_mask(path) else function(*x), *trees, is_leaf=lambda x: x is None
    )


def _is_mask(path: tuple[Any, ...]) -> bool:
    return bool(path) and getattr(path[-1], "key", None) == ACTION_MASK


def _compiled(env: Environment, count: int) -> Environment:
    def begin(obs: Observation) -> Observation:
        return _each(lambda x: jnp.concatenate([_last(x)] * count, -1), obs)

    def push(stack: Observation, obs: Observation) -> Observation:
        return _each(lambda old, new: _pushed(jnp.concatenate, old, _last(new)), stack, obs)

    def reset(key: Key) -> tuple[EnvState, Observation]:
        state, obs = env.reset(key)
        return (state, begin(obs)), begin(obs)

    def step(key: Key, state: EnvState, action: jax.Array) -> tuple[EnvState, TimeStep]:
        inner, came = env.step(key, state[0], action)
        seen = push(state[1], came.obs)
        return (inner, seen), came._replace(obs=seen)

    return Environment(_wide_spec(env.spec, count), reset, step, lambda state: env.render(state[0]))


def _pushed(concatenate: Callable[..., Any], old: Any, new: Any) -> Any:
    return concatenate([old[..., new.shape[-1] :], new], -1)


def _host(env: HostEnvironment, count: int) -> HostEnvironment:
    spec = _wide_spec(env.spec, count)
    return env._replace(spec=spec, make=lambda size, render: _Stacked(env.open(size, render), count))


class _Stacked:
    """A vector of environments whose lanes each carry a stack."""

    def __init__(self, vector: HostVector, count: int) -> None:
        self._vector, self._count = vector, count

    @property
    def size(self) -> int:
        return self._vector.size

    def reset(self, seed: int) -> Observation:
        self._seen = self._begun(self._vector.reset(seed))
        return self._seen

    def step(self, action: np.ndarray) -> HostStep:
        came = self._vector.step(action)
        final = self._pushed(came.final_obs)
        going, begun = self._pushed(came.obs), self._begun(came.obs)
        self._seen = jax.tree.map(lambda old, new: _where(came.first, new, old), going, begun)
        return came._replace(obs=self._seen, final_obs=final)

    def render(self) -> np.ndarray | None:
        return self._vector.render()

    def close(self) -> None:
        self._vector.close()

    def _begun(self, obs: Observation) -> Observation:
        return _each(lambda x: np.concatenate([_lanes_last(x)] * self._count, -1), obs)

    def _pushed(self, obs: Observation) -> Observation:
        return _each(lambda old, new: _pushed(np.concatenate, old, _lanes_last(new)), self._seen, obs)


def _lanes_last(x: np.ndarray) -> np.ndarray:
    if channels_first(x.shape[1:]):
        return x.transpose(0, 2, 3, 1)
    return x[..., None] if x.ndim in (1, 3) else x


def _where(lanes: np.ndarray, yes: np.ndarray, no: np.ndarray) -> np.ndarray:
    return np.where(lanes.reshape(-1, *[1] * (yes.ndim - 1)), yes, no)
