"""Running mean and variance, kept over a lifetime, to bring advantages to one scale."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

ROOT_EPS = 1e-12  # inside √: keeps d√x/dx finite under meta-gradients
SCALE_EPS = 1e-6  # outside √: bounds the normalised value


class Moments(NamedTuple):
    """Exponential averages of x and x²; `decay_product` corrects for their start at zero."""

    first: Float[Array, ""]
    second: Float[Array, ""]
    decay_product: Float[Array, ""]


def fresh_moments() -> Moments:
    zero, one = jnp.zeros((), jnp.float32), jnp.ones((), jnp.float32)
    return Moments(first=zero, second=jnp.copy(zero), decay_product=one)


def update_moments(moments: Moments, x: Float[Array, "T B"], decay: float) -> Moments:
    return Moments(
        first=decay * moments.first + (1 - decay) * x.mean(),
        second=decay * moments.second + (1 - decay) * jnp.square(x).mean(),
        decay_product=decay * moments.decay_product,
    )


def normalise(moments: Moments, x: Float[Array, "*S"], *, centre: bool = True) -> Float[Array, "*S"]:
    """(x − mean)/σ; without `centre` the mean stays. Update first, then normalise with the new moments."""
    correction = 1 - moments.decay_product
    mean = moments.first / correction
    variance = jnp.maximum(0, moments.second / correction - jnp.square(mean))
    return (x - mean if centre else x) / (jnp.sqrt(variance + ROOT_EPS) + SCALE_EPS)
