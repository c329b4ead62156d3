"""Adam against a loop in NumPy; schedules; what gradients may pass through an update."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from discorl.optim import AdamState, Hypers, adam, global_norm, init_adam, polyak, scheduled_rate


def adam_slow(params, grads, hypers, rates):
    params, m, v = params.astype(np.float64), 0.0, 0.0
    for t, (g, rate) in enumerate(zip(grads, rates, strict=True), start=1):
        m = 0.9 * m + 0.1 * g
        v = 0.999 * v + 0.001 * g**2
        step = (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
        step = np.clip(step, -hypers.max_update, hypers.max_update)
        params = params - rate * (step + hypers.weight_decay * params)
    return params


@pytest.mark.parametrize("hypers", [Hypers(1e-2), Hypers(1e-2, max_update=0.3), Hypers(1e-2, weight_decay=0.1)])
def test_adam_equals_its_equations(hypers: Hypers) -> None:
    rng = np.random.default_rng(0)
    start = rng.standard_normal(7).astype(np.float32)
    grads = rng.standard_normal((6, 7)).astype(np.float32)
    params = {"w": jnp.asarray(start)}
    state = init_adam(params)
    for g in grads:
        change, state = adam({"w": jnp.asarray(g)}, state, params, hypers)
        params = jax.tree.map(jnp.add, params, change)
    expected = adam_slow(start, grads, hypers, [1e-2] * 6)
    np.testing.assert_allclose(params["w"], expected, rtol=1e-5, atol=1e-6)


def test_clipping_comes_after_adam() -> None:
    """A tiny gradient still makes a full step: its size is not what is clipped."""
    params = {"w": jnp.zeros(2)}
    change, _ = adam({"w": jnp.array([1e-3, 1e3])}, init_adam(params), params, Hypers(1.0, max_update=0.5))
    np.testing.assert_allclose(change["w"], [-0.5, -0.5], rtol=1e-5)


@pytest.mark.parametrize(("update", "expected"), [(0, 0.025), (1, 0.05), (3, 0.1), (50, 0.05), (100, 0.0), (200, 0.0)])
def test_warm_up_then_half_a_cosine(update: int, expected: float) -> None:
    hypers = Hypers(learning_rate=0.1, warmup=4, decay=100)
    np.testing.assert_allclose(scheduled_rate(hypers, jnp.int32(update)), expected, atol=3e-4)


def test_without_a_schedule_the_rate_stays() -> None:
    for update in (0, 1, 10**6):
        np.testing.assert_allclose(scheduled_rate(Hypers(0.1), jnp.int32(update)), 0.1, rtol=1e-6)


def test_no_gradient_passes_through_the_denominator() -> None:
    """d(update)/d(gradient) is that of the numerator alone."""
    params = {"w": jnp.zeros(3)}
    g = jnp.array([0.5, -2.0, 1e-4])

    def update(g):
        return adam({"w": g}, init_adam(params), params, Hypers(1.0, max_update=10.0))[0]["w"].sum()

    np.testing.assert_allclose(jax.grad(update)(g), -1 / jnp.abs(g), rtol=1e-3)


def test_initial_moments_do_not_share_memory() -> None:
    state: AdamState = init_adam({"w": jnp.ones(3)})
    assert state.first["w"].unsafe_buffer_pointer() != state.second["w"].unsafe_buffer_pointer()


def test_polyak_and_norm() -> None:
    old, new = {"w": jnp.array([1.0, 2.0])}, {"w": jnp.array([3.0, 0.0])}
    np.testing.assert_allclose(polyak(old, new, 0.9)["w"], [1.2, 1.8], rtol=1e-6)
    np.testing.assert_allclose(global_norm({"a": jnp.array([3.0]), "b": jnp.array([4.0])}), 5, rtol=1e-6)
