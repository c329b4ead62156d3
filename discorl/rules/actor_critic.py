"""Actor-critic with V-trace, written by hand: the same interface as a discovered rule, without weights."""

from dataclasses import dataclass
from typing import NamedTuple

import jax
from jaxtyping import Array, Float

from discorl.distributions import ValueBins, entropy, log_prob, scalar_value, value_cross_entropy
from discorl.rules.base import UpdateRule
from discorl.rules.moments import fresh_moments, normalise, update_moments
from discorl.rules.values import ValueMoments, batched_vtrace, explained_variance, importance_ratio
from discorl.types import ActionOutput, Experience, Key, Needs, Observation, Rollout, StateOutput


@dataclass(frozen=True)
class ActorCriticConfig:
    """The defaults are those of the released code."""

    discount: float = 0.997
    trace_decay: float = 0.95
    policy_cost: float = 1.0
    value_cost: float = 0.5
    entropy_cost: float = 0.2
    value_bins: int = 601
    max_value: float = 300.0
    normalise_advantage: bool = False
    normalise_td: bool = False
    moment_decay: float = 0.99


class ActorCriticTargets(NamedTuple):
    advantage: Float[Array, "T B"]
    value: Float[Array, "T B"]


class ActorCriticTargetInfo(NamedTuple):
    value: Float[Array, ""]
    raw_advantage: Float[Array, ""]
    advantage: Float[Array, ""]
    td: Float[Array, ""]
    explained: Float[Array, ""]


class ActorCriticLossInfo(NamedTuple):
    policy_loss: Float[Array, ""]
    value_loss: Float[Array, ""]
    entropy: Float[Array, ""]
    logits: Float[Array, ""]


def actor_critic(config: ActorCriticConfig = ActorCriticConfig()) -> UpdateRule:
    """Here the network's y is a categorical value of the state."""
    bins = ValueBins(size=config.value_bins, limit=config.max_value)

    def start(key: Key, obs: Observation) -> ValueMoments:
        del key, obs
        return ValueMoments(advantage=fresh_moments(), td=fresh_moments())

    def targets(
        eta: tuple[()], state: ValueMoments, experience: Experience
    ) -> tuple[ActorCriticTargets, ValueMoments, ActorCriticTargetInfo]:
        rollout, view = experience.rollout, experience.online
        values = scalar_value(view.y, bins)
        rho = importance_ratio(view.logits[:-1], rollout.behaviour_logits, rollout.action)
        discount = config.discount * rollout.discount
        found = batched_vtrace(rollout.earned, discount, values, rho, config.trace_decay)
        td = found.target - values[:-1]
        state = ValueMoments(
            advantage=update_moments(state.advantage, found.advantage, config.moment_decay),
            td=update_moments(state.td, td, config.moment_decay),
        )
        advantage = normalise(state.advantage, found.advantage) if config.normalise_advantage else found.advantage
        value = values[:-1] + normalise(state.td, td, centre=False) if config.normalise_td else found.target
        info = ActorCriticTargetInfo(
            value=values.mean(),
            raw_advantage=found.advantage.mean(),
            advantage=advantage.mean(),
            td=td.mean(),
            explained=explained_variance(found.target, td),
        )
        # both are numbers to follow, not paths for gradients
        return jax.lax.stop_gradient(ActorCriticTargets(advantage=advantage, value=value)), state, info

    def loss(
        state: StateOutput, action: ActionOutput, targets: ActorCriticTargets, rollout: Rollout
    ) -> tuple[Float[Array, "T B"], ActorCriticLossInfo]:
        del action
        logits = state.logits[:-1]
        policy = -log_prob(logits, rollout.action) * targets.advantage
        value = value_cross_entropy(targets.value, state.y[:-1], bins)
        spread = entropy(logits)
        total = config.policy_cost * policy + config.value_cost * value - config.entropy_cost * spread
        return total, ActorCriticLossInfo(policy.mean(), value.mean(), spread.mean(), logits.mean())

    def continuation(eta: tuple[()], state: ValueMoments, experience: Experience) -> Float[Array, "T1 B"]:
        return config.discount * scalar_value(experience.online.y, bins)

    return UpdateRule(
        name="actor_critic",
        needs=Needs(y=config.value_bins),
        init=lambda key: (),
        start=start,
        digest=lambda eta, output: (),
        targets=targets,
        loss=loss,
        continuation=continuation,
    )
