"""What a discovered rule must not depend on, what gradients may pass through it, and finite differences."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import small

from discorl.learner import agent_loss, loss_mask, make_learner, say, see
from discorl.optim import Hypers
from discorl.rules.disco import DiscoTargets, disco
from discorl.rules.meta_network import from_arrays, init_meta_network, to_arrays
from discorl.types import Experience, Rollout


def targets_of(case: small.Small, rollout: Rollout) -> tuple[DiscoTargets, Any]:
    @jax.jit
    def run(eta, state, rollout):
        online, target = (see(case.network, case.rule, eta, p, rollout) for p in (state.params, state.target_params))
        return case.rule.targets(eta, state.rule, Experience(rollout, online, target))[:2]

    return run(case.eta, case.state, rollout)


def close(a: Any, b: Any, tolerance: float = 2e-5) -> None:
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance), a, b)


@pytest.mark.parametrize("actions", [2, 3, 6])
def test_renaming_actions_renames_the_policy_target_and_nothing_else(actions: int) -> None:
    case = small.small(actions=actions)
    order = np.random.default_rng(1).permutation(actions)
    inverse = np.argsort(order)

    def renamed(params):
        """The same agent, whose action i is now called inverse[i]."""
        model = params.model
        rows = jnp.concatenate([model.lstm.w[:actions][order], model.lstm.w[actions:]])
        last = model.aux_pi[-1]
        aux_pi = (*model.aux_pi[:-1], last._replace(w=last.w[:, order], b=last.b[order]))
        logits = params.logits._replace(w=params.logits.w[:, order], b=params.logits.b[order])
        return params._replace(logits=logits, model=model._replace(lstm=model.lstm._replace(w=rows), aux_pi=aux_pi))

    state = case.state._replace(params=renamed(case.state.params), target_params=renamed(case.state.target_params))
    rollout = case.rollout._replace(
        action=jnp.asarray(inverse, jnp.int32)[case.rollout.action],
        behaviour_logits=case.rollout.behaviour_logits[..., order],
    )
    before, after_before = targets_of(case, case.rollout)
    after, after_after = targets_of(case._replace(state=state), rollout)
    close(after.pi, before.pi[..., order])
    close((after.y, after.z, after.value, after_after), (before.y, before.z, before.value, after_before))


def test_the_weight_of_entropy_is_in_the_loss_of_every_step() -> None:
    case = small.small()
    said, _ = say(case.network, case.rule, case.state.params, case.rollout)
    targets, _ = targets_of(case, case.rollout)
    plain, _ = case.rule.loss(*said, targets, case.rollout)
    weighted, _ = disco(replace(small.CONFIG, entropy_cost=0.3)).loss(*said, targets, case.rollout)
    policy = np.asarray(jax.nn.softmax(said.state.logits[:-1]), np.float64)
    close(weighted, plain + 0.3 * (policy * np.log(policy)).sum(-1))


def test_reordering_trajectories_reorders_targets() -> None:
    case = small.small()
    order = jnp.array([2, 0, 3, 1])
    shuffled = jax.tree.map(lambda x: x[:, order], case.rollout)
    before, state_before = targets_of(case, case.rollout)
    after, state_after = targets_of(case, shuffled)
    close(after, jax.tree.map(lambda x: x[:, order], before))
    close(state_after, state_before)


def test_the_same_batch_twice_is_the_same_update() -> None:
    case = small.small()
    learner = make_learner(case.network, case.rule)
    twice = jax.tree.map(lambda x: jnp.concatenate([x, x], axis=1), case.rollout)
    step = jax.jit(learner.step)
    one, _ = step(case.eta, Hypers(learning_rate=1e-3), case.state, case.rollout)
    two, _ = step(case.eta, Hypers(learning_rate=1e-3), case.state, twice)
    close(two.rule, one.rule)
    close(two.optimizer.first, one.optimizer.first)


def test_the_future_reaches_back_but_not_past_the_end_of_an_episode() -> None:
    case = small.small()
    alive = case.rollout._replace(discount=jnp.ones_like(case.rollout.discount).at[2].set(0))
    changed = alive._replace(reward=alive.reward.at[4].add(3.0))
    before, _ = targets_of(case, alive)
    after, _ = targets_of(case, changed)
    # moments see the whole batch, so compare what does not pass through them: the value target
    np.testing.assert_array_equal(before.value[:3], after.value[:3])
    assert (before.value[3:] != after.value[3:]).all()


FLOWS = [
    ("eta", True),  # discovery differentiates this
    ("online.y", True),
    ("online.actions.z_trajectory", True),
    ("online.actions.z_lifetime", False),  # shapes the lifetime state only, not this update's targets
    ("target.y", True),
    ("target.actions.z_trajectory", True),
    ("online.logits", False),
    ("target.logits", False),
    ("online.actions.q", False),
    ("target.actions.q", False),
    ("rollout.behaviour_logits", False),
    ("rule.lifetime", True),
    ("rule.moments", False),
]


@pytest.mark.parametrize(("source", "flows"), FLOWS)
def test_what_receives_gradient_from_the_targets(source: str, flows: bool) -> None:
    case = small.small()
    experience = Experience(
        case.rollout,
        see(case.network, case.rule, case.eta, case.state.params, case.rollout),
        see(case.network, case.rule, case.eta, case.state.target_params, case.rollout),
    )
    inputs = {"eta": case.eta, "rule": case.state.rule, **experience._asdict()}
    weights = small.rollout(seed=9).reward[..., None]  # equal weights would hide what only moves mass around

    def total(part: Any) -> jax.Array:
        given = _replaced(inputs, source.split("."), part)
        seen = Experience(given["rollout"], given["online"], given["target"])
        targets, _, _ = case.rule.targets(given["eta"], given["rule"], seen)
        return sum((weights * x).sum() for x in (targets.pi, targets.y, targets.z)) + targets.value.sum()

    part = _found(inputs, source.split("."))
    size = sum(float(jnp.abs(g).sum()) for g in jax.tree.leaves(jax.jit(jax.grad(total))(part)))
    assert (size > 0) == flows


def _found(tree: Any, path: list[str]) -> Any:
    for name in path:
        tree = tree[name] if isinstance(tree, dict) else getattr(tree, name)
    return tree


def _replaced(tree: Any, path: list[str], part: Any) -> Any:
    if not path:
        return part
    inner = _replaced(_found(tree, path[:1]), path[1:], part)
    return tree | {path[0]: inner} if isinstance(tree, dict) else tree._replace(**{path[0]: inner})


@pytest.mark.parametrize("mask", ["reference", "all"])
def test_agent_gradient_equals_finite_differences(mask: Any) -> None:
    case = small.small(seed=3)
    # without a next state there is no auxiliary loss, whose target moves with the policy but passes no gradient
    ended = case.rollout._replace(discount=jnp.zeros_like(case.rollout.discount))
    float32_targets, _ = targets_of(case, ended)
    rng, h = np.random.default_rng(0), 1e-6
    with jax.enable_x64(True):
        params, rollout, targets = small.as_float64((case.state.params, ended, float32_targets))

        @jax.jit
        def loss(params):
            return agent_loss(case.network, case.rule, mask, params, targets, rollout)[0]

        gradient = jax.jit(jax.grad(loss))(params)
        for _ in range(5):
            direction = jax.tree.map(lambda p: jnp.asarray(rng.standard_normal(p.shape)), params)
            forward, backward = (
                loss(jax.tree.map(lambda p, d, s=sign: p + s * h * d, params, direction)) for sign in (1, -1)
            )
            analytic = sum(jax.tree.leaves(jax.tree.map(lambda g, d: (g * d).sum(), gradient, direction)))
            np.testing.assert_allclose(analytic, (forward - backward) / (2 * h), rtol=1e-6, atol=1e-9)


def test_only_the_taken_action_receives_gradient_in_the_model() -> None:
    case = small.small()
    rollout = case.rollout._replace(action=jnp.ones_like(case.rollout.action))
    targets, _ = targets_of(case, rollout)

    @jax.jit
    def gradients(params):
        return jax.grad(agent_loss, argnums=3, has_aux=True)(case.network, case.rule, "all", params, targets, rollout)

    gradient, _ = gradients(case.state.params)
    rows = jnp.abs(gradient.model.lstm.w[: small.A]).sum(-1)
    np.testing.assert_array_equal(rows > 0, [False, True, False])


def test_reference_mask_drops_first_steps_only() -> None:
    rollout = small.rollout()
    np.testing.assert_array_equal(loss_mask(rollout, "reference"), ~np.asarray(rollout.first[:-1]))
    np.testing.assert_array_equal(loss_mask(rollout, "all"), 1)


def test_arrays_and_parameters_are_inverse(key: jax.Array) -> None:
    params = init_meta_network(key, small.CONFIG)
    arrays = to_arrays(params, small.CONFIG)
    jax.tree.map(np.testing.assert_array_equal, from_arrays(arrays, small.CONFIG), params)
    assert arrays["lstm/sequential/conv1_d/w"].ndim == 3  # the published kernel axis


def test_a_newborn_rule_has_the_published_scales(key: jax.Array) -> None:
    eta = disco().init(key)
    assert 0.2 < float(eta.y.w.std()) < 0.3  # 0.3, truncated at two deviations
    assert 0.8 < float(eta.gate.w.std()) < 1.0
    assert not eta.gate.b.any()
    assert 0.8 < float(eta.encoders.y[0].w.std() * 600**0.5) < 1.0
