"""What a rule is judged by: how good the policy is that it has made, and that its targets stay sane."""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from discorl.distributions import entropy, kl, log_prob
from discorl.learner import Lesson
from discorl.networks.base import AgentNetwork
from discorl.rules.disco import DiscoTargets
from discorl.types import Params, Rollout


@dataclass(frozen=True)
class ObjectiveConfig:
    """Weights of the regularizers (Oh et al. 2025, Methods); the policy gradient itself weighs 1."""

    policy_entropy: float = 1e-2
    prediction_entropy: float = 1e-3  # of y and z
    target_mean: float = 1e-3  # keeps the mean of the targets' logits at 0
    target_kl: float = 1e-2  # keeps the policy target close to the slow policy


class ObjectiveInfo(NamedTuple):
    policy_loss: Float[Array, ""]
    regularizer: Float[Array, ""]  # all of them, weighted
    policy_entropy: Float[Array, ""]
    y_entropy: Float[Array, ""]
    z_entropy: Float[Array, ""]


def target_regularizer(lesson: Lesson, config: ObjectiveConfig) -> Float[Array, ""]:
    """What one inner update adds to the outer loss."""
    targets: DiscoTargets = lesson.targets
    means = sum(jnp.square(x.mean()) for x in (targets.pi, targets.y, targets.z))
    slow_policy = jax.lax.stop_gradient(lesson.experience.target.logits[:-1])
    return config.target_mean * means + config.target_kl * kl(slow_policy, targets.pi).mean()


def outer_loss(
    network: AgentNetwork,
    params: Params,
    rollout: Rollout,
    advantage: Float[Array, "T B"],
    regularizer: Float[Array, ""],
    config: ObjectiveConfig,
) -> tuple[Float[Array, ""], ObjectiveInfo]:
    """The loss of the agent after its updates, on fresh experience of its own; `regularizer` is that of its updates."""
    params = network.unpack(params)
    embedding, _ = network.unroll(params, rollout.memory, rollout.obs, rollout.first)
    state = network.heads(params, embedding)
    root = jax.tree.map(lambda x: x[:-1], network.root(params, embedding))
    action = network.model(params, root, rollout.action)
    policy = -(log_prob(state.logits[:-1], rollout.action) * jax.lax.stop_gradient(advantage)).mean()
    entropies = [entropy(x).mean() for x in (state.logits[:-1], state.y, action.z)]
    kept = config.policy_entropy * entropies[0] + config.prediction_entropy * (entropies[1] + entropies[2])
    total_regularizer = regularizer - kept
    return policy + total_regularizer, ObjectiveInfo(policy, total_regularizer, *entropies)
