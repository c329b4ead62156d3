"""Policy gradient with a value function of its own, written by hand."""

from dataclasses import dataclass
from typing import NamedTuple

import jax
from jaxtyping import Array, Float

from discorl.distributions import entropy, log_prob, signed_parabolic
from discorl.rules.base import UpdateRule
from discorl.rules.value_function import (
    ValueFunctionConfig,
    ValueFunctionState,
    init_value_function,
    raw_value,
    update_value_function,
)
from discorl.rules.values import explained_variance
from discorl.types import ActionOutput, Experience, Key, Needs, Observation, Rollout, StateOutput


@dataclass(frozen=True)
class PolicyGradientConfig:
    entropy_cost: float = 0.01
    normalise_advantage: bool = True


class PolicyGradientTargets(NamedTuple):
    advantage: Float[Array, "T B"]


class PolicyGradientTargetInfo(NamedTuple):
    value: Float[Array, ""]
    value_loss: Float[Array, ""]
    advantage: Float[Array, ""]
    td: Float[Array, ""]
    explained: Float[Array, ""]


class PolicyGradientLossInfo(NamedTuple):
    policy_loss: Float[Array, ""]
    entropy: Float[Array, ""]
    logits: Float[Array, ""]


def policy_gradient(
    config: PolicyGradientConfig = PolicyGradientConfig(), value: ValueFunctionConfig = ValueFunctionConfig()
) -> UpdateRule:
    """The value function lives in the rule's state and learns whenever targets are asked for."""

    def start(key: Key, obs: Observation) -> ValueFunctionState:
        return init_value_function(key, obs, value)

    def targets(
        eta: tuple[()], state: ValueFunctionState, experience: Experience
    ) -> tuple[PolicyGradientTargets, ValueFunctionState, PolicyGradientTargetInfo]:
        logits = experience.online.logits
        state, found, value_loss = update_value_function(state, experience.rollout, logits, value)
        advantage = found.normalised_advantage if config.normalise_advantage else found.advantage
        info = PolicyGradientTargetInfo(
            value=found.value.mean(),
            value_loss=value_loss,
            advantage=advantage.mean(),
            td=found.td.mean(),
            explained=explained_variance(found.target, found.td),
        )
        return PolicyGradientTargets(advantage=jax.lax.stop_gradient(advantage)), state, info

    def loss(
        state: StateOutput, action: ActionOutput, targets: PolicyGradientTargets, rollout: Rollout
    ) -> tuple[Float[Array, "T B"], PolicyGradientLossInfo]:
        del action
        logits = state.logits[:-1]
        policy = -log_prob(logits, rollout.action) * targets.advantage
        spread = entropy(logits)
        total = policy - config.entropy_cost * spread
        return total, PolicyGradientLossInfo(policy.mean(), spread.mean(), logits.mean())

    def continuation(eta: tuple[()], state: ValueFunctionState, experience: Experience) -> Float[Array, "T1 B"]:
        return value.discount * signed_parabolic(raw_value(state.params, experience.rollout.obs))

    return UpdateRule(
        name="policy_gradient",
        needs=Needs(),
        init=lambda key: (),
        start=start,
        digest=lambda eta, output: (),
        targets=targets,
        loss=loss,
        continuation=continuation,
    )
