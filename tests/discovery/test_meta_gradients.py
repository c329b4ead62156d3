"""Meta-gradients of a tiny window: two ways to compute them, finite differences, and what must and must not flow."""

from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import small

from discorl.discovery import gradients
from discorl.discovery.gradients import MetaGradient, WindowLoss
from discorl.discovery.objective import ObjectiveConfig
from discorl.discovery.window import OuterConfig, Student, make_judge
from discorl.optim import Hypers
from discorl.rules.meta_network import MetaParams
from discorl.rules.value_function import ValueFunctionConfig, init_value_function

OUTER = OuterConfig(
    # weights large enough that no part of the loss hides behind another
    ObjectiveConfig(policy_entropy=0.1, prediction_entropy=0.1, target_mean=0.1, target_kl=0.1),
    ValueFunctionConfig(hidden=(4,), learning_rate=1e-2),
)
UPDATES = 3


def window_loss(gradient: MetaGradient, *parts: range) -> Callable[..., jax.Array]:
    """A window without an environment: the outer loss as a function of η, the student and its rollouts.

    Its updates are made in as many scans as it has parts, as windows that overlap are.
    """
    parts = parts or (range(UPDATES),)
    case = small.small()
    judge = make_judge(case.network, case.rule, OUTER, gradient)

    def loss(eta: MetaParams, student: Student, rollouts: Any, validation: Any) -> jax.Array:
        def update(student: Student, index: jax.Array) -> tuple[Student, Any]:
            batch = jax.tree.map(lambda x: x[index], rollouts)
            return judge.update(index, eta, Hypers(learning_rate=3e-2), student, batch)

        regularizers = []
        for updates in parts:
            student, infos = gradient.scan(update, student, updates)
            regularizers.append(infos.regularizer)
        return judge.judge(student, validation, jnp.concatenate(regularizers).mean())[0]

    return loss


@cache
def arguments(updates: int = UPDATES) -> tuple:
    case = small.small()
    value = init_value_function(jax.random.key(5), jnp.zeros(small.OBS), OUTER.value)
    rollouts = jax.tree.map(lambda *x: jnp.stack(x), *(small.rollout(seed) for seed in range(updates)))
    return case.eta, Student(case.state, value), rollouts, small.rollout(9)


def in_float64(function: Callable, *args: Any) -> Any:
    with jax.enable_x64(True):
        return jax.device_get(jax.jit(function)(*small.as_float64(args)))


def test_mixed_mode_equals_plain_reverse_mode() -> None:
    in_segments = gradients.SHORTEST**2
    parts = range(in_segments), range(in_segments, in_segments + 2)  # and then in one piece
    reverse, mixed = (
        in_float64(jax.grad(window_loss(g, *parts)), *arguments(in_segments + 2))
        for g in (gradients.reverse(), gradients.mixed())
    )
    for at, expected in jax.tree_util.tree_leaves_with_path(reverse):
        got = dict((jax.tree_util.keystr(p), x) for p, x in jax.tree_util.tree_leaves_with_path(mixed))
        scale = np.abs(expected).max()
        name = jax.tree_util.keystr(at)
        np.testing.assert_allclose(got[name], expected, rtol=1e-9, atol=1e-9 * scale, err_msg=name)
        assert scale > 0, f"no meta-gradient reaches {name}"


def test_against_finite_differences(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is stopped on purpose would differ, so nothing is stopped here: the chain of updates is what is checked."""
    monkeypatch.setattr(jax.lax, "stop_gradient", lambda x: x)
    loss = window_loss(gradients.mixed())
    rng = np.random.default_rng(1)
    with jax.enable_x64(True):
        eta, student, *rest = small.as_float64(arguments())
        rest = [_mid_life(student), *rest]
        direction = jax.tree.map(lambda x: jnp.asarray(rng.standard_normal(x.shape)), eta)
        step = 1e-6
        shifted = [jax.tree.map(lambda x, d, s=s: x + s * step * d, eta, direction) for s in (1, -1)]
        program = jax.jit(jax.value_and_grad(loss))
        plus, minus = (float(program(x, *rest)[0]) for x in shifted)
        gradient = program(eta, *rest)[1]
        slope = sum(float(jnp.vdot(g, d)) for g, d in zip(*map(jax.tree.leaves, (gradient, direction)), strict=True))
    assert slope == pytest.approx((plus - minus) / (2 * step), rel=1e-5)
    assert abs(slope) > 1e-3


def _mid_life(student: Student) -> Student:
    """Adam's root has no slope at 0, where a newborn's gradients of dead units lie."""
    used = lambda adam: adam._replace(second=jax.tree.map(lambda x: x + 0.01, adam.second))  # noqa: E731
    learner = student.learner._replace(optimizer=used(student.learner.optimizer))
    return Student(learner, student.value._replace(optimizer=used(student.value.optimizer)))


@pytest.mark.parametrize("gradient", [gradients.reverse(), gradients.mixed()], ids=lambda g: g.name)
def test_what_must_not_flow(gradient: MetaGradient) -> None:
    """Experience is fact: no gradient goes through rewards, behaviour, the judging value function, or values q."""
    loss = window_loss(gradient, range(1, UPDATES))  # in mid-window: before it, nothing would flow into the student

    def of(student: Student, rewards: jax.Array, behaviour: jax.Array, judged: jax.Array) -> jax.Array:
        eta, _, rollouts, validation = arguments()
        rollouts = rollouts._replace(reward=rewards, behaviour_logits=behaviour)
        return loss(eta, student, rollouts, validation._replace(reward=judged))

    _, student, rollouts, validation = arguments()
    inputs = student, rollouts.reward, rollouts.behaviour_logits, validation.reward
    by_student, *by_facts = jax.jit(jax.grad(of, argnums=(0, 1, 2, 3), allow_int=True))(*inputs)
    for got in by_facts:
        assert not np.any(got)
    assert not any(np.any(x) for x in jax.tree.leaves(by_student.value.params))
    assert not any(np.any(x) for x in jax.tree.leaves(by_student.learner.rule.moments))
    assert not any(np.any(x) for x in jax.tree.leaves(by_student.learner.optimizer.second))
    # the slow network is seen through its predictions only
    assert not np.any(by_student.learner.target_params.logits.w)
    assert not any(np.any(x) for x in jax.tree.leaves(by_student.learner.target_params.model.q))
    assert np.any(by_student.learner.target_params.y.w)
    assert np.any(by_student.learner.rule.lifetime.hidden)
    assert all(np.any(x) for x in jax.tree.leaves(by_student.learner.optimizer.first.torso))


def test_the_agent_before_a_window_gets_no_gradient_that_costs_something() -> None:
    """The target network of before is only looked at: all that flows into it flows through what the rule sees."""

    def by_target(gradient: MetaGradient, at: int) -> Any:
        grad = jax.grad(window_loss(gradient, range(at, at + 1)), argnums=1, allow_int=True)
        return in_float64(lambda *args: grad(*args).learner.target_params.y.w, *arguments())

    expected = by_target(gradients.reverse(), 1)
    assert np.any(expected)
    np.testing.assert_allclose(by_target(gradients.mixed(), 1), expected, rtol=1e-9, atol=1e-9 * np.abs(expected).max())
    assert not np.any(by_target(gradients.mixed(), 0))


def test_sparing_them_is_a_branch_for_all_agents_together() -> None:
    """Were an update's index a number of each agent's, both sides would be computed and one thrown away."""
    eta, student, rollouts, validation = arguments()
    two = jax.tree.map(lambda x: jnp.stack([x, x]), student)
    window = jax.vmap(jax.grad(window_loss(gradients.mixed())), in_axes=(None, 0, None, None))
    text = str(jax.make_jaxpr(window)(eta, two, rollouts, validation))
    assert text.count(" cond[") == 9  # of the loss; of torso, heads, root and model, of both sets of parameters


def test_only_what_a_function_looks_at_is_differentiated() -> None:
    params = {"copied": jnp.ones(1), "ignored": jnp.ones(2), "multiplied": jnp.ones(3), "other": jnp.ones(4)}
    used, rest, join = gradients.split_used(lambda p: (p["copied"], 2 * p["multiplied"]), params)
    assert [x.size for x in used] == [1, 3]
    assert [x.size for x in rest] == [2, 4]
    put_together = join(used, rest)
    assert {name: x.size for name, x in put_together.items()} == {
        "copied": 1,
        "ignored": 2,
        "multiplied": 3,
        "other": 4,
    }


def test_a_branch_returns_no_zeros_for_the_rest_of_a_network() -> None:
    case = small.small()
    seen = gradients.constant_at_first(jnp.int32(1), case.network)
    embedding, _ = case.network.unroll(case.state.params, (), case.rollout.obs, case.rollout.first)
    slope = jax.grad(lambda params: seen.heads(params, embedding).y.sum())
    program = jax.make_jaxpr(slope)(case.state.params)
    returned = [len(equation.outvars) for equation in program.eqns if equation.primitive.name == "cond"]
    assert returned == [5]  # weights and bias of y, those of the logits, the embedding


def test_evolution_points_downhill() -> None:
    """On a quadratic the estimate is unbiased and exact up to its sampling noise."""
    centre = {"a": jnp.arange(3.0), "b": jnp.ones((2, 2))}

    def window(eta: Any) -> tuple[WindowLoss, str]:
        loss = sum(jnp.square(x - c).sum() for x, c in zip(*map(jax.tree.leaves, (eta, centre)), strict=True))
        return WindowLoss(loss=loss, score=-loss), "what came of it"

    eta = jax.tree.map(jnp.zeros_like, centre)
    rest, got = gradients.evolution(sigma=0.1, pairs=4000).outer(window, eta, jax.random.key(0))
    assert rest == "what came of it"
    for g, c in zip(*map(jax.tree.leaves, (got, centre)), strict=True):
        np.testing.assert_allclose(g, -2 * c, atol=0.6)


def test_reference_alignment_pays_an_action_for_what_came_before_it() -> None:
    from discorl.discovery.window import value_rollout

    rollout = small.rollout(3)
    assert value_rollout(rollout, "correct") is rollout
    late = value_rollout(rollout, "reference")
    np.testing.assert_array_equal(late.reward, rollout.reward[:-1])
    np.testing.assert_array_equal(late.discount, rollout.discount[:-1])
    np.testing.assert_array_equal(late.action, rollout.action[1:])
    np.testing.assert_array_equal(late.obs, rollout.obs[1:])


def test_mixed_mode_does_not_compute_inner_gradients_twice() -> None:
    """They are saved: without that, the backward pass would begin by making them again."""
    case = small.small()
    kept = count_products(case, gradients.mixed())
    again = count_products(case, gradients.mixed()._replace(update=jax.checkpoint))
    assert kept < again, (kept, again)


def count_products(case: small.Small, gradient: MetaGradient) -> int:
    """Products of matrices that the compiler is left with."""
    judge = make_judge(case.network, case.rule, OUTER, gradient)
    _, student, rollouts, validation = arguments()

    def loss(eta: MetaParams) -> jax.Array:
        first = jax.tree.map(lambda x: x[0], rollouts)
        after, info = judge.update(jnp.int32(1), eta, Hypers(learning_rate=3e-2), student, first)
        return judge.judge(after, validation, info.regularizer)[0]

    return str(jax.make_jaxpr(jax.grad(loss))(case.eta)).count("dot_general")
