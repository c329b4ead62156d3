"""Observations of several entries: each through an encoder of its own, then together."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from discorl import nn
from discorl.envs.base import EnvSpec
from discorl.errors import DiscorlError, near_matches
from discorl.networks.base import Torso, embedding_width, feed_forward
from discorl.networks.impala import impala_torso
from discorl.networks.mlp import mlp_torso
from discorl.networks.observations import entries, looks_like_image
from discorl.types import Key, Memory, Observation, Params

Encoder = Callable[[EnvSpec], Torso]  # of an environment that observes this entry only


class EncodersParams(NamedTuple):
    entries: tuple[Params, ...]
    joint: tuple[nn.Linear, ...]


def encoders(
    spec: EnvSpec,
    *,
    hidden: tuple[int, ...] = (256,),
    image: Encoder = impala_torso,
    vector: Encoder | None = None,
    own: Mapping[str, Encoder] | None = None,
) -> Torso:
    """One encoder per entry, chosen by its shape or given by its name in `own`; then joint layers of widths `hidden`.

    Images go through `image`; vectors, single numbers, flags and small matrices through `vector`. The name of a nested
    entry is its path, 'robot/arm'; entries of a tuple are '0', '1', ...
    """
    vector = vector or (lambda entry: mlp_torso(entry, hidden))
    parts = entries(spec)
    own = own or {}
    for name in own:
        if name not in parts:
            raise DiscorlError(f"{spec.name!r} observes no entry {name!r}; {near_matches(name, parts)}")

    def chosen(name: str, entry: EnvSpec) -> Torso:
        return own.get(name, image if looks_like_image(entry.observation.shape) else vector)(entry)

    torsos = [chosen(name, entry) for name, entry in parts.items()]
    widths = [embedding_width(torso, entry) for torso, entry in zip(torsos, parts.values(), strict=True)]

    def init(key: Key) -> EncodersParams:
        *keys, key_joint = jax.random.split(key, len(torsos) + 1)
        made = tuple(torso.init(k) for torso, k in zip(torsos, keys, strict=True))
        return EncodersParams(entries=made, joint=nn.init_mlp(key_joint, sum(widths), hidden))

    def memory(batch: int) -> Memory:
        return tuple(torso.memory(batch) for torso in torsos)

    def unroll(
        params: EncodersParams, memory: Memory, obs: Observation, first: Bool[Array, "T B"]
    ) -> tuple[Float[Array, "T B E"], Memory]:
        each = zip(torsos, params.entries, memory, jax.tree.leaves(obs), strict=True)
        outputs = [torso.unroll(p, m, leaf, first) for torso, p, m, leaf in each]
        embedding = jnp.concatenate([e for e, _ in outputs], axis=-1)
        # activations on both sides: heads are linear, and entries must be able to change each other's meaning
        joined = jax.nn.relu(nn.mlp(params.joint, jax.nn.relu(embedding)))
        return joined, tuple(m for _, m in outputs)

    return Torso(init=init, memory=memory, unroll=unroll)


def one_hot(classes: int, width: int = 32) -> Encoder:
    """An encoder for integers 0 … classes − 1 that are names rather than amounts; each gets an embedding."""

    def build(entry: EnvSpec) -> Torso:
        dtype = entry.observation.dtype
        if not jnp.issubdtype(dtype, jnp.integer):
            raise DiscorlError(f"one_hot encodes integers, but {entry.name!r} observes {dtype}")
        count = max(1, entry.observation.size)

        def apply(params: nn.Linear, obs: Array) -> Float[Array, "N E"]:
            hot = jax.nn.one_hot(obs.reshape(obs.shape[0], count), classes, dtype=params.w.dtype)
            return nn.linear(params, hot.reshape(obs.shape[0], count * classes))

        return feed_forward(lambda key: nn.init_linear(key, count * classes, width), apply)

    return build
