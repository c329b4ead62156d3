"""The reference agent: flattened observations through a plain MLP."""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from discorl import nn
from discorl.envs.base import EnvSpec
from discorl.networks.assembly import assemble
from discorl.networks.base import AgentNetwork, Torso, feed_forward
from discorl.networks.observations import as_float
from discorl.types import Key, Needs, Observation


def mlp_torso(
    spec: EnvSpec, hidden: tuple[int, ...] = (512, 512), *, last: nn.Activation = lambda embedding: embedding
) -> Torso:
    """All entries of an observation, flattened and concatenated, through `hidden`; `last` follows the last layer."""
    inputs = sum(math.prod(x.shape) for x in jax.tree.leaves(spec.observation))

    def init(key: Key) -> tuple[nn.Linear, ...]:
        return nn.init_mlp(key, inputs, hidden)

    def apply(params: tuple[nn.Linear, ...], obs: Observation) -> Float[Array, "N E"]:
        leaves = [as_float(x, params[0].w.dtype).reshape(x.shape[0], -1) for x in jax.tree.leaves(obs)]
        return last(nn.mlp(params, jnp.concatenate(leaves, axis=-1)))

    return feed_forward(init, apply)


def mlp(
    spec: EnvSpec,
    needs: Needs,
    *,
    hidden: tuple[int, ...] = (512, 512),
    model_width: int = 128,
    head_hidden: tuple[int, ...] = (128,),
) -> AgentNetwork:
    """The reference agent; its default sizes are those of the published evaluation on Catch."""
    return assemble(mlp_torso(spec, hidden), spec, needs, model_width=model_width, head_hidden=head_hidden)
