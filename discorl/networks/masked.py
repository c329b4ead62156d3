"""Actions that are not allowed: an environment says so in its observation, and the policy never takes them.

The mask is an entry of the observation, so that it is stored, replayed and stacked like everything else one can see.
Whoever reads the policy's logits (acting, importance ratios, losses) reads them masked.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool

from discorl.distributions import ILLEGAL
from discorl.envs.base import ACTION_MASK, EnvSpec
from discorl.errors import DiscorlError
from discorl.networks.base import AgentNetwork, Embedding, Root
from discorl.types import Memory, Observation, Params, StateOutput


class Masked(NamedTuple):
    embedding: Embedding
    legal: Bool[Array, "T B A"]


def has_mask(spec: EnvSpec) -> bool:
    """Whether observations are named entries of which one says what is allowed; a wrong one is an error."""
    if not isinstance(spec.observation, dict) or ACTION_MASK not in spec.observation:
        return False
    entry = spec.observation[ACTION_MASK]
    if entry.shape != (spec.num_actions,):
        raise DiscorlError(
            f"{spec.name}: the entry {ACTION_MASK!r} must hold {spec.num_actions} flags, one for each action, but its "
            f"shape is {list(entry.shape)}; give it that shape, or another name if it is no mask"
        )
    return True


def masked(network: AgentNetwork) -> AgentNetwork:
    """The same network for observations with a mask; logits of what is not allowed are as good as −∞."""

    def unroll(params: Params, memory: Memory, obs: Observation, first: Array) -> tuple[Masked, Memory]:
        embedding, memory = network.unroll(params, memory, obs, first)
        return Masked(embedding, obs[ACTION_MASK].astype(jnp.bool_)), memory  # flags come in many number types

    def heads(params: Params, seen: Masked) -> StateOutput:
        said = network.heads(params, seen.embedding)
        return said._replace(logits=jnp.where(seen.legal, said.logits, ILLEGAL))

    def root(params: Params, seen: Masked) -> Root:
        return network.root(params, seen.embedding)

    return network._replace(unroll=unroll, heads=heads, root=root)
