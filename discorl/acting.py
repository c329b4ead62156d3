"""How an agent lives: policy steps, and rollouts of them."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from discorl.envs.base import BatchedEnvironment, BatchState, BatchStep, EpisodeEnd
from discorl.networks.base import AgentNetwork
from discorl.types import Cuts, Key, Memory, Observation, Params, Rollout


class Acted(NamedTuple):
    action: Int[Array, " B"]
    logits: Float[Array, "B A"]
    memory: Memory


class ActorState(NamedTuple):
    """Where acting stands between two rollouts."""

    env: BatchState
    obs: Observation  # [B, ...]
    first: Bool[Array, " B"]
    memory: Memory


class _Step(NamedTuple):
    """One row of a rollout while it is being made."""

    obs: Observation
    first: Array
    action: Array
    reward: Array
    discount: Array
    logits: Array
    end: EpisodeEnd


def act(
    network: AgentNetwork,
    params: Params,
    memory: Memory,
    obs: Observation,
    first: Bool[Array, " B"],
    key: Key,
    *,
    greedy: bool = False,
) -> Acted:
    """One action per environment."""
    logits, memory = policy(network, params, memory, obs, first)
    action = jnp.argmax(logits, -1) if greedy else jax.random.categorical(key, logits)
    return Acted(action=action.astype(jnp.int32), logits=logits, memory=memory)


def policy(
    network: AgentNetwork, params: Params, memory: Memory, obs: Observation, first: Bool[Array, " B"]
) -> tuple[Float[Array, "B A"], Memory]:
    """Logits of a step. Touches torso and policy head only."""
    row = jax.tree.map(lambda x: x[None], obs)
    embedding, memory = network.unroll(params, memory, row, first[None])
    return network.heads(params, embedding).logits[0], memory


def begin(network: AgentNetwork, env: BatchedEnvironment, key: Key) -> ActorState:
    state, obs = env.reset(key)
    return ActorState(env=state, obs=obs, first=jnp.ones(env.size, jnp.bool_), memory=network.memory(env.size))


def no_cuts(slots: int, length: int, obs: Observation, memory: Memory) -> Cuts | tuple[()]:
    """Room for `slots` ends by a clock in each trajectory; `obs` and `memory` are `[B, ...]` examples."""
    if not slots:
        return ()
    room = lambda tree: jax.tree.map(lambda x: jnp.zeros((slots, *x.shape), x.dtype), tree)  # noqa: E731
    size = jax.tree.leaves(obs)[0].shape[0]
    return Cuts(at=jnp.full((slots, size), length, jnp.int32), obs=room(obs), memory=room(memory))


def _note_cuts(cuts: Cuts | tuple[()], t: Array, length: int, came: BatchStep, memory: Memory) -> Cuts | tuple[()]:
    """Writes down what a clock ended at step t; a trajectory with more of them than slots keeps the first."""
    if not cuts:
        return ()
    free = jnp.cumsum(cuts.at == length, axis=0) == 1  # [S, B] the first slot that is free, if any
    here = free & (cuts.at == length) & came.truncated[None]

    def put(slots: Array, x: Array) -> Array:
        return jnp.where(here.reshape(*here.shape, *(1,) * (x.ndim - 1)), x[None], slots)

    return Cuts(
        at=jnp.where(here, t, cuts.at),
        obs=jax.tree.map(put, cuts.obs, came.final_obs),
        memory=jax.tree.map(put, cuts.memory, memory),
    )


def unroll(
    network: AgentNetwork,
    env: BatchedEnvironment,
    params: Params,
    key: Key,
    actor: ActorState,
    length: int,
    slots: int = 0,
) -> tuple[ActorState, Rollout, EpisodeEnd]:
    """`length` transitions in every environment; the next rollout starts where this one ends.

    Returns the episodes that ended on the way as `[T, B]`. With `slots`, so many ends by a clock are kept of every
    trajectory, and `env` must keep final observations.
    """

    def step(carry: tuple[ActorState, Cuts | tuple[()]], at: tuple[Array, Key]) -> tuple[tuple, _Step]:
        (actor, cuts), (t, key) = carry, at
        key_act, key_env = jax.random.split(key)
        acted = act(network, params, actor.memory, actor.obs, actor.first, key_act)
        env_state, came = env.step(key_env, actor.env, acted.action)
        row = _Step(actor.obs, actor.first, acted.action, came.reward, came.discount, acted.logits, came.end)
        cuts = _note_cuts(cuts, t, length, came, acted.memory)
        return (ActorState(env=env_state, obs=came.obs, first=came.first, memory=acted.memory), cuts), row

    start = actor, no_cuts(slots, length, actor.obs, actor.memory)
    steps = jnp.arange(length, dtype=jnp.int32), jax.random.split(key, length)
    (after, cuts), rows = jax.lax.scan(step, start, steps)
    with_last = lambda xs, x: jnp.concatenate([xs, x[None]])  # noqa: E731
    rollout = Rollout(
        obs=jax.tree.map(with_last, rows.obs, after.obs),
        first=with_last(rows.first, after.first),
        action=rows.action,
        reward=rows.reward,
        discount=rows.discount,
        behaviour_logits=rows.logits,
        memory=actor.memory,
        cuts=cuts,
    )
    return after, rollout, rows.end
