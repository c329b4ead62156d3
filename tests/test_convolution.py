"""Convolutions and pooling against loops and XLA's own."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from discorl import convolution, nn


def test_convolution_equals_a_loop_over_cells(key: jax.Array) -> None:
    layer = nn.init_linears(key, [convolution.conv_size(2, 3)])[0]._replace(b=jnp.arange(3.0))
    x = jax.random.normal(key, (2, 4, 5, 2))
    padded, w = np.pad(np.asarray(x), ((0, 0), (1, 1), (1, 1), (0, 0))), np.asarray(layer.w)
    got = np.asarray(jax.jit(convolution.conv)(layer, x))
    for i, j in np.ndindex(4, 5):
        patch = padded[:, i : i + 3, j : j + 3].reshape(2, -1)  # rows, columns, channels: the order of the weights
        np.testing.assert_allclose(got[:, i, j], patch @ w + np.arange(3), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("piece", [convolution.PIECE, 2 * 6 * 5 * 9 * 2, 1])
def test_gradients_of_a_convolution_are_those_of_xlas_own(
    key: jax.Array, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(convolution, "PIECE", piece)
    for side, inputs, outputs in ((3, 2, 8), (2, 3, 4), (5, 1, 2), (3, 5, 2), (2, 3, 1)):
        layer = nn.init_linears(key, [convolution.conv_size(inputs, outputs, side)])[0]
        x, dy = jax.random.normal(key, (3, 6, 5, inputs)), jax.random.normal(jax.random.key(1), (3, 6, 5, outputs))

        def natively(w: jax.Array, x: jax.Array, side: int = side) -> jax.Array:
            kernel = w.reshape(side, side, x.shape[-1], -1)
            return jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))

        value, pull = jax.vjp(natively, layer.w, x)
        ours, pull_ours = jax.vjp(
            jax.jit(lambda w, x, layer=layer: convolution.conv(layer._replace(w=w), x)), layer.w, x
        )
        np.testing.assert_allclose(ours, value, rtol=1e-4, atol=1e-5)
        for got, wanted in zip(pull_ours(dy), pull(dy), strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)


def test_max_pool_equals_a_loop_over_windows() -> None:
    for height, width in ((8, 8), (5, 4), (1, 2)):
        x = np.random.default_rng(0).standard_normal((2, height, width, 3), np.float32) - 5  # padding must never win
        got = np.asarray(jax.jit(convolution.max_pool)(x))
        assert got.shape == (2, -(-height // 2), -(-width // 2), 3)
        for i, j in np.ndindex(*got.shape[1:3]):
            # an even size lacks one cell, at its end; an odd one lacks one on each side
            top, left = 2 * i - height % 2, 2 * j - width % 2
            window = x[:, max(0, top) : top + 3, max(0, left) : left + 3]
            np.testing.assert_array_equal(got[:, i, j], window.max(axis=(1, 2)))
