"""Adam as the agents of DiscoRL use it: clipped after normalising, and safe to differentiate through."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from discorl.types import Params


class Hypers(NamedTuple):
    """Numbers of an agent's optimizer. They stay traced, so that a sweep over them is a `vmap`."""

    learning_rate: float | Array = 3e-4
    max_update: float | Array = 1.0  # each element of Adam's update is clipped to ±this
    weight_decay: float | Array = 0.0  # decoupled: shrinks parameters, not gradients
    warmup: float | Array = 0.0  # updates until the learning rate is reached, on a straight line from 0
    decay: float | Array = jnp.inf  # updates until a half cosine has brought it to 0
    first_decay: float | Array = 0.9
    second_decay: float | Array = 0.999
    eps: float | Array = 1e-8


class AdamState(NamedTuple):
    first: PyTree[Array]
    second: PyTree[Array]
    steps: Int[Array, ""]


def init_adam(params: Params) -> AdamState:
    # two trees of zeros, not one twice: donated buffers must not alias
    first, second = (jax.tree.map(jnp.zeros_like, params) for _ in range(2))
    return AdamState(first=first, second=second, steps=jnp.zeros((), jnp.int32))


def scheduled_rate(hypers: Hypers, count: Int[Array, ""]) -> Float[Array, ""]:
    """The learning rate of update `count` (from 0): linear warm-up, then a half cosine."""
    done = count.astype(jnp.float32)
    up = jnp.clip((done + 1) / jnp.maximum(hypers.warmup, 1), 0, 1)
    down = 0.5 * (1 + jnp.cos(jnp.pi * jnp.clip(done / hypers.decay, 0, 1)))
    return hypers.learning_rate * up * down


def adam(grads: Params, state: AdamState, params: Params, hypers: Hypers) -> tuple[Params, AdamState]:
    """The change to add to `params`, and the next state.

        m ← β₁m + (1−β₁)g,  ν ← β₂ν + (1−β₂)g²,  Δ = −α·(clip(m̂/(√ν̂ + ε), ±max) + decay·θ)

    Kingma & Ba 2015 (https://arxiv.org/abs/1412.6980); decoupled decay after Loshchilov & Hutter 2019.
    """
    count = state.steps + 1
    b1, b2 = hypers.first_decay, hypers.second_decay
    first = jax.tree.map(lambda m, g: b1 * m + (1 - b1) * g, state.first, grads)
    second = jax.tree.map(lambda v, g: b2 * v + (1 - b2) * jnp.square(g), state.second, grads)
    fix_first, fix_second = (1 - jnp.power(jnp.float32(b), count.astype(jnp.float32)) for b in (b1, b2))
    rate = scheduled_rate(hypers, state.steps)

    def change(m: Array, v: Array, p: Array) -> Array:
        # The meta-gradient must not flow through the scale of an update: d√ν/dν blows up at ν ≈ 0.
        fix_m, fix_v, rate_p = (x.astype(p.dtype) for x in (fix_first, fix_second, rate))
        scale = jnp.sqrt(jax.lax.stop_gradient(v / fix_v)) + hypers.eps
        step = jnp.clip(m / fix_m / scale, -hypers.max_update, hypers.max_update)
        return (-rate_p * (step + hypers.weight_decay * p)).astype(p.dtype)

    return jax.tree.map(change, first, second, params), AdamState(first=first, second=second, steps=count)


def global_norm(tree: PyTree[Array]) -> Float[Array, ""]:
    return jnp.sqrt(sum(jnp.square(x).sum() for x in jax.tree.leaves(tree)))


def polyak(old: Params, new: Params, keep: float) -> Params:
    """Moves `old` a little towards `new`; `keep` = 1 never moves."""
    return jax.tree.map(lambda o, n: keep * o + (1 - keep) * n, old, new)
