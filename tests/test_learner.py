"""One update: compiled once, repeatable, and moving what it should."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import small

from discorl import networks
from discorl.envs.base import EnvSpec
from discorl.learner import make_learner, see
from discorl.optim import Hypers
from discorl.rules.actor_critic import actor_critic
from discorl.rules.base import UpdateRule
from discorl.rules.policy_gradient import policy_gradient

SPEC = EnvSpec("small", small.A, jax.ShapeDtypeStruct((small.OBS,), jnp.float32))
RULES = {"disco": lambda: small.small().rule, "actor_critic": actor_critic, "policy_gradient": policy_gradient}


@pytest.fixture(params=RULES)
def rule(request: pytest.FixtureRequest) -> UpdateRule:
    return RULES[request.param]()


def test_the_second_call_does_not_trace_again(rule: UpdateRule, key: jax.Array) -> None:
    learner = make_learner(networks.mlp(SPEC, rule.needs, hidden=(4,), model_width=3, head_hidden=(3,)), rule)
    traces = []
    step = jax.jit(lambda *args: (traces.append(1), learner.step(*args))[1])
    eta, state = rule.init(key), learner.init(key, jnp.zeros(small.OBS))
    for seed in range(3):
        state, info = step(eta, Hypers(1e-2), state, small.rollout(seed))
        assert jnp.isfinite(info.total_loss)
    assert len(traces) == 1
    assert int(state.optimizer.steps) == 3


def test_compiled_and_not_compiled_agree() -> None:
    case = small.small()
    learner = make_learner(case.network, case.rule)
    one, _ = learner.step(case.eta, Hypers(1e-3), case.state, case.rollout)
    two, _ = jax.jit(learner.step)(case.eta, Hypers(1e-3), case.state, case.rollout)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), one.rule, two.rule)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), one.optimizer.first, two.optimizer.first
    )


def test_target_parameters_follow_the_parameters_of_before_the_update() -> None:
    case = small.small()
    learner = make_learner(case.network, case.rule)
    after, _ = learner.step(case.eta, Hypers(1e-2), case.state, case.rollout)
    expected = jax.tree.map(lambda t, p: 0.9 * t + 0.1 * p, case.state.target_params, case.state.params)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), after.target_params, expected)


def test_rules_without_a_target_network_carry_none(key: jax.Array) -> None:
    rule = actor_critic()
    learner = make_learner(networks.mlp(SPEC, rule.needs, hidden=(4,)), rule)
    assert learner.init(key, jnp.zeros(small.OBS)).target_params == ()


def test_streamed_actions_equal_all_actions_at_once() -> None:
    case = small.small()
    view = see(case.network, case.rule, case.eta, case.state.params, case.rollout)
    embedding, _ = case.network.unroll(case.state.params, (), case.rollout.obs, case.rollout.first)
    root = case.network.root(case.state.params, embedding)

    def digest(action):
        return case.rule.digest(case.eta, case.network.model(case.state.params, root, action))

    at_once = jax.vmap(digest, out_axes=2)(jnp.arange(small.A))
    np.testing.assert_allclose(view.actions.q, at_once.q, rtol=1e-5, atol=2e-4)  # behind h⁻¹
    for name in ("z_trajectory", "z_lifetime"):
        np.testing.assert_allclose(getattr(view.actions, name), getattr(at_once, name), rtol=1e-5, atol=1e-6)


def test_acting_touches_no_model_head() -> None:
    """Whoever acts may be given parameters without a model."""
    case = small.small()
    params = case.state.params._replace(model=())
    embedding, _ = case.network.unroll(params, (), case.rollout.obs, case.rollout.first)
    assert case.network.heads(params, embedding).logits.shape == (small.T + 1, small.B, small.A)
