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


def test_gru_step_equals_its_equations() -> None:
    rng = np.random.default_rng(0)
    from_input, from_hidden, hidden = (rng.standard_normal((4, n)) for n in (9, 9, 3))
    reset = sigmoid(from_input[:, :3] + from_hidden[:, :3])
    keep = sigmoid(from_input[:, 3:6] + from_hidden[:, 3:6] + 1)
    new = np.tanh(from_input[:, 6:] + reset * from_hidden[:, 6:])
    got = jax.jit(nn.gru_gates)(*(x.astype(np.float32) for x in (from_input, from_hidden, hidden)))
    np.testing.assert_allclose(got, keep * hidden + (1 - keep) * new, rtol=1e-5, atol=1e-6)
