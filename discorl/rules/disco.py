"""Discovered rules: a meta-network computes what the agent's outputs should become."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from discorl import nn
from discorl.distributions import (
    ILLEGAL,
    ValueBins,
    entropy,
    kl,
    log_sum_exp,
    only_legal,
    scalar_value,
    value_cross_entropy,
)
from discorl.rule_config import DiscoConfig
from discorl.rules.base import UpdateRule
from discorl.rules.features import Embedded, shared_features
from discorl.rules.meta_network import (
    InitScales,
    MetaInputs,
    MetaParams,
    apply_meta_network,
    embed_predictions,
    init_meta_network,
)
from discorl.rules.moments import fresh_moments
from discorl.rules.values import ActionValueInputs, ActionValues, ValueMoments, estimate_action_values
from discorl.types import ActionOutput, Experience, Key, Needs, Observation, Rollout, StateOutput, View

UNROLL = 4  # steps of the trajectory network per turn of its loop: small agents train in 0.92 of the time on CPU


class DiscoState(NamedTuple):
    """The memory of one agent's lifetime."""

    lifetime: nn.LSTMState
    moments: ValueMoments


class DiscoDigest(NamedTuple):
    """Of an action's 1,201 outputs the rule wants a value and what its two networks' encoders make of z."""

    q: Float[Array, "*S"]
    z_trajectory: Float[Array, "*S W"]
    z_lifetime: Float[Array, "*S W"]


class DiscoTargets(NamedTuple):
    pi: Float[Array, "T B A"]
    y: Float[Array, "T B Y"]
    z: Float[Array, "T B Y"]
    value: Float[Array, "T B"]  # of the taken action


class DiscoTargetInfo(NamedTuple):
    q: Float[Array, ""]
    q_target: Float[Array, ""]
    td: Float[Array, ""]
    normalised_td: Float[Array, ""]
    pi_hat: Float[Array, ""]
    pi_hat_entropy: Float[Array, ""]


class DiscoLossInfo(NamedTuple):
    pi_loss: Float[Array, ""]
    y_loss: Float[Array, ""]
    z_loss: Float[Array, ""]
    aux_loss: Float[Array, ""]
    q_loss: Float[Array, ""]
    entropy: Float[Array, ""]
    aux_entropy: Float[Array, ""]
    aux_target_entropy: Float[Array, ""]
    logits: Float[Array, ""]


class DiscoReport(NamedTuple):
    """Of the predictions and their targets: each number is a pass over all of them, 5 % of an update together."""

    y_entropy: Float[Array, ""]
    z_entropy: Float[Array, ""]
    y: Float[Array, ""]
    z: Float[Array, ""]
    y_hat: Float[Array, ""]
    z_hat: Float[Array, ""]


class StepLosses(NamedTuple):
    """The five parts of the loss, unweighted."""

    pi: Float[Array, "T B"]
    y: Float[Array, "T B"]
    z: Float[Array, "T B"]
    aux: Float[Array, "T B"]
    q: Float[Array, "T B"]


def disco(
    config: DiscoConfig = DiscoConfig(), scales: InitScales = InitScales(), name: str = "disco", unroll: int = UNROLL
) -> UpdateRule:
    """A discovered rule of any size; its weights η come from `init` or from a rule file."""
    bins = ValueBins(size=config.value_bins, limit=config.max_value)

    def init(key: Key) -> MetaParams:
        return init_meta_network(key, config, scales)

    def start(key: Key, obs: Observation) -> DiscoState:
        del key, obs
        moments = ValueMoments(advantage=fresh_moments(), td=fresh_moments())
        return DiscoState(lifetime=nn.zero_lstm_state(config.lifetime_width), moments=moments)

    def digest(eta: MetaParams, output: ActionOutput) -> DiscoDigest:
        fast, slow = embed_predictions((eta.encoders.z, eta.lifetime.encoders.z), output.z)
        return DiscoDigest(q=scalar_value(output.q, bins), z_trajectory=fast, z_lifetime=slow)

    def targets(
        eta: MetaParams, state: DiscoState, experience: Experience
    ) -> tuple[DiscoTargets, DiscoState, DiscoTargetInfo]:
        rollout, online, target = experience
        values, moments = estimate_action_values(
            ActionValueInputs(
                reward=rollout.earned,
                discount=config.discount * rollout.discount,
                action=rollout.action,
                logits=online.logits,
                behaviour_logits=rollout.behaviour_logits,
                q=online.actions.q,
                target_q=target.actions.q,
            ),
            state.moments,
            config.trace_decay,
            config.moment_decay,
        )
        inputs = meta_inputs(eta, experience, values)
        hat, lifetime = apply_meta_network(eta, state.lifetime, inputs, config, unroll)
        # The value target is a number to reach, whoever differentiates.
        value = jax.lax.stop_gradient(values.q_target)
        info = DiscoTargetInfo(
            q=values.q.mean(),
            q_target=values.q_target.mean(),
            td=values.td.mean(),
            normalised_td=values.normalised_td.mean(),
            pi_hat=hat.pi.mean(),
            pi_hat_entropy=entropy(hat.pi).mean(),
        )
        found = DiscoTargets(pi=hat.pi, y=hat.y, z=hat.z, value=value)
        return found, DiscoState(lifetime=lifetime, moments=moments), info

    def loss(
        state: StateOutput, action: ActionOutput, targets: DiscoTargets, rollout: Rollout
    ) -> tuple[Float[Array, "T B"], DiscoLossInfo]:
        parts = step_losses(state, action, targets, rollout, bins)
        total = parts.pi + parts.y + parts.z + parts.aux + config.value_cost * parts.q
        if config.entropy_cost:
            total = total - config.entropy_cost * entropy(state.logits[:-1])
        return total, _loss_info(parts, state, action)

    def continuation(eta: MetaParams, state: DiscoState, experience: Experience) -> Float[Array, "T1 B"]:
        """Like every bootstrap of this rule: the target network's values under the online policy."""
        policy = jax.nn.softmax(experience.online.logits)
        return config.discount * (policy * experience.target.actions.q).sum(-1)

    return UpdateRule(
        name=name,
        needs=Needs(y=config.predictions, z=config.predictions, q=config.value_bins, target_keep=config.target_keep),
        init=init,
        start=start,
        digest=digest,
        targets=targets,
        loss=loss,
        report=_report,
        continuation=continuation,
    )


def meta_inputs(eta: MetaParams, experience: Experience, values: ActionValues) -> MetaInputs:
    """Experience as the meta-network's two recurrent networks see it, each through its own encoders."""

    def embedded(view: View) -> tuple[Embedded, Embedded]:
        y_fast, y_slow = embed_predictions((eta.encoders.y, eta.lifetime.encoders.y), view.y)
        seen: DiscoDigest = view.actions
        return Embedded(y=y_fast, z=seen.z_trajectory), Embedded(y=y_slow, z=seen.z_lifetime)

    return MetaInputs(
        shared=shared_features(experience, values),
        terminal=experience.rollout.discount == 0,
        online=embedded(experience.online),
        target=embedded(experience.target),
    )


def step_losses(
    state: StateOutput, action: ActionOutput, targets: DiscoTargets, rollout: Rollout, bins: ValueBins
) -> StepLosses:
    """How far the outputs are from their targets. `state` has T+1 rows, `action` too; its last does not count."""
    steps = rollout.reward.shape[0]
    next_policy = jax.lax.stop_gradient(state.logits[1:])  # the auxiliary policy learns from the policy, not back
    return StepLosses(
        pi=kl(only_legal(targets.pi, state.logits[:-1]), state.logits[:-1]),
        # normalisers of all rows, because the rule has made these exponentials already: the compiler sees them once
        y=kl(targets.y, state.y[:-1], log_sum_exp(state.y)[:-1]),
        z=kl(targets.z, action.z[:steps], log_sum_exp(action.z)[:steps]),
        aux=rollout.discount * kl(next_policy, action.aux_pi[:steps]),  # there is no next policy after the end
        q=value_cross_entropy(targets.value, action.q[:steps], bins, log_sum_exp(action.q)[:steps]),
    )


def _loss_info(parts: StepLosses, state: StateOutput, action: ActionOutput) -> DiscoLossInfo:
    return jax.tree.map(
        jnp.mean,
        DiscoLossInfo(
            pi_loss=parts.pi,
            y_loss=parts.y,
            z_loss=parts.z,
            aux_loss=parts.aux,
            q_loss=parts.q,
            entropy=entropy(state.logits[:-1]),
            aux_entropy=entropy(action.aux_pi)[:-1],
            aux_target_entropy=entropy(state.logits[1:]),
            logits=jnp.where(state.logits[:-1] > ILLEGAL / 2, state.logits[:-1], 0),
        ),
    )


def _report(state: StateOutput, action: ActionOutput, targets: DiscoTargets) -> DiscoReport:
    def row(t: Array) -> DiscoReport:
        """One step at a time: all at once would take 20 MB more than the update itself."""
        y, z = state.y[t], action.z[t]
        hat_y, hat_z = targets.y[t], targets.z[t]
        said = DiscoReport(y_entropy=entropy(y), z_entropy=entropy(z), y=y, z=z, y_hat=hat_y, z_hat=hat_z)
        return jax.tree.map(jnp.mean, said)

    rows = jax.lax.map(row, jnp.arange(targets.y.shape[0]))
    return jax.tree.map(jnp.mean, rows)
