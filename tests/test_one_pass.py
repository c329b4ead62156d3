"""Targets and gradient come from one forward pass: the same numbers as from two."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import small

from discorl import nn
from discorl.learner import agent_loss, make_learner, say, see, see_others
from discorl.optim import Hypers
from discorl.types import Experience


def close(one, two, rtol: float = 1e-5, atol: float = 1e-6) -> None:
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=rtol, atol=atol), one, two)


def test_the_view_is_the_same_in_either_order_of_actions() -> None:
    """One visits actions from the first on, the other from the taken one."""
    case = small.small()
    given = case.network, case.rule, case.eta, case.state.params, case.rollout
    one = see(*given)
    said, root = say(case.network, case.rule, case.state.params, case.rollout)
    two = see_others(*given, said, root)
    assert len(np.unique(case.rollout.action)) > 1
    close((one.logits, one.y), (two.logits, two.y))
    close(one.actions._replace(q=()), two.actions._replace(q=()))
    close(one.actions.q, two.actions.q, atol=2e-4)  # behind h⁻¹


@pytest.mark.parametrize("mask", ["reference", "all"])
def test_the_gradient_of_a_step_is_that_of_the_loss(mask: str) -> None:
    case = small.small()
    learner = make_learner(case.network, case.rule, mask)
    after, info = learner.step(case.eta, Hypers(), case.state, case.rollout)
    online, target = (
        see(case.network, case.rule, case.eta, p, case.rollout) for p in (case.state.params, case.state.target_params)
    )
    targets, *_ = case.rule.targets(case.eta, case.state.rule, Experience(case.rollout, online, target))
    loss = jax.value_and_grad(agent_loss, argnums=3, has_aux=True)
    (total, _), grads = loss(case.network, case.rule, mask, case.state.params, targets, case.rollout)
    close(info.total_loss, total, rtol=1e-4)
    before = case.state.optimizer.first
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, before, grads)
    close(after.optimizer.first, first, rtol=1e-3, atol=1e-6)
    assert max(jnp.abs(g).max() for g in jax.tree.leaves(grads)) > 1e-3


@pytest.mark.parametrize("outputs", [1, nn.NARROW - 1, nn.NARROW])
def test_narrow_products_are_products(outputs: int, key: jax.Array) -> None:
    x, w = jax.random.normal(key, (3, 4, 5)), jax.random.normal(key, (5, outputs))

    def loss(product):
        return jax.grad(lambda x, w: jnp.sin(product(x, w)).sum(), argnums=(0, 1))(x, w)

    close(nn.product(x, w), x @ w)
    close(jax.jit(lambda: loss(nn.product))(), loss(jnp.matmul))
    several = jax.vmap(nn.product, in_axes=(None, 0))(x, jnp.stack([w, 2 * w]))
    close(several, jnp.stack([x @ w, 2 * (x @ w)]))
