"""What environments of other JAX libraries need to keep our contract: fixed types, and pictures in text."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import PyTree

from discorl.envs.base import Environment, EnvSpec, EnvState, TimeStep
from discorl.types import Key, Observation

Reset = Callable[[Key], tuple[Any, Any]]  # state and observation
Step = Callable[[Key, Any, jax.Array], tuple[Any, "RawStep"]]
MAX_NUMBERS = 64  # of an observation that is shown as numbers


class RawStep(NamedTuple):
    """A TimeStep as libraries give it: right, but of any type."""

    obs: Any
    reward: Any
    terminated: Any
    truncated: Any


def pure_environment(
    name: str, num_actions: int, reset: Reset, step: Step, seen: Callable[[EnvState], Any], time_limit: int = 0
) -> Environment:
    """An environment of functions that mean the right things, but whose types wander between reset and step.

    Each array gets the type it has after reset, and none stays weak: otherwise the second step would compile again.
    `seen` is the observation of a state, or something like it, to be shown.
    """
    state_like, obs_like = jax.eval_shape(reset, jax.random.key(0))

    def typed_reset(key: Key) -> tuple[EnvState, Observation]:
        return _as(reset(key), (state_like, obs_like))

    def typed_step(key: Key, state: EnvState, action: jax.Array) -> tuple[EnvState, TimeStep]:
        state, came = step(key, state, action)
        over = jnp.asarray(came.terminated).astype(bool)
        return _as(state, state_like), TimeStep(
            obs=_as(came.obs, obs_like),
            reward=jnp.asarray(came.reward).astype(jnp.float32).reshape(()),
            terminated=over,
            truncated=jnp.asarray(came.truncated).astype(bool) & ~over,
        )

    structs = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), obs_like)
    spec = EnvSpec(name, num_actions, structs, time_limit=time_limit)
    return Environment(spec, typed_reset, typed_step, render=lambda state: picture(seen(state)))


def _as(tree: PyTree, like: PyTree) -> PyTree:
    def convert(x: Any, y: jax.ShapeDtypeStruct) -> jax.Array:
        if jnp.issubdtype(y.dtype, jax.dtypes.prng_key):
            return x
        return lax.convert_element_type(jnp.asarray(x), y.dtype)

    return jax.tree.map(convert, tree, like)


def picture(obs: Any) -> str:
    """An observation as text: planes [H, W, C] as one map with a letter per plane, few numbers as they are."""
    lines = []
    for x in jax.tree.leaves(obs):
        x = np.asarray(x)
        if x.ndim == 3 and x.shape[-1] <= 26:
            letters = np.array([".", *"abcdefghijklmnopqrstuvwxyz"])
            top = np.where((x != 0).any(-1), (x != 0).argmax(-1) + 1, 0)
            lines += ["".join(row) for row in letters[top]]
        elif x.ndim == 2:
            lines += ["".join("#" if cell else "." for cell in row) for row in x]
        elif x.size <= MAX_NUMBERS:
            lines.append(" ".join(f"{number:.3g}" for number in x.ravel().astype(float)))
        else:
            lines.append(f"{x.dtype}{list(x.shape)}")
    return "\n".join(lines)
