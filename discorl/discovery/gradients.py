"""How to differentiate through an agent's updates: a strategy, given as an argument.

All of them are asked for the same thing, the gradient of a window's loss in η, and differ in cost:

    reverse      plain reverse mode: keeps everything that every update computed
    mixed        keeps parameters, inner gradients and digests, computes the rest again (Kemaev et al. 2025)
    evolution    no backward pass at all: perturbs η and looks what comes of it, for horizons of any length
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import Array, Float

from discorl.learner import KEPT, AgentLoss, LossGradient, reverse_gradient
from discorl.rules.base import Eta, Targets
from discorl.types import Key, Params, Rollout

SHORTEST = 3  # updates of a segment that is worth it


class WindowLoss(NamedTuple):
    """`loss` is for whoever differentiates; `score` is what it stands for, a number that is better when larger."""

    loss: Float[Array, ""]
    score: Float[Array, ""]


Update = Callable[[Any, None], tuple[Any, Any]]
Window = Callable[[Eta], tuple[WindowLoss, Any]]  # also returns whatever else came of it


class MetaGradient(NamedTuple):
    name: str
    inner: Callable[[AgentLoss], LossGradient]  # how an update differentiates the agent's loss
    update: Callable[[Callable], Callable]  # wraps each update of the window
    scan: Callable[[Update, Any, int], tuple[Any, Any]]  # makes so many updates: carry and rows, as `jax.lax.scan`
    outer: Callable[[Window, Eta, Key], tuple[Any, Eta]]  # -> what came of the window, its gradient


def backward(window: Window, eta: Eta, key: Key) -> tuple[Any, Eta]:
    """The gradient by a backward pass over the window."""
    del key

    def loss(eta: Eta) -> tuple[Array, Any]:
        value, rest = window(eta)
        return value.loss, rest

    grads, rest = jax.grad(loss, has_aux=True)(eta)
    return rest, grads


def reverse() -> MetaGradient:
    return MetaGradient(
        "reverse", inner=reverse_gradient, update=lambda update: update, scan=plain_scan, outer=backward
    )


def mixed() -> MetaGradient:
    """Mixed-mode differentiation with a checkpoint at every update (https://arxiv.org/abs/2505.00793)."""
    return MetaGradient(
        "mixed", inner=forward_over_reverse, update=_checkpointed, scan=scan_in_segments, outer=backward
    )


def plain_scan(update: Update, carry: Any, length: int) -> tuple[Any, Any]:
    return jax.lax.scan(update, carry, length=length)


def scan_in_segments(update: Update, carry: Any, length: int) -> tuple[Any, Any]:
    """Agents are kept at the start of every segment only; in between they are made again from their inner gradients."""
    size = max(n for n in range(1, math.isqrt(length) + 1) if length % n == 0)
    if size < SHORTEST:
        return plain_scan(update, carry, length)
    segment = _checkpointed(lambda carry: jax.lax.scan(update, carry, length=size))
    last, rows = jax.lax.scan(lambda carry, _: segment(carry), carry, length=length // size)
    return last, jax.tree.map(lambda x: x.reshape(length, *x.shape[2:]), rows)


def _checkpointed(function: Callable) -> Callable:
    policy = jax.checkpoint_policies.save_only_these_names(KEPT)
    return jax.checkpoint(function, policy=policy, prevent_cse=False)  # inside a scan there is nothing to merge


def forward_over_reverse(loss: AgentLoss) -> LossGradient:
    """A gradient whose own backward pass is one forward-mode product instead of a reverse pass over a reverse pass.

    Second derivatives are symmetric: the cotangent v of ∇θL gives ∇θ⟨v, ∇θL⟩ and ∇φ⟨v, ∇θL⟩, which are the
    directional derivatives of ∇θL and ∇φL along v. Targets φ must come in as arguments: what a closure brings would
    be taken for a constant.
    """

    def plain(params: Params, targets: Targets, rollout: Rollout) -> tuple[tuple[Array, Any], Params]:
        value, grads = jax.value_and_grad(loss, has_aux=True)(params, targets, rollout)
        return jax.lax.stop_gradient(value), jax.tree.map(lambda g: checkpoint_name(g, KEPT), grads)

    gradient = jax.custom_vjp(plain)

    def forward(params: Params, targets: Targets, rollout: Rollout) -> tuple[Any, tuple]:
        # `plain`: a checkpoint cannot look into a function with a derivative of its own and would compute it again
        return plain(params, targets, rollout), (params, targets, rollout)

    def back(saved: tuple, cotangent: tuple[Any, Params]) -> tuple[Params, Targets, None]:
        params, targets, rollout = saved
        _, along = cotangent  # loss and logs are for people: nobody differentiates them

        def both(params: Params) -> tuple[Params, Targets]:
            return jax.grad(lambda p, t: loss(p, t, rollout)[0], argnums=(0, 1))(params, targets)

        _, (by_params, by_targets) = jax.jvp(both, (params,), (along,))
        return by_params, by_targets, None

    gradient.defvjp(forward, back)
    return gradient


def evolution(sigma: float = 0.02, pairs: int = 4) -> MetaGradient:
    """Antithetic evolution strategies (Salimans et al. 2017, https://arxiv.org/abs/1703.03864).

    Both sides of a pair, and all pairs, live through the same chance events, so that their difference is η's doing.
    """

    def outer(window: Window, eta: Eta, key: Key) -> tuple[Any, Eta]:
        _, rest = window(eta)
        leaves, treedef = jax.tree.flatten(eta)

        def one(total: Eta, key: Key) -> tuple[Eta, None]:
            keys = jax.random.split(key, len(leaves))
            noise = [jax.random.normal(k, x.shape, x.dtype) for k, x in zip(keys, leaves, strict=True)]
            noise = jax.tree.unflatten(treedef, noise)
            plus, minus = (window(_shifted(eta, noise, size))[0].score for size in (sigma, -sigma))
            slope = (minus - plus) / (2 * sigma * pairs)  # of a loss: better is smaller
            return jax.tree.map(lambda t, n: t + slope * n, total, noise), None

        zero = jax.tree.map(jnp.zeros_like, eta)
        grads, _ = jax.lax.scan(one, zero, jax.random.split(key, pairs))
        return rest, grads

    return MetaGradient("evolution", inner=reverse_gradient, update=lambda update: update, scan=plain_scan, outer=outer)


def _shifted(eta: Eta, noise: Eta, size: float) -> Eta:
    return jax.tree.map(lambda x, n: x + size * n, eta, noise)
