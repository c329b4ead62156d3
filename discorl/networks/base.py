"""The contract of an agent's network, and the check that one keeps it."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from discorl.envs.base import EnvSpec
from discorl.errors import DiscorlError
from discorl.types import ActionOutput, Key, Memory, Needs, Observation, Params, StateOutput

Embedding = Any
Root = Any


class Statistics(NamedTuple):
    """Numbers among the parameters that follow the data instead of a gradient; no business of the optimizer's."""

    update: Callable[[Params, Observation], Params]  # parameters that have also seen these [T, B, ...]
    share: Callable[[Params, Params], Params]  # the second parameters with the statistics of the first


class AgentNetwork(NamedTuple):
    """A network as pure functions; its model is written for one given action.

    That makes the cheap things cheap: `root` holds what does not depend on the action and is computed once, acting
    touches neither root nor model, and the loss differentiates the taken action only.
    """

    init: Callable[[Key], Params]
    memory: Callable[[int], Memory]  # batch size -> memory at birth; () if feed-forward
    unroll: Callable[
        [Params, Memory, Observation, Bool[Array, "T B"]], tuple[Embedding, Memory]
    ]  # [T, B, ...] in time order
    heads: Callable[[Params, Embedding], StateOutput]
    root: Callable[[Params, Embedding], Root]
    model: Callable[[Params, Root, Int[Array, "*S"]], ActionOutput]  # actions [T, B], or one for all: []
    statistics: Statistics | None = None
    # parameters as all functions here understand them too, but quicker: whoever calls several does this first
    unpack: Callable[[Params], Params] = lambda params: params


class Torso(NamedTuple):
    """What a user brings at least: observations to embeddings. Recurrent ones carry a memory."""

    init: Callable[[Key], Params]
    memory: Callable[[int], Memory]
    unroll: Callable[[Params, Memory, Observation, Bool[Array, "T B"]], tuple[Float[Array, "T B E"], Memory]]


def feed_forward(init: Callable[[Key], Params], apply: Callable[[Params, Observation], Float[Array, "N E"]]) -> Torso:
    """A torso from a plain function of a batch of observations `[N, ...]`."""

    def unroll(params: Params, memory: Memory, obs: Observation, first: Array) -> tuple[Array, Memory]:
        leading = first.shape
        flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), obs)
        embedding = apply(params, flat)
        return embedding.reshape(*leading, *embedding.shape[1:]), memory

    return Torso(init=init, memory=lambda batch: (), unroll=unroll)


def example_observation(spec: EnvSpec, *batch: int) -> Observation:
    """Shapes of a batch of observations, for `eval_shape`."""
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct((*batch, *x.shape), x.dtype), spec.observation)


def embedding_width(torso: Torso, spec: EnvSpec) -> int:
    """Traces the torso once; its embedding must be [T, B, E]."""
    steps, batch = 2, 3

    def embed(key: Key, obs: Observation, first: Array) -> Array:
        return torso.unroll(torso.init(key), torso.memory(batch), obs, first)[0]

    first = jax.ShapeDtypeStruct((steps, batch), jnp.bool_)
    key = jax.eval_shape(lambda: jax.random.key(0))
    try:
        out = jax.eval_shape(embed, key, example_observation(spec, steps, batch), first)
    except (TypeError, ValueError) as error:
        raise DiscorlError(f"the torso does not run on the observations of {spec.name!r}: {error}") from error
    shape = getattr(out, "shape", None)
    if shape is None or len(shape) != 3 or shape[:2] != (steps, batch):
        raise DiscorlError(f"the torso must emit one vector per observation, [T, B, E] = [2, 3, E], but emits {shape}")
    return shape[-1]


def is_recurrent(network: AgentNetwork) -> bool:
    return bool(jax.tree.leaves(jax.eval_shape(lambda: network.memory(1))))


def check_network(network: AgentNetwork, spec: EnvSpec, needs: Needs) -> None:
    """Raises with both sides in the text if the network does not emit what the rule needs. Runs nothing."""
    steps, batch = 2, 3
    first = jax.ShapeDtypeStruct((steps, batch), jnp.bool_)
    actions = jax.ShapeDtypeStruct((steps, batch), jnp.int32)

    def outputs(key: Key, obs: Observation, first: Array, action: Array) -> tuple:
        params = network.init(key)
        embedding, memory = network.unroll(params, network.memory(batch), obs, first)
        model = network.model(params, network.root(params, embedding), action) if needs.model else None
        return network.heads(params, embedding), model, network.memory(batch), memory

    key = jax.eval_shape(lambda: jax.random.key(0))
    try:
        state, action, before, after = jax.eval_shape(
            outputs, key, example_observation(spec, steps, batch), first, actions
        )
    except (TypeError, ValueError) as error:
        raise DiscorlError(
            f"the network does not run on observations {_shapes(spec.observation)} of {spec.name!r}: {error}"
        ) from error
    if _shapes(before) != _shapes(after):
        raise DiscorlError(
            f"the network's memory must keep its shape, but it is {_shapes(before)} before and {_shapes(after)} after"
        )
    wanted = {"logits": (spec.num_actions,), "y": (needs.y,)}
    emitted = state._asdict()
    if needs.model:
        wanted |= {"z": (needs.z,), "q": (needs.q,), "aux_pi": (spec.num_actions,)}
        emitted |= action._asdict()
    got = {name: emitted[name].shape[2:] for name in wanted}
    if got != wanted:
        raise DiscorlError(f"the network emits {_row(got)}, but the rule needs {_row(wanted)} for {spec.name!r}")


def _shapes(tree: Any) -> str:
    return str(jax.tree.map(lambda x: x.shape, tree))


def _row(shapes: dict[str, tuple[int, ...]]) -> str:
    return ", ".join(f"{name} {list(shape)}" for name, shape in shapes.items())
