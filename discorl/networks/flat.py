"""The same network with all its parameters in one vector.

What is done to every array of parameters alike, Adam for one, is then compiled once, which tells in a program that also
differentiates through Adam (docs/discovery-log.md).
"""

import jax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from discorl.errors import DiscorlError
from discorl.networks.base import AgentNetwork
from discorl.types import Key, Params

Vector = Float[Array, " N"]


def flat(network: AgentNetwork) -> AgentNetwork:
    if network.statistics is not None:
        raise DiscorlError("a network that keeps statistics among its parameters cannot have them in one vector")
    shapes = jax.eval_shape(network.init, jax.random.key(0))
    leaves, treedef = jax.tree.flatten(shapes)
    if len({leaf.dtype for leaf in leaves}) > 1:
        raise DiscorlError("parameters of several number types cannot be one vector")

    def unpack(vector: Vector | Params) -> Params:
        if not isinstance(vector, jax.Array):
            return vector
        # `split`, not slices: its transpose is one concatenation
        parts = jax.lax.split(vector, [leaf.size for leaf in leaves])
        return treedef.unflatten([part.reshape(leaf.shape) for part, leaf in zip(parts, leaves, strict=True)])

    def init(key: Key) -> Vector:
        return ravel_pytree(network.init(key))[0]

    return AgentNetwork(
        init=init,
        memory=network.memory,
        unroll=lambda params, *rest: network.unroll(unpack(params), *rest),
        heads=lambda params, *rest: network.heads(unpack(params), *rest),
        root=lambda params, *rest: network.root(unpack(params), *rest),
        model=lambda params, *rest: network.model(unpack(params), *rest),
        unpack=unpack,
    )
