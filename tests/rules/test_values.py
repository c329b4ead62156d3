"""Every recursion against the double loop it stands for, and the identities that tie them together."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from discorl.rules.values import (
    batched_gae,
    batched_retrace,
    batched_vtrace,
    explained_variance,
    gae,
    importance_ratio,
    retrace,
    vtrace,
)

T = 9
LAMBDA = 0.9


def stream(seed: int, ends: bool = True) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    draw = lambda *shape: rng.standard_normal(shape).astype(np.float32)  # noqa: E731
    alive = rng.random(T) > (0.3 if ends else -1)
    return {
        "r": draw(T),
        "gamma": (0.97 * alive).astype(np.float32),
        "v": draw(T + 1),
        "q": draw(T),
        "rho": np.exp(draw(T)).astype(np.float32),
    }


def retrace_slow(r, gamma, v, q, c):
    """One step of bootstrapping plus every later step's surprise, weighted by the traces on the way to it."""
    returns = np.zeros(len(r))
    for t in range(len(r)):
        weight, total = 1.0, r[t] + gamma[t] * v[t + 1]
        for s in range(t + 1, len(r)):
            weight *= gamma[s - 1] * c[s]
            total += weight * (r[s] + gamma[s] * v[s + 1] - q[s])
        returns[t] = total
    return returns


def vtrace_slow(r, gamma, v, rho, decay):
    clipped = np.minimum(1, rho)
    target = np.zeros(len(r))
    for t in range(len(r)):
        weight, total = 1.0, v[t]
        for s in range(t, len(r)):
            total += weight * clipped[s] * (r[s] + gamma[s] * v[s + 1] - v[s])
            weight *= gamma[s] * decay * clipped[s]
        target[t] = total
    advantage = np.zeros(len(r))
    for t in range(len(r)):
        after = target[t + 1] if t + 1 < len(r) else v[t + 1]
        advantage[t] = clipped[t] * (r[t] + gamma[t] * (decay * after + (1 - decay) * v[t + 1]) - v[t])
    return target, advantage


def gae_slow(r, gamma, v, decay):
    advantage = np.zeros(len(r))
    for t in range(len(r)):
        weight = 1.0
        for s in range(t, len(r)):
            advantage[t] += weight * (r[s] + gamma[s] * v[s + 1] - v[s])
            weight *= gamma[s] * decay
    return advantage


@pytest.mark.parametrize("seed", range(5))
def test_retrace_equals_its_sum(seed: int) -> None:
    x = stream(seed)
    c = LAMBDA * np.minimum(1, x["rho"])
    got = retrace(*map(jnp.asarray, (x["r"], x["gamma"], x["v"][1:], x["q"], c)))
    np.testing.assert_allclose(got, retrace_slow(x["r"], x["gamma"], x["v"], x["q"], c), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("seed", range(5))
def test_vtrace_equals_its_sum(seed: int) -> None:
    x = stream(seed)
    got = vtrace(jnp.asarray(x["r"]), jnp.asarray(x["gamma"]), jnp.asarray(x["v"]), jnp.asarray(x["rho"]), LAMBDA)
    target, advantage = vtrace_slow(x["r"], x["gamma"], x["v"], x["rho"], LAMBDA)
    np.testing.assert_allclose(got.target, target, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(got.advantage, advantage, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("seed", range(5))
def test_gae_equals_its_sum(seed: int) -> None:
    x = stream(seed)
    got = gae(jnp.asarray(x["r"]), jnp.asarray(x["gamma"]), jnp.asarray(x["v"]), LAMBDA)
    np.testing.assert_allclose(got, gae_slow(x["r"], x["gamma"], x["v"], LAMBDA), rtol=1e-5, atol=1e-5)


def test_without_traces_retrace_is_one_step_of_bootstrapping() -> None:
    x = stream(0)
    zero = np.zeros(T, np.float32)
    got = retrace(*map(jnp.asarray, (x["r"], x["gamma"], x["v"][1:], x["q"], zero)))
    np.testing.assert_allclose(got, x["r"] + x["gamma"] * x["v"][1:], rtol=1e-6, atol=1e-6)


def test_on_policy_vtrace_is_gae() -> None:
    x = stream(1)
    one = np.ones(T, np.float32)
    got = vtrace(jnp.asarray(x["r"]), jnp.asarray(x["gamma"]), jnp.asarray(x["v"]), jnp.asarray(one), LAMBDA)
    expected = gae_slow(x["r"], x["gamma"], x["v"], LAMBDA)
    np.testing.assert_allclose(got.target - x["v"][:-1], expected, rtol=1e-4, atol=1e-5)


def test_nothing_crosses_the_end_of_an_episode() -> None:
    x = stream(2, ends=False)
    x["gamma"][4] = 0
    changed = {k: v.copy() for k, v in x.items()}
    for name in ("r", "q", "rho"):
        changed[name][5:] += 10
    changed["v"][5:] += 10

    def returns(x):
        c = LAMBDA * np.minimum(1, x["rho"])
        return retrace(*map(jnp.asarray, (x["r"], x["gamma"], x["v"][1:], x["q"], c)))

    np.testing.assert_array_equal(returns(x)[:5], returns(changed)[:5])
    assert (returns(x)[5:] != returns(changed)[5:]).all()


@pytest.mark.parametrize("function", ["retrace", "vtrace", "gae"])
def test_streams_do_not_see_each_other(function: str) -> None:
    xs = [stream(s) for s in range(3)]
    both = {k: jnp.stack([x[k] for x in xs], axis=1) for k in xs[0]}
    if function == "retrace":
        arguments = lambda x: (x["r"], x["gamma"], x["v"][1:], x["q"], x["rho"])  # noqa: E731
        single, many = retrace, batched_retrace
    elif function == "vtrace":
        arguments = lambda x: (x["r"], x["gamma"], x["v"], x["rho"], LAMBDA)  # noqa: E731
        single, many = vtrace, batched_vtrace
    else:
        arguments = lambda x: (x["r"], x["gamma"], x["v"], LAMBDA)  # noqa: E731
        single, many = gae, batched_gae
    got = many(*arguments(both))
    for i, x in enumerate(xs):
        alone = single(*(jnp.asarray(a) if isinstance(a, np.ndarray) else a for a in arguments(x)))
        for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(alone), strict=True):
            np.testing.assert_allclose(a[:, i], b, rtol=1e-6, atol=1e-6)


def test_importance_ratio_is_one_on_policy_and_carries_no_gradient(key: jax.Array) -> None:
    logits = jax.random.normal(key, (4, 3, 5))
    action = jax.random.randint(key, (4, 3), 0, 5)
    np.testing.assert_allclose(importance_ratio(logits, logits, action), 1, rtol=1e-6)
    other = jax.random.normal(jax.random.key(1), (4, 3, 5))
    expected = np.take_along_axis(np.asarray(jax.nn.softmax(logits) / jax.nn.softmax(other)), action[..., None], -1)
    np.testing.assert_allclose(importance_ratio(logits, other, action), expected[..., 0], rtol=1e-5)
    assert not jax.grad(lambda x: importance_ratio(x, other, action).sum())(logits).any()


def test_explained_variance_is_one_for_a_prophet_and_zero_for_a_constant() -> None:
    target = jnp.asarray(np.random.default_rng(0).standard_normal((T, 4)), jnp.float32)
    for value, share in ((target + 3, 1.0), (jnp.full_like(target, 2), 0.0), (0.5 * target, 0.75)):
        np.testing.assert_allclose(explained_variance(target, target - value), share, atol=1e-5)
