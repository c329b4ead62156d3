"""Convolutions and pooling of images. XLA's own are slow on CPU, most of all their gradients inside of loops."""

import functools
import itertools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from discorl import nn

PIECE = 2**19  # numbers: 2 MB, which a core's cache holds

_Gradient = Callable[[Array, Array, Array], tuple[Array, Array]]  # of weights, images and outputs


def conv_size(inputs: int, outputs: int, side: int = 3) -> nn.LinearSize:
    """A convolution is a linear layer on patches of `side`² cells, so that all weights of a network are one draw."""
    return nn.LinearSize(side * side * inputs, outputs)


def conv(params: nn.Linear, x: Float[Array, "N H W I"]) -> Float[Array, "N H W O"]:
    """Convolution with stride 1 on zero-padded images; the side of the patches follows from the sizes."""
    return nn.add_bias(_convolve(params.w, x), params.b)


def _side(w: Array, x: Array) -> int:
    return math.isqrt(w.shape[0] // x.shape[-1])


def _convolve_natively(w: Float[Array, "P O"], x: Float[Array, "N H W I"]) -> Float[Array, "N H W O"]:
    side = _side(w, x)
    kernel = w.reshape(side, side, x.shape[-1], -1)
    return jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def _convolve_by_products(w: Array, x: Array) -> Array:
    """One product of row segments with the kernel's rows side by side, then a sum of its parts, each shifted by a row.

    Copies are as many times the images as a kernel has rows, not cells, and the product is wider than the outputs.
    """
    side, width = _side(w, x), x.shape[2]
    padded = _pad(x, side)
    segments = jnp.concatenate([padded[:, :, column : column + width] for column in range(side)], -1)
    parts = nn.product(segments, jnp.concatenate(jnp.split(w, side), 1))
    return _sum_of_shifted(parts, x, [(row, 0) for row in range(side)])


def _convolve_narrowing(w: Array, x: Array) -> Array:
    """The same for many inputs and few outputs: the kernel's cells side by side, so that no image is copied."""
    side = _side(w, x)
    parts = nn.product(_pad(x, side), jnp.concatenate(jnp.split(w, side**2), 1))
    return _sum_of_shifted(parts, x, [*itertools.product(range(side), range(side))])


def _pad(x: Array, side: int) -> Array:
    pad = ((side - 1) // 2, side // 2)
    return jnp.pad(x, ((0, 0), pad, pad, (0, 0)))


def _sum_of_shifted(parts: Array, x: Array, shifts: list[tuple[int, int]]) -> Array:
    height, width = x.shape[1:3]
    each = zip(jnp.split(parts, len(shifts), -1), shifts, strict=True)
    return functools.reduce(jnp.add, [part[:, i : i + height, j : j + width] for part, (i, j) in each])


_convolve = jax.custom_vjp(_convolve_natively)


def _convolve_saving(w: Array, x: Array) -> tuple[Array, tuple[Array, Array]]:
    return _convolve(w, x), (w, x)


def _convolve_backward(saved: tuple[Array, Array], dy: Array) -> tuple[Array, Array]:
    """On CPU from products: inside of a loop XLA makes gradients of convolutions by naive code, 20 × slower and more.

    They are made anew from the images, so that their shifted copies need not be kept.
    """
    narrowing = saved[1].shape[-1] > dy.shape[-1]
    by_products = _few_at_a_time(_gradient(_convolve_narrowing)) if narrowing else _gradient(_convolve_by_products)
    return jax.lax.platform_dependent(*saved, dy, cpu=by_products, default=_gradient(_convolve_natively))


def _gradient(convolve: Callable[[Array, Array], Array]) -> _Gradient:
    return lambda w, x, dy: jax.vjp(convolve, w, x)[1](dy)


def _few_at_a_time(gradient: _Gradient) -> _Gradient:
    """In pieces whose products stay in the processor's cache."""

    def in_pieces(w: Array, x: Array, dy: Array) -> tuple[Array, Array]:
        count, height, width, _ = x.shape
        products = count * height * width * (w.size // x.shape[-1])
        size = -(-count // -(-products // PIECE))
        pieces = -(-count // size)

        def split(images: Array) -> Array:
            full = jnp.pad(images, ((0, pieces * size - count), *[(0, 0)] * 3))
            return full.reshape(pieces, size, *images.shape[1:])

        def add(dw: Array, piece: tuple[Array, Array]) -> tuple[Array, Array]:
            more, dx = gradient(w, *piece)
            return dw + more, dx

        dw, dx = jax.lax.scan(add, jnp.zeros_like(w), (split(x), split(dy)))
        return dw, dx.reshape(-1, *x.shape[1:])[:count]

    return in_pieces


_convolve.defvjp(_convolve_saving, _convolve_backward)


def max_pool(x: Float[Array, "N H W C"], window: int = 3, stride: int = 2) -> Float[Array, "N H2 W2 C"]:
    """Maximum over windows, padded so that ⌈size / stride⌉ are left; first along columns, then along rows.

    As a maximum of slices: the gradient of `reduce_window` makes a whole residual torso up to twice as slow on CPU.
    """
    for axis in (1, 2):
        size = x.shape[axis]
        left = -(-size // stride)
        missing = max(0, (left - 1) * stride + window - size)
        pads = [(0, 0)] * 4
        pads[axis] = (missing // 2, missing - missing // 2)
        padded = jnp.pad(x, pads, constant_values=-jnp.inf)
        last = (left - 1) * stride + 1
        slices = [jax.lax.slice_in_dim(padded, i, i + last, stride, axis) for i in range(window)]
        x = functools.reduce(jnp.maximum, slices)
    return x
