"""A few updates of an agent, then the question how good it has become: what a meta-gradient goes through."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import Array, Float

from discorl.discovery.gradients import Index, MetaGradient
from discorl.discovery.objective import ObjectiveConfig, ObjectiveInfo, outer_loss, target_regularizer
from discorl.learner import KEPT, LearnerState, make_learner
from discorl.networks.base import AgentNetwork
from discorl.optim import Hypers
from discorl.rules.base import Eta, UpdateRule
from discorl.rules.value_function import (
    ValueFunctionConfig,
    ValueFunctionState,
    estimate,
    update_value_function,
)
from discorl.types import Rollout


@dataclass(frozen=True)
class OuterConfig:
    """How an agent is judged."""

    objective: ObjectiveConfig
    value: ValueFunctionConfig
    alignment: str = "correct"  # "reference": rewards as the released code pairs them, see `value_rollout`
    mask: str = "reference"  # steps that count in the agent's loss, see `learner.loss_mask`


class Student(NamedTuple):
    """The part of an agent that updates change."""

    learner: LearnerState
    value: ValueFunctionState  # what the outer loss compares returns with; the rule never sees it


class UpdateInfo(NamedTuple):
    regularizer: Float[Array, ""]
    value_loss: Float[Array, ""]
    rule_loss: Float[Array, ""]


class Judge(NamedTuple):
    update: Callable[[Index, Eta, Hypers, Student, Rollout], tuple[Student, UpdateInfo]]
    judge: Callable[[Student, Rollout, Array], tuple[Float[Array, ""], ObjectiveInfo]]


def value_rollout(rollout: Rollout, alignment: str) -> Rollout:
    """What the outer value function sees of a rollout.

    The released code pairs an action with the reward that arrived *before* it, so that the first action of an episode
    is paid for the previous one. For that the first transition only lends its reward.
    """
    if alignment == "correct":
        return rollout
    later = jax.tree.map(lambda x: x[1:], rollout._replace(memory=(), cuts=()))
    return later._replace(reward=rollout.reward[:-1], discount=rollout.discount[:-1])


def make_judge(network: AgentNetwork, rule: UpdateRule, config: OuterConfig, gradient: MetaGradient) -> Judge:
    @gradient.update
    def lesson(index: Index, eta: Eta, hypers: Hypers, state: LearnerState, batch: Rollout) -> tuple:
        seen, inner = gradient.seen(index, network), partial(gradient.inner, index)
        learner = make_learner(network, rule, config.mask, gradient=inner, seen=seen)
        state, info, found = learner.lesson(eta, hypers, state, batch)
        state = state._replace(rule=jax.tree.map(lambda x: checkpoint_name(x, KEPT), state.rule))
        logits = found.experience.online.logits
        return state, target_regularizer(found, config.objective), jax.lax.stop_gradient((logits, info.total_loss))

    def update(index: Index, eta: Eta, hypers: Hypers, student: Student, batch: Rollout) -> tuple[Student, UpdateInfo]:
        learning, regularizer, (logits, rule_loss) = lesson(index, eta, hypers, student.learner, batch)
        seen = value_rollout(batch, config.alignment)
        logits = logits[-seen.first.shape[0] :]
        value, _, value_loss = update_value_function(student.value, seen, logits, config.value)
        return Student(learner=learning, value=value), UpdateInfo(regularizer, value_loss, rule_loss)

    def judge(student: Student, rollout: Rollout, regularizer: Array) -> tuple[Array, ObjectiveInfo]:
        params = student.learner.params
        seen = value_rollout(rollout, config.alignment)
        embedding, _ = network.unroll(params, rollout.memory, rollout.obs, rollout.first)
        logits = jax.lax.stop_gradient(network.heads(params, embedding).logits)[-seen.first.shape[0] :]
        found, _ = estimate(student.value, seen, logits, config.value)
        judged = rollout if seen is rollout else jax.tree.map(lambda x: x[1:], rollout._replace(memory=()))
        return outer_loss(network, params, judged, found.normalised_advantage, regularizer, config.objective)

    return Judge(update=update, judge=judge)
