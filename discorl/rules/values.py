"""Returns and advantages from off-policy experience. Recursions are written for one stream; `batched` adds B."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from discorl.distributions import log_prob, select
from discorl.rules.moments import Moments, normalise, update_moments


def retrace(
    reward: Float[Array, " T"],
    discount: Float[Array, " T"],
    next_value: Float[Array, " T"],
    q: Float[Array, " T"],
    trace: Float[Array, " T"],
) -> Float[Array, " T"]:
    """Off-policy returns with cut traces.

        Gₜ = rₜ + γₜ [ vₜ₊₁ + cₜ₊₁ (Gₜ₊₁ − qₜ₊₁) ],   G_{T−1} = r + γ v_T

    Munos et al. 2016, eq. 3 (https://arxiv.org/abs/1606.02647). `q` and `trace` belong to the action of step t, so
    the first of them is never used.
    """

    def back(excess: Array, at: tuple[Array, ...]) -> tuple[Array, Array]:
        r, gamma, v, q, c = at
        g = r + gamma * (v + excess)
        return c * (g - q), g  # what step t−1 needs of step t

    return jax.lax.scan(back, jnp.zeros_like(reward[0]), (reward, discount, next_value, q, trace), reverse=True)[1]


class VTrace(NamedTuple):
    """`target` is what the value should become, `advantage` what the policy should follow."""

    target: Float[Array, "*T"]
    advantage: Float[Array, "*T"]


def vtrace(
    reward: Float[Array, " T"],
    discount: Float[Array, " T"],
    value: Float[Array, " T1"],
    rho: Float[Array, " T"],
    trace_decay: float,
) -> VTrace:
    """V-trace value targets and advantages.

        δₜ = min(1,ρₜ)(rₜ + γₜ vₜ₊₁ − vₜ),  eₜ = δₜ + γₜ λ min(1,ρₜ) eₜ₊₁,  vsₜ = vₜ + eₜ
        advₜ = min(1,ρₜ)(rₜ + γₜ[λ vsₜ₊₁ + (1−λ) vₜ₊₁] − vₜ)

    Espeholt et al. 2018, eq. 1 (https://arxiv.org/abs/1802.01561), with λ. The last step bootstraps from v_T.
    """
    clipped = jnp.minimum(1, rho)
    delta = clipped * (reward + discount * value[1:] - value[:-1])

    def back(error: Array, at: tuple[Array, Array]) -> tuple[Array, Array]:
        delta, decay = at
        error = delta + decay * error
        return error, error

    start = jnp.zeros_like(reward[0])
    errors = jax.lax.scan(back, start, (delta, discount * trace_decay * clipped), reverse=True)[1]
    target = value[:-1] + errors
    next_target = jnp.concatenate([target[1:], value[-1:]])
    bootstrap = trace_decay * next_target + (1 - trace_decay) * value[1:]
    return VTrace(target=target, advantage=clipped * (reward + discount * bootstrap - value[:-1]))


def gae(
    reward: Float[Array, " T"], discount: Float[Array, " T"], value: Float[Array, " T1"], trace_decay: float
) -> Float[Array, " T"]:
    """Generalised advantages, for on-policy data.

        Aₜ = rₜ + γₜ vₜ₊₁ − vₜ + γₜ λ Aₜ₊₁

    Schulman et al. 2016, eq. 16 (https://arxiv.org/abs/1506.02438).
    """

    def back(advantage: Array, at: tuple[Array, Array]) -> tuple[Array, Array]:
        delta, decay = at
        advantage = delta + decay * advantage
        return advantage, advantage

    delta = reward + discount * value[1:] - value[:-1]
    return jax.lax.scan(back, jnp.zeros_like(reward[0]), (delta, discount * trace_decay), reverse=True)[1]


batched_retrace = jax.vmap(retrace, in_axes=1, out_axes=1)  # [T] -> [T, B]
batched_vtrace = jax.vmap(vtrace, in_axes=(1, 1, 1, 1, None), out_axes=1)
batched_gae = jax.vmap(gae, in_axes=(1, 1, 1, None), out_axes=1)


def importance_ratio(
    logits: Float[Array, "*S A"], behaviour_logits: Float[Array, "*S A"], action: Int[Array, "*S"]
) -> Float[Array, "*S"]:
    """ρ = π(a)/μ(a), a weight on data: no gradient passes."""
    ratio = jnp.exp(log_prob(logits, action) - log_prob(behaviour_logits, action))
    return jax.lax.stop_gradient(ratio)


class ValueMoments(NamedTuple):
    advantage: Moments
    td: Moments


class ActionValues(NamedTuple):
    """All that the rule derives from action values, gradient-free but for `q`."""

    q: Float[Array, "T1 B A"]
    value: Float[Array, "T1 B"]
    target_q: Float[Array, "T1 B A"]
    q_target: Float[Array, "T B"]  # G
    advantage: Float[Array, "T B"]
    normalised_advantage: Float[Array, "T B"]
    action_advantage: Float[Array, "T1 B A"]  # of every action
    normalised_action_advantage: Float[Array, "T1 B A"]
    td: Float[Array, "T B"]
    normalised_td: Float[Array, "T B"]


class ActionValueInputs(NamedTuple):
    reward: Float[Array, "T B"]
    discount: Float[Array, "T B"]  # γ(1 − terminal)
    action: Int[Array, "T B"]
    logits: Float[Array, "T1 B A"]
    behaviour_logits: Float[Array, "T B A"]
    q: Float[Array, "T1 B A"]
    target_q: Float[Array, "T1 B A"]


def estimate_action_values(
    x: ActionValueInputs, moments: ValueMoments, trace_decay: float, moment_decay: float
) -> tuple[ActionValues, ValueMoments]:
    """Retrace on the target network's values under the online policy, and the advantages that follow from it."""
    policy = jax.nn.softmax(x.logits)
    value, target_value = ((policy * q).sum(-1) for q in (x.q, x.target_q))
    rho = importance_ratio(x.logits[:-1], x.behaviour_logits, x.action)
    trace = trace_decay * jnp.minimum(1, rho)
    taken_q = select(x.target_q[:-1], x.action)
    q_target = batched_retrace(x.reward, x.discount, target_value[1:], taken_q, trace)
    q_target = jax.lax.stop_gradient(q_target)  # a return is a target, not a path for gradients
    advantage = q_target - target_value[:-1]
    action_advantage = x.target_q - target_value[..., None]
    td = q_target - select(x.q[:-1], x.action)
    moments = ValueMoments(
        advantage=update_moments(moments.advantage, advantage, moment_decay),
        td=update_moments(moments.td, td, moment_decay),
    )
    values = ActionValues(
        q=x.q,
        value=value,
        target_q=x.target_q,
        q_target=q_target,
        advantage=advantage,
        normalised_advantage=normalise(moments.advantage, advantage),
        action_advantage=action_advantage,
        normalised_action_advantage=normalise(moments.advantage, action_advantage),
        td=td,
        normalised_td=normalise(moments.td, td, centre=False),
    )
    return values, moments


def explained_variance(target: Float[Array, "*T"], error: Float[Array, "*T"]) -> Float[Array, ""]:
    """Share of the targets' variance that values foresaw: 1 all of it, 0 none, less than a constant would below."""
    return 1 - error.var() / (target.var() + 1e-8)
