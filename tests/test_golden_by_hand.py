"""Actor-critic and the separate value function against figures recorded from the released code."""

from typing import Any

import golden
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from discorl import networks, nn
from discorl.learner import make_learner, see
from discorl.optim import Hypers
from discorl.rules.actor_critic import ActorCriticConfig, actor_critic
from discorl.rules.value_function import ValueFunctionConfig, init_value_function, update_value_function
from discorl.types import Experience

pytestmark = pytest.mark.golden


def close_value(got: Any, recorded: np.ndarray, largest: np.ndarray | None = None) -> None:
    """Behind h⁻¹; see test_golden.close_value."""
    error = np.abs(np.asarray(got) - recorded)
    size = np.abs(recorded) if largest is None else np.abs(largest).max()
    assert (error <= 2e-4 * np.sqrt(1 + size)).all(), error.max()


def test_two_updates_of_actor_critic() -> None:
    data = golden.load("actor_critic_a3")
    cfg = golden.config(data)
    asked = cfg["hyper_params"]
    config = ActorCriticConfig(
        discount=asked["discount_factor"],
        trace_decay=asked["vtrace_lambda"],
        policy_cost=asked["pg_cost"],
        value_cost=asked["value_cost"],
        entropy_cost=asked["entropy_cost"],
    )
    assert config == ActorCriticConfig()  # the released settings are the defaults
    rule = actor_critic(config)
    network = networks.mlp(golden.env_spec(data), rule.needs, hidden=tuple(cfg["dense"]))
    learner = make_learner(network, rule)
    state = learner.init(jax.random.key(0), jnp.zeros(cfg["obs_shape"]))
    state = state._replace(params=golden.agent_params(data, "agent_params"))
    for i in range(cfg["steps"]):
        recorded = {k.removeprefix(f"step{i}/"): v for k, v in data.items() if k.startswith(f"step{i}/")}
        rollout = golden.rollout(data, f"step{i}/rollout")
        view = see(network, rule, (), state.params, rollout)
        targets, _, _ = rule.targets((), state.rule, Experience(rollout, view, view))
        largest = recorded["meta_out/values"]
        close_value(targets.advantage, recorded["meta_out/raw_advs"], largest)
        close_value(targets.value, recorded["meta_out/value_target"], largest)
        state, info = jax.jit(learner.step)((), Hypers(learning_rate=cfg["lr"]), state, rollout)
        for ours, theirs in (
            (info.loss.entropy, "entropy"),
            (info.loss.logits, "logits"),
            (info.gradient_norm, "global_gradient_norm"),
            (info.update_norm, "global_update_norm"),
        ):
            np.testing.assert_allclose(ours, recorded[f"log/{theirs}"], rtol=1e-5, atol=1e-6)
        for ours, theirs in (
            (info.targets.value, "avg_value"),
            (info.targets.raw_advantage, "raw_advs"),
            (info.targets.advantage, "pg_advs"),
            (info.total_loss, "total_loss"),  # a mean of log π · advantage, so behind h⁻¹ too
        ):
            np.testing.assert_allclose(ours, recorded[f"log/{theirs}"], rtol=1e-5, atol=2e-4)
    errors = jax.tree.map(
        lambda a, b: np.abs(np.asarray(a - b)).max(), state.params, golden.agent_params(data, "final/params")
    )
    assert max(jax.tree.leaves(errors)) < 1e-4


def test_two_updates_of_the_value_function() -> None:
    """Recorded with the released alignment: a reward is paired with the action that was taken after it arrived."""
    data = golden.load("value_fn")

    def params(prefix: str) -> tuple[nn.Linear, ...]:
        names = (
            "~_embedding_pass/torso/~/linear_0",
            "~_embedding_pass/torso/~/linear_1",
            "~_head_pass/torso_head/~/linear_0",
        )
        return tuple(nn.Linear(*(jnp.asarray(data[f"{prefix}/value_fn/{n}/{p}"]) for p in "wb")) for n in names)

    config = ValueFunctionConfig(hidden=(16, 16), discount=0.99, trace_decay=0.96)
    state = init_value_function(jax.random.key(0), jnp.zeros(5), config)._replace(params=params("value_params"))
    for i in range(2):
        recorded = {k.removeprefix(f"step{i}/"): v for k, v in data.items() if k.startswith(f"step{i}/")}
        rollout = golden.rollout(data, f"step{i}/rollout")._replace(
            reward=jnp.asarray(recorded["rollout/rewards"][:-1]),
            discount=jnp.asarray(recorded["rollout/discounts"][:-1]),
        )
        state, got, loss = update_value_function(state, rollout, jnp.asarray(recorded["target_logits"]), config)
        np.testing.assert_allclose(loss, recorded["value_loss"], rtol=2e-5)
        largest = recorded["value_outs/value"]
        for ours, theirs in (("value", "value"), ("target", "value_target"), ("advantage", "adv"), ("td", "td")):
            close_value(getattr(got, ours), recorded[f"value_outs/{theirs}"], largest)
        for ours, theirs in (("normalised_advantage", "normalized_adv"), ("normalised_td", "normalized_td")):
            np.testing.assert_allclose(getattr(got, ours), recorded[f"value_outs/{theirs}"], rtol=1e-4, atol=1e-4)
        for moments, prefix in ((state.moments.advantage, "adv_ema"), (state.moments.td, "td_ema")):
            np.testing.assert_allclose(moments.first, recorded[f"{prefix}/moment1"], rtol=1e-5, atol=1e-5)
            np.testing.assert_allclose(moments.second, recorded[f"{prefix}/moment2"], rtol=1e-5, atol=1e-5)
    for got, expected in zip(jax.tree.leaves(state.params), jax.tree.leaves(params("final/value_params")), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)
