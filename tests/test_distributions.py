"""Categorical distributions and the value transform against their definitions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from discorl import distributions as d

BINS = d.ValueBins(601, 300.0)


def logits(*shape: int, seed: int = 0, scale: float = 3.0) -> jax.Array:
    return scale * jax.random.normal(jax.random.key(seed), shape)


def probabilities(x: jax.Array) -> np.ndarray:
    e = np.exp(np.asarray(x, np.float64) - np.max(x, -1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def test_entropy_and_kl_equal_their_sums() -> None:
    x, t = logits(5, 7, 11), logits(5, 7, 11, seed=1)
    p, q = probabilities(t), probabilities(x)
    np.testing.assert_allclose(d.entropy(x), -(q * np.log(q)).sum(-1), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(d.kl(t, x), (p * np.log(p / q)).sum(-1), rtol=1e-4, atol=1e-6)


def test_kl_is_zero_for_equal_distributions_and_its_gradient_is_the_difference() -> None:
    x, t = logits(4, 9), logits(4, 9, seed=1)
    np.testing.assert_allclose(d.kl(x, x + 5), 0, atol=2e-6)
    gradient = jax.grad(lambda x: d.kl(t, x).sum())(x)
    np.testing.assert_allclose(gradient, probabilities(x) - probabilities(t), rtol=1e-4, atol=1e-6)


def test_large_logits_do_not_overflow() -> None:
    x = jnp.array([[1e4, -1e4, 0.0]])
    assert jnp.isfinite(d.entropy(x)).all()
    assert jnp.isfinite(d.kl(x, -x)).all()
    assert jnp.isfinite(jax.grad(lambda x: d.kl(-x, x).sum())(x)).all()


def test_selection_takes_the_entry_of_the_action() -> None:
    x = logits(4, 3, 6)
    action = jax.random.randint(jax.random.key(2), (4, 3), 0, 6)
    expected = np.take_along_axis(np.asarray(x), np.asarray(action)[..., None], -1)[..., 0]
    np.testing.assert_array_equal(d.select(x, action), expected)


@pytest.mark.parametrize("value", [-250.0, -1.0, -0.1, 0.0, 0.3, 2.0, 77.0, 20_000.0])
def test_the_transform_and_its_inverse(value: float) -> None:
    there = d.signed_hyperbolic(jnp.float32(value))
    expected = np.sign(value) * (np.sqrt(abs(value) + 1) - 1) + 1e-3 * value
    np.testing.assert_allclose(there, expected, rtol=1e-6)
    np.testing.assert_allclose(d.signed_parabolic(there), value, rtol=1e-4, atol=2e-4)


@pytest.mark.parametrize("bins", [BINS, d.ValueBins(41, 20.0), d.ValueBins(11, 300.0)])
def test_two_hot_is_a_distribution_with_the_right_mean(bins: d.ValueBins) -> None:
    x = jnp.linspace(-1.2 * bins.limit, 1.2 * bins.limit, 97)
    weights = d.two_hot(x, bins)
    np.testing.assert_allclose(weights.sum(-1), 1, rtol=3e-6)
    assert ((weights > 0).sum(-1) <= 2).all()
    mean = weights @ bins.centres(x.dtype)
    np.testing.assert_allclose(mean, np.clip(x, -bins.limit, bins.limit), atol=2e-5 * bins.limit)


def test_a_scalar_on_a_bin_gets_all_its_weight() -> None:
    weights = d.two_hot(jnp.array([3.0, -300.0, 300.0]), BINS)
    np.testing.assert_array_equal(weights.argmax(-1), [303, 0, 600])
    np.testing.assert_array_equal(weights.max(-1), 1)


def test_value_of_a_two_hot_is_the_value() -> None:
    values = jnp.array([-7.5, 0.0, 0.4, 12.0])
    weights = d.two_hot(d.signed_hyperbolic(values), BINS)
    np.testing.assert_allclose(d.scalar_value(jnp.log(weights + 1e-30), BINS), values, rtol=1e-3, atol=1e-3)


def test_value_cross_entropy_equals_its_sum() -> None:
    q, target = logits(6, 601, scale=1.0), jnp.array([-3.0, 0.0, 0.2, 5.0, 40.0, 1e6])
    weights = np.asarray(d.two_hot(d.signed_hyperbolic(target), BINS), np.float64)
    expected = -(weights * np.log(probabilities(q))).sum(-1)
    np.testing.assert_allclose(d.value_cross_entropy(target, q, BINS), expected, rtol=1e-5)
