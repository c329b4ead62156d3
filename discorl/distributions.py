"""Categorical distributions given by logits, and scalars written as categorical distributions."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

ILLEGAL = -1e9  # logit of an action that is not allowed; finite, so that 0·logit is 0
HYPERBOLIC_EPS = 1e-3  # the linear part that keeps h invertible with a bounded slope
TWO_HOT_EPS = 1e-5  # a scalar on a bin makes upper = lower; this keeps the weight finite (and puts all on the upper)


def log_prob(logits: Float[Array, "*S A"], action: Int[Array, "*S"]) -> Float[Array, "*S"]:
    return select(jax.nn.log_softmax(logits), action)


def select(x: Float[Array, "*S A"], action: Int[Array, "*S"]) -> Float[Array, "*S"]:
    """The entry of the taken action. A masked sum: on CPU it fuses, and its gradient needs no scatter."""
    return jnp.where(one_hot(action, x.shape[-1]), x, 0).sum(-1)


def only_legal(x: Float[Array, "*S A"], logits: Float[Array, "*S A"]) -> Float[Array, "*S A"]:
    """`x`, as logits, with the actions ruled out that `logits` rule out."""
    return jnp.where(logits > ILLEGAL / 2, x, ILLEGAL)


def one_hot(index: Int[Array, "*S"], size: int) -> Bool[Array, "*S size"]:
    return index[..., None] == jax.lax.broadcasted_iota(index.dtype, (*index.shape, size), index.ndim)


class Softmax(NamedTuple):
    """P(logits) = weights / total, not yet divided: often the division can wait until little is left to divide."""

    weights: Float[Array, "*S A"]  # exp(logits − peak)
    total: Float[Array, "*S"]
    peak: Float[Array, "*S"]


def softmax(logits: Float[Array, "*S A"]) -> Softmax:
    # the peak cancels out: it is there against overflow, not for gradients
    peak = jax.lax.stop_gradient(logits.max(-1))
    weights = jnp.exp(logits - peak[..., None])
    return Softmax(weights=weights, total=weights.sum(-1), peak=peak)


def log_sum_exp(logits: Float[Array, "*S A"]) -> Float[Array, "*S"]:
    _, total, peak = softmax(logits)
    return jnp.log(total) + peak


def entropy(logits: Float[Array, "*S A"]) -> Float[Array, "*S"]:
    """H = log Σe − Σ e·(x − peak)/Σe."""
    weights, total, peak = softmax(logits)
    return jnp.log(total) - (weights * (logits - peak[..., None])).sum(-1) / total


def kl(
    target: Float[Array, "*S A"], logits: Float[Array, "*S A"], normaliser: Float[Array, "*S"] | None = None
) -> Float[Array, "*S"]:
    """KL(P(target) ‖ P(logits)) = Σ p·(t − x) − lse(t) + lse(x), both given as logits.

    Written so that its gradient in x is P(x) − p at the price of one exponential per entry; none if the caller has
    lse(x) already and gives it as `normaliser`.
    """
    weights, total, peak = softmax(target)
    p = weights / total[..., None]
    normaliser = log_sum_exp(logits) if normaliser is None else normaliser
    return (p * (target - logits)).sum(-1) - (jnp.log(total) + peak) + normaliser


def signed_log(x: Float[Array, "*S"]) -> Float[Array, "*S"]:
    return jnp.sign(x) * jnp.log1p(jnp.abs(x))


def signed_hyperbolic(x: Float[Array, "*S"]) -> Float[Array, "*S"]:
    """h(x) = sign(x)(√(|x|+1) − 1) + εx. Pohlen et al. 2018 (https://arxiv.org/abs/1805.11593)."""
    return jnp.sign(x) * (jnp.sqrt(jnp.abs(x) + 1) - 1) + HYPERBOLIC_EPS * x


def signed_parabolic(x: Float[Array, "*S"]) -> Float[Array, "*S"]:
    """h⁻¹, the inverse of `signed_hyperbolic`.

    In float32 the difference cancels: the result is good to about 2e-4·√(1+|x|), with a bias of 1e-4 near 0. The order
    of operations is the one Disco103 was trained with, so that its bias is the same.
    """
    eps = HYPERBOLIC_EPS
    root = jnp.sqrt(1 + 4 * eps * (eps + 1 + jnp.abs(x))) / 2 / eps - 1 / 2 / eps
    return jnp.sign(x) * (jnp.square(root) - 1)


class ValueBins(NamedTuple):
    """K equal bins on [−limit, limit] of signed-hyperbolic space; static, not an array."""

    size: int
    limit: float

    @property
    def spacing(self) -> float:
        return 2 * self.limit / (self.size - 1)

    def centres(self, dtype: jnp.dtype) -> Float[Array, " K"]:
        return jnp.linspace(-self.limit, self.limit, self.size, dtype=dtype)


def scalar_value(logits: Float[Array, "*S K"], bins: ValueBins) -> Float[Array, "*S"]:
    """h⁻¹(Σ_k p_k·bin_k)."""
    weights, total, _ = softmax(logits)
    return signed_parabolic(weights @ bins.centres(logits.dtype) / total)


def two_hot(x: Float[Array, "*S"], bins: ValueBins) -> Float[Array, "*S K"]:
    """Two neighbouring bins share the weight of `x`, which is already in signed-hyperbolic space."""
    position = (jnp.clip(x, -bins.limit, bins.limit) + bins.limit) / bins.spacing
    lower, upper = jnp.floor(position), jnp.ceil(position)
    low = bins.spacing * (upper - position) / (bins.spacing * (upper - lower) + TWO_HOT_EPS)
    edges = (one_hot(edge.astype(jnp.int32), bins.size) for edge in (lower, upper))
    at_lower, at_upper = (edge.astype(x.dtype) for edge in edges)
    return at_lower * low[..., None] + at_upper * (1 - low[..., None])


def value_cross_entropy(
    target: Float[Array, "*S"],
    logits: Float[Array, "*S K"],
    bins: ValueBins,
    normaliser: Float[Array, "*S"] | None = None,
) -> Float[Array, "*S"]:
    """CE(two-hot(h(target)), logits); the two-hot weights add up to 1, so one pass over the logits is enough.

    `normaliser` as in `kl`.
    """
    weights = two_hot(signed_hyperbolic(target), bins)
    normaliser = log_sum_exp(logits) if normaliser is None else normaliser
    return normaliser - (weights * logits).sum(-1)
