"""How an agent lives: policy steps, and rollouts of them."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from discorl.envs.base import BatchedEnvironment, BatchState, EpisodeEnd
from discorl.networks.base import AgentNetwork
from discorl.types import Key, Memory, Observation, Params, Rollout


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
    """One action per environment. Touches torso and policy head only."""
    row = jax.tree.map(lambda x: x[None], obs)
    embedding, memory = network.unroll(params, memory, row, first[None])
    logits = network.heads(params, embedding).logits[0]
    action = jnp.argmax(logits, -1) if greedy else jax.random.categorical(key, logits)
    return Acted(action=action.astype(jnp.int32), logits=logits, memory=memory)


def begin(network: AgentNetwork, env: BatchedEnvironment, key: Key) -> ActorState:
    state, obs = env.reset(key)
    return ActorState(env=state, obs=obs, first=jnp.ones(env.size, jnp.bool_), memory=network.memory(env.size))


def unroll(
    network: AgentNetwork, env: BatchedEnvironment, params: Params, key: Key, actor: ActorState, length: int
) -> tuple[ActorState, Rollout, EpisodeEnd]:
    """`length` transitions in every environment; the next rollout starts where this one ends.

    Returns the episodes that ended on the way as `[T, B]`.
    """

    def step(actor: ActorState, key: Key) -> tuple[ActorState, _Step]:
        key_act, key_env = jax.random.split(key)
        acted = act(network, params, actor.memory, actor.obs, actor.first, key_act)
        env_state, came = env.step(key_env, actor.env, acted.action)
        row = _Step(actor.obs, actor.first, acted.action, came.reward, came.discount, acted.logits, came.end)
        return ActorState(env=env_state, obs=came.obs, first=came.first, memory=acted.memory), row

    after, rows = jax.lax.scan(step, actor, jax.random.split(key, length))
    with_last = lambda xs, x: jnp.concatenate([xs, x[None]])  # noqa: E731
    rollout = Rollout(
        obs=jax.tree.map(with_last, rows.obs, after.obs),
        first=with_last(rows.first, after.first),
        action=rows.action,
        reward=rows.reward,
        discount=rows.discount,
        behaviour_logits=rows.logits,
        memory=actor.memory,
    )
    return after, rollout, rows.end
