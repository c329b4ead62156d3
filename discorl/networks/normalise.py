"""Vectors brought to mean 0 and deviation 1 by statistics that the agent keeps of all it has seen."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from discorl.envs.base import EnvSpec
from discorl.errors import DiscorlError
from discorl.networks.base import AgentNetwork, Statistics
from discorl.types import Key, Memory, Observation, Params

VARIANCE_EPS = 1e-6  # what hardly moves is not blown up
LIMIT = 10.0  # deviations; what lies further out is cut


class Running(NamedTuple):
    """Of every component, over all observations so far."""

    samples: Float[Array, ""]
    mean: Float[Array, "*S"]
    variance: Float[Array, "*S"]


class NormalisedParams(NamedTuple):
    statistics: tuple[Running, ...]  # one per entry that is normalised, in the order of leaves
    network: Params


def fresh_running(shape: tuple[int, ...]) -> Running:
    """Before anything was seen numbers pass as they are."""
    return Running(jnp.zeros((), jnp.float32), jnp.zeros(shape, jnp.float32), jnp.ones(shape, jnp.float32))


def update_running(old: Running, x: Float[Array, "T B *S"]) -> Running:
    """Joins the moments of two sets:  σ² = (n₁σ₁² + n₂σ₂² + (μ₂ − μ₁)² n₁n₂/n) / n.

    Chan, Golub & LeVeque 1983, written with variances rather than sums of squares, which would outgrow float32.
    """
    new = x.shape[0] * x.shape[1]
    samples = old.samples + new
    share = new / samples
    off = x.mean(axis=(0, 1)) - old.mean
    variance = (1 - share) * old.variance + share * (x.var(axis=(0, 1)) + (1 - share) * jnp.square(off))
    return Running(samples=samples, mean=old.mean + share * off, variance=variance)


def apply_running(running: Running, x: Float[Array, "T B *S"]) -> Float[Array, "T B *S"]:
    mean, variance = running.mean[None, None], running.variance[None, None]
    return jnp.clip((x - mean) * jax.lax.rsqrt(variance + VARIANCE_EPS), -LIMIT, LIMIT)


def normalised(network: AgentNetwork, spec: EnvSpec) -> AgentNetwork:
    """The network behind a running normalisation of every vector of floats; images and integers pass as they are."""
    leaves = jax.tree.leaves(spec.observation)
    chosen = [jnp.issubdtype(x.dtype, jnp.floating) and len(x.shape) <= 1 for x in leaves]
    if not any(chosen):
        raise DiscorlError(f"{spec.name!r} observes no vectors of floats: there is nothing to normalise, leave it out")

    def vectors(obs: Observation) -> list[Array]:
        return [x for x, wanted in zip(jax.tree.leaves(obs), chosen, strict=True) if wanted]

    def init(key: Key) -> NormalisedParams:
        fresh = tuple(fresh_running(x.shape) for x, wanted in zip(leaves, chosen, strict=True) if wanted)
        return NormalisedParams(statistics=fresh, network=network.init(key))

    def unroll(params: NormalisedParams, memory: Memory, obs: Observation, first: Array) -> tuple[Array, Memory]:
        # statistics follow the data: the loss must not bend them
        running = iter(jax.lax.stop_gradient(params.statistics))
        flat, treedef = jax.tree.flatten(obs)
        seen = [apply_running(next(running), x) if wanted else x for x, wanted in zip(flat, chosen, strict=True)]
        return network.unroll(params.network, memory, jax.tree.unflatten(treedef, seen), first)

    def update(params: NormalisedParams, obs: Observation) -> NormalisedParams:
        each = zip(params.statistics, vectors(obs), strict=True)
        return params._replace(statistics=tuple(update_running(old, x) for old, x in each))

    return AgentNetwork(
        init=init,
        memory=network.memory,
        unroll=unroll,
        heads=lambda params, embedding: network.heads(params.network, embedding),
        root=lambda params, embedding: network.root(params.network, embedding),
        model=lambda params, root, action: network.model(params.network, root, action),
        statistics=Statistics(update=update, share=lambda of, into: into._replace(statistics=of.statistics)),
    )
