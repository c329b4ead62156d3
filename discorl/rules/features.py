"""What the meta-network sees: 9 + 14·w numbers per step and 7 + 2·w channels per action (w = 1: 23 and 9).

Both of its recurrent networks see the same, each through its own embeddings of y and z (Oh et al. 2025, Methods).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from discorl.distributions import one_hot, select, signed_log
from discorl.rules.values import ActionValues
from discorl.types import Experience


class Embedded(NamedTuple):
    """Predictions of one set of parameters, seen through one network's encoders."""

    y: Float[Array, "T1 B W"]
    z: Float[Array, "T1 B A W"]


class Features(NamedTuple):
    step: Float[Array, "T B F"]
    action: Float[Array, "T B A C"]


class Shared(NamedTuple):
    """The part of the inputs that does not pass through an encoder, the same for both recurrent networks."""

    policy: Float[Array, "T1 B A"]  # π, gradient-free
    step: Float[Array, "T B 9"]
    policies: Float[Array, "T B A 3"]  # π, μ, π⁻
    values: Float[Array, "T B A 4"]


def pair(x: Float[Array, "T1 B W"]) -> Float[Array, "T B W2"]:
    """Now and next, side by side."""
    return jnp.concatenate([x[:-1], x[1:]], axis=-1)


def shared_features(experience: Experience, values: ActionValues) -> Shared:
    rollout, action = experience.rollout, experience.rollout.action
    policy = jax.nn.softmax(experience.online.logits)
    behaviour = jax.nn.softmax(rollout.behaviour_logits)
    target = jax.nn.softmax(experience.target.logits)[:-1]
    step = [
        select(policy[:-1], action)[..., None],
        select(behaviour, action)[..., None],
        signed_log(rollout.reward)[..., None],
        rollout.discount[..., None],
        pair(signed_log(values.value)[..., None]),
        signed_log(values.advantage)[..., None],
        values.normalised_advantage[..., None],
        select(target, action)[..., None],
    ]
    per_action = [
        signed_log(values.target_q[:-1]),
        signed_log(values.action_advantage[:-1]),
        values.normalised_action_advantage[:-1],
        one_hot(action, policy.shape[-1]).astype(policy.dtype),
    ]
    shared = Shared(
        policy=policy,
        step=jnp.concatenate(step, axis=-1),
        policies=jnp.stack([policy[:-1], behaviour, target], axis=-1),
        values=jnp.stack(per_action, axis=-1),
    )
    # What an agent is and what it earned are facts to the meta-network; meta-gradients reach it through y and z only.
    return jax.lax.stop_gradient(shared)


def features(shared: Shared, online: Embedded, target: Embedded) -> Features:
    """Everything in the published order; the weights depend on it."""
    taken = shared.values[..., -1]  # [T, B, A]

    def of_z(z: Float[Array, "T1 B A W"]) -> list[Array]:
        under_policy = (shared.policy[..., None] * z).sum(-2)
        return [(taken[..., None] * z[:-1]).sum(-2), pair(under_policy), pair(z.max(-2))]

    step = [shared.step, pair(online.y), pair(target.y), *of_z(online.z), *of_z(target.z)]
    action = [shared.policies, online.z[:-1], target.z[:-1], shared.values]
    return Features(step=jnp.concatenate(step, axis=-1), action=jnp.concatenate(action, axis=-1))
