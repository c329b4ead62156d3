"""The contract of an environment; batching and auto-reset, in one place."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PyTree

from discorl.errors import DiscorlError
from discorl.types import Key, Observation

EnvState = PyTree[Array]
ACTION_MASK = "action_mask"  # entry of an observation: one flag per action, true where it is allowed
LANES_PER_RESET = 16  # of environments whose reset is costly


@dataclass(frozen=True)
class EnvSpec:
    """What an agent must know of an environment before it meets it."""

    name: str
    num_actions: int
    observation: Any = field(hash=False)  # tree of jax.ShapeDtypeStruct, of one observation
    action_names: tuple[str, ...] = ()
    stack: int = 0  # frames along the last axis, [..., stack·C], of which each step brings one; 0: no stack
    time_limit: int = 0  # steps after which a clock ends an episode; 0: there is none, or nobody knows
    costly_reset: bool = False  # a reset takes as long as many steps; see `step_batch`


class TimeStep(NamedTuple):
    """The consequences of one action. `obs` is what the action led to, also when the episode ended there."""

    obs: Observation
    reward: Float[Array, ""]
    terminated: Bool[Array, ""]  # the task ended: nothing comes after
    truncated: Bool[Array, ""]  # a clock ended it: something would have come after


class Environment(NamedTuple):
    """One environment as pure functions; many are a `vmap` of it (see `batch`)."""

    spec: EnvSpec
    reset: Callable[[Key], tuple[EnvState, Observation]]
    step: Callable[[Key, EnvState, Array], tuple[EnvState, TimeStep]]
    render: Callable[[EnvState], str]  # one frame as text; call it outside jit


class EpisodeEnd(NamedTuple):
    """Statistics of the episodes that ended with a step; zeros elsewhere."""

    ended: Bool[Array, " B"]
    episode_return: Float[Array, " B"]
    length: Int[Array, " B"]


class BatchState(NamedTuple):
    """Environments side by side, and what their running episodes have collected so far."""

    env: EnvState  # [B, ...]
    episode_return: Float[Array, " B"]
    length: Int[Array, " B"]


class BatchStep(NamedTuple):
    """The consequences of one action in each of B environments, where ended episodes have already begun anew."""

    obs: Observation  # [B, ...] the first observation of the next episode where one ended
    first: Bool[Array, " B"]  # obs starts an episode
    reward: Float[Array, " B"]
    discount: Float[Array, " B"]  # 0 where the episode ended, by itself or by a clock; else 1
    truncated: Bool[Array, " B"]  # a clock alone ended it
    end: EpisodeEnd
    final_obs: Observation = ()  # [B, ...] what the action led to, before any reset; () unless asked for


class BatchedEnvironment(NamedTuple):
    """B copies of one environment that never stop. After `reset` every observation is a first one."""

    spec: EnvSpec
    size: int
    reset: Callable[[Key], tuple[BatchState, Observation]]
    step: Callable[[Key, BatchState, Int[Array, " B"]], tuple[BatchState, BatchStep]]


def batch(env: Environment, size: int, *, keep_final_obs: bool = False) -> BatchedEnvironment:
    """`size` copies of `env` side by side, each reset when its episode ends.

    `keep_final_obs` keeps the observation an episode ended with, for whoever bootstraps from truncated episodes.
    """
    if size < 1:
        raise DiscorlError(f"a batch needs at least 1 environment, got {size}")
    return BatchedEnvironment(
        spec=env.spec,
        size=size,
        reset=partial(reset_batch, env, size),
        step=partial(step_batch, env, size, keep_final_obs),
    )


def reset_batch(env: Environment, size: int, key: Key) -> tuple[BatchState, Observation]:
    env_state, obs = strip_weak_types(jax.vmap(env.reset)(jax.random.split(key, size)))
    state = BatchState(env=env_state, episode_return=jnp.zeros(size, jnp.float32), length=jnp.zeros(size, jnp.int32))
    return state, obs


def step_batch(
    env: Environment, size: int, keep_final_obs: bool, key: Key, state: BatchState, action: Int[Array, " B"]
) -> tuple[BatchState, BatchStep]:
    """One step everywhere, then a reset where an episode ended.

    A reset is computed for every copy and kept where needed: inside one compiled program nobody can wait for the few.
    Where a reset is costly, a loop computes a few of those needed at a time instead. The numbers are the same.
    """
    keys = jax.random.split(key, (2, size))
    env_state, timestep = jax.vmap(env.step)(keys[0], state.env, action.astype(jnp.int32))
    ended = timestep.terminated | timestep.truncated
    if env.spec.costly_reset:
        env_state, obs = _begin_a_few_at_a_time(env, keys[1], ended, strip_weak_types((env_state, timestep.obs)))
    else:
        begun = jax.vmap(env.reset)(keys[1])
        env_state, obs = strip_weak_types(_where(ended, begun, (env_state, timestep.obs)))

    reward = strip_weak_types(timestep.reward)
    episode_return = state.episode_return + reward
    length = state.length + 1
    running = BatchState(
        env=env_state, episode_return=jnp.where(ended, 0.0, episode_return), length=jnp.where(ended, 0, length)
    )
    end = EpisodeEnd(
        ended=ended, episode_return=jnp.where(ended, episode_return, 0.0), length=jnp.where(ended, length, 0)
    )
    return running, BatchStep(
        obs=obs,
        first=ended,
        reward=reward,
        discount=(~ended).astype(jnp.float32),
        truncated=timestep.truncated & ~timestep.terminated,
        end=end,
        final_obs=strip_weak_types(timestep.obs) if keep_final_obs else (),
    )


def _begin_a_few_at_a_time(env: Environment, keys: Key, ended: Bool[Array, " B"], lanes: PyTree) -> PyTree:
    """States and observations of all lanes, those that ended replaced by what a reset with their key gives."""
    few = -(-ended.size // LANES_PER_RESET)

    def begin(carry: tuple[Array, PyTree]) -> tuple[Array, PyTree]:
        left, lanes = carry
        at = jnp.argsort(~left)[:few]  # those that wait come first
        begun = strip_weak_types(jax.vmap(env.reset)(keys[at]))
        kept = _where(left[at], begun, jax.tree.map(lambda x: x[at], lanes))
        return left.at[at].set(False), jax.tree.map(lambda x, new: x.at[at].set(new), lanes, kept)

    return lax.while_loop(lambda carry: carry[0].any(), begin, (ended, lanes))[1]


def strip_weak_types(tree: PyTree) -> PyTree[Array]:
    """The same numbers with fixed types: a weakly typed reset state would make the second step compile again."""
    return jax.tree.map(lambda x: lax.convert_element_type(x, x.dtype), tree)


@jax.vmap
def _where(condition, yes, no):
    return jax.tree.map(partial(jnp.where, condition), yes, no)
