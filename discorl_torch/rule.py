"""Discovered rules: a meta-network computes what the agent's outputs should become."""

import os
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from discorl import rule_files
from discorl.rule_config import DiscoConfig, array_shapes
from discorl.rule_files import RuleFile
from discorl_torch.distributions import categorical, entropy, scalar_value
from discorl_torch.features import Embedded, shared_features
from discorl_torch.losses import StepLosses, step_losses
from discorl_torch.meta_network import Eta, MetaInputs, MetaTargets, apply_meta_network, embed_predictions
from discorl_torch.moments import fresh_moments
from discorl_torch.types import (
    Digest,
    Experience,
    LSTMState,
    Rollout,
    RuleState,
    Said,
    Targets,
    View,
)
from discorl_torch.values import ActionValues, estimate_values


class Findings(NamedTuple):
    """What stood behind the targets, for whoever wants to look."""

    values: ActionValues
    meta: MetaTargets


def start(config: DiscoConfig, device: torch.device | str | None = None) -> RuleState:
    """The memory of an agent that has not learned yet."""
    zeros = torch.zeros(config.lifetime_width, device=device)
    return RuleState(
        lifetime=LSTMState(hidden=zeros, cell=zeros.clone()),
        advantage=fresh_moments(device),
        td=fresh_moments(device),
    )


def digest(eta: Eta, config: DiscoConfig, bins: Tensor, z: Tensor, q: Tensor) -> Digest:
    """All that `targets` may know of an action's output, given as probabilities; any leading shape."""
    fast, slow = embed_predictions(eta, "mlp_1", z, len(config.prediction_embedding))
    return Digest(q=scalar_value(q, bins), z_trajectory=fast, z_lifetime=slow)


def targets(
    eta: Eta, config: DiscoConfig, state: RuleState, experience: Experience
) -> tuple[Targets, RuleState, Findings]:
    """What the agent's outputs should become, and the rule's memory after this update."""
    values, state = estimate_values(experience, state, config)

    def embedded(view: View) -> tuple[Embedded, Embedded]:
        fast = Embedded(view.y_trajectory, view.actions.z_trajectory)
        return fast, Embedded(view.y_lifetime, view.actions.z_lifetime)

    inputs = MetaInputs(
        shared=shared_features(experience, values),
        terminal=experience.rollout.discount == 0,
        online=embedded(experience.online),
        target=embedded(experience.target),
    )
    hat, lifetime = apply_meta_network(eta, config, state.lifetime, inputs)
    found = Targets(pi=hat.pi, y=hat.y, z=hat.z, value=values.q_target)
    return found, state._replace(lifetime=lifetime), Findings(values, hat)


def weighted(parts: StepLosses, value_cost: float) -> Tensor:
    return parts.pi + parts.y + parts.z + parts.aux + value_cost * parts.q


@torch.no_grad()
def target_info(found: Targets, findings: Findings) -> dict[str, Tensor]:
    values = findings.values
    every = {
        "q": values.q,
        "q_target": values.q_target,
        "td": values.td,
        "normalised_td": values.normalised_td,
        "pi_hat": found.pi.logits,
        "y_hat": found.y.logits,
        "z_hat": found.z.logits,
        "pi_hat_entropy": entropy(found.pi),
    }
    return {name: x.mean() for name, x in every.items()}


class DiscoRule(nn.Module):
    """A discovered rule with its weights.

    They are frozen: `requires_grad_()` makes them learn, and then gradients reach them through `targets`.
    """

    bins: Tensor

    def __init__(self, config: DiscoConfig, arrays: Mapping[str, np.ndarray], name: str = "unnamed"):
        super().__init__()
        self.config, self.name = config, name
        tensors = {key: torch.tensor(arrays[key], dtype=torch.float32) for key in array_shapes(config)}
        self.eta = nn.ParameterDict({k: nn.Parameter(v, requires_grad=False) for k, v in tensors.items()})
        bins = torch.linspace(-config.max_value, config.max_value, config.value_bins)
        self.register_buffer("bins", bins, persistent=False)

    @property
    def weights(self) -> Eta:
        return dict(self.eta.items())

    @classmethod
    def from_file(cls, name_or_path: str | os.PathLike[str] | None = None) -> "DiscoRule":
        """A rule by name (`disco103`, …) or path; without one, the default rule of this installation."""
        file = rule_files.named(name_or_path or rule_files.default_rule())
        return cls(file.config, file.arrays, file.name)

    def to_file(self, path: str | os.PathLike[str], provenance: dict | None = None) -> None:
        arrays = {key: value.detach().cpu().numpy() for key, value in self.weights.items()}
        rule_files.save(path, RuleFile(self.config, arrays, provenance or {}))

    def start(self) -> RuleState:
        return start(self.config, self.bins.device)

    def digest(self, z: Tensor, q: Tensor) -> Digest:
        """Of probabilities, not logits."""
        return digest(self.weights, self.config, self.bins, z, q)

    def digest_state(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """What both recurrent networks see of y, given as probabilities."""
        return embed_predictions(self.weights, "mlp", y, len(self.config.prediction_embedding))

    def targets(self, state: RuleState, experience: Experience) -> tuple[Targets, RuleState]:
        return targets(self.weights, self.config, state, experience)[:2]

    def explain(self, state: RuleState, experience: Experience) -> tuple[Targets, RuleState, Findings]:
        """`targets`, with everything it found on the way."""
        return targets(self.weights, self.config, state, experience)

    def loss(self, said: Said, targets: Targets, rollout: Rollout) -> tuple[Tensor, StepLosses]:
        """The loss of every step [T, B], and its parts. Targets are constants."""
        parts = step_losses(said, targets, rollout, self.bins)
        total = weighted(parts, self.config.value_cost)
        if self.config.entropy_cost:
            policy = categorical(said.policy.logits[: total.shape[0]])  # again: that of `said` carries no gradient
            total = total - self.config.entropy_cost * entropy(policy)
        return total, parts
