"""Layers against loops written out."""

import jax
import jax.numpy as jnp
import numpy as np

from discorl import nn


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def test_backward_lstm_equals_stepping_from_the_end(key: jax.Array) -> None:
    steps, batch, inputs, width = 9, 4, 3, 5  # 9 is no multiple of the loop's stride
    k1, k2, k3 = jax.random.split(key, 3)
    params = nn.init_lstm(k1, inputs, width)._replace(b=jax.random.normal(k3, (4 * width,)))
    x = jax.random.normal(k2, (steps, batch, inputs))
    reset = jax.random.bernoulli(k3, 0.3, (steps, batch))
    got = nn.lstm_unroll_backwards(params, x, reset)

    w, b = np.asarray(params.w, np.float64), np.asarray(params.b, np.float64)
    hidden, cell = np.zeros((batch, width)), np.zeros((batch, width))
    for t in reversed(range(steps)):
        for n in range(batch):
            if reset[t, n]:
                hidden[n] = cell[n] = 0
        gates = np.concatenate([np.asarray(x[t], np.float64), hidden], axis=1) @ w + b
        i, g, f, o = np.split(gates, 4, axis=1)
        cell = sigmoid(f + 1) * cell + sigmoid(i) * np.tanh(g)
        hidden = sigmoid(o) * np.tanh(cell)
        np.testing.assert_allclose(got[t], hidden, rtol=1e-5, atol=1e-5)


def test_linear_layers_on_any_leading_axes(key: jax.Array) -> None:
    layer = nn.init_linear(key, 4, 3)._replace(b=jnp.arange(3.0))
    x = jax.random.normal(key, (2, 5, 4))
    np.testing.assert_allclose(nn.linear(layer, x), np.asarray(x) @ np.asarray(layer.w) + np.arange(3), rtol=1e-5)
    np.testing.assert_allclose(nn.linear(layer, x[0, 0]), nn.linear(layer, x)[0, 0], rtol=1e-6)


def test_mlp_has_activations_between_layers_only(key: jax.Array) -> None:
    layers = nn.init_mlp(key, 4, (6, 2))
    x = jax.random.normal(key, (3, 4))
    hidden = np.maximum(0, np.asarray(x @ layers[0].w))
    np.testing.assert_allclose(nn.mlp(layers, x), hidden @ np.asarray(layers[1].w), rtol=1e-5, atol=1e-6)
    assert (nn.mlp(layers, x) < 0).any()


def test_initial_weights_are_truncated_and_scaled_by_fan_in(key: jax.Array) -> None:
    layer = nn.init_linear(key, 400, 50)
    assert float(jnp.abs(layer.w).max()) <= 2 / 20
    np.testing.assert_allclose(layer.w.std(), 0.88 / 20, rtol=0.05)  # 0.88: what truncation leaves of a deviation
    assert not layer.b.any()


def test_convolution_equals_a_loop_over_cells(key: jax.Array) -> None:
    layer = nn.init_linears(key, [nn.conv_size(2, 3)])[0]._replace(b=jnp.arange(3.0))
    x = jax.random.normal(key, (2, 4, 5, 2))
    padded, w = np.pad(np.asarray(x), ((0, 0), (1, 1), (1, 1), (0, 0))), np.asarray(layer.w)
    got = np.asarray(jax.jit(nn.conv)(layer, x))
    for i, j in np.ndindex(4, 5):
        patch = padded[:, i : i + 3, j : j + 3].reshape(2, -1)  # rows, columns, channels: the order of the weights
        np.testing.assert_allclose(got[:, i, j], patch @ w + np.arange(3), rtol=1e-5, atol=1e-5)


def test_gradients_of_a_convolution_are_those_of_xlas_own(key: jax.Array) -> None:
    for side, inputs, outputs in ((3, 2, 8), (2, 3, 4), (5, 1, 2)):
        layer = nn.init_linears(key, [nn.conv_size(inputs, outputs, side)])[0]
        x, dy = jax.random.normal(key, (2, 6, 5, inputs)), jax.random.normal(jax.random.key(1), (2, 6, 5, outputs))

        def natively(w: jax.Array, x: jax.Array, side: int = side) -> jax.Array:
            kernel = w.reshape(side, side, x.shape[-1], -1)
            return jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))

        value, pull = jax.vjp(natively, layer.w, x)
        ours, pull_ours = jax.vjp(jax.jit(lambda w, x, layer=layer: nn.conv(layer._replace(w=w), x)), layer.w, x)
        np.testing.assert_allclose(ours, value, rtol=1e-4, atol=1e-5)
        for got, wanted in zip(pull_ours(dy), pull(dy), strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)


def test_max_pool_equals_a_loop_over_windows() -> None:
    for height, width in ((8, 8), (5, 4), (1, 2)):
        x = np.random.default_rng(0).standard_normal((2, height, width, 3), np.float32) - 5  # padding must never win
        got = np.asarray(jax.jit(nn.max_pool)(x))
        assert got.shape == (2, -(-height // 2), -(-width // 2), 3)
        for i, j in np.ndindex(*got.shape[1:3]):
            # an even size lacks one cell, at its end; an odd one lacks one on each side
            top, left = 2 * i - height % 2, 2 * j - width % 2
            window = x[:, max(0, top) : top + 3, max(0, left) : left + 3]
            np.testing.assert_array_equal(got[:, i, j], window.max(axis=(1, 2)))


def test_gru_step_equals_its_equations() -> None:
    rng = np.random.default_rng(0)
    from_input, from_hidden, hidden = (rng.standard_normal((4, n)) for n in (9, 9, 3))
    reset = sigmoid(from_input[:, :3] + from_hidden[:, :3])
    keep = sigmoid(from_input[:, 3:6] + from_hidden[:, 3:6] + 1)
    new = np.tanh(from_input[:, 6:] + reset * from_hidden[:, 6:])
    got = jax.jit(nn.gru_gates)(*(x.astype(np.float32) for x in (from_input, from_hidden, hidden)))
    np.testing.assert_allclose(got, keep * hidden + (1 - keep) * new, rtol=1e-5, atol=1e-6)
