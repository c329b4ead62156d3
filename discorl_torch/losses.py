"""How far an agent's outputs are from their targets (Oh et al. 2025, Methods, eq. 2)."""

from typing import NamedTuple

import torch
from torch import Tensor

from discorl_torch.distributions import entropy, kl, value_cross_entropy
from discorl_torch.types import Categorical, Rollout, Said, Targets


class StepLosses(NamedTuple):
    """The five parts of the loss, unweighted, [T, B] each."""

    pi: Tensor
    y: Tensor
    z: Tensor
    aux: Tensor
    q: Tensor


def step_losses(said: Said, targets: Targets, rollout: Rollout, bins: Tensor) -> StepLosses:
    # the auxiliary policy learns from the next policy, not back
    next_policy = Categorical(*(x[1:].detach() for x in said.policy))
    return StepLosses(
        pi=kl(targets.pi, said.policy),
        y=kl(targets.y, said.y),
        z=kl(targets.z, said.z),
        aux=rollout.discount * kl(next_policy, said.aux_pi),  # there is no next policy after the end
        q=value_cross_entropy(targets.value, said.q, bins),
    )


@torch.no_grad()
def loss_info(parts: StepLosses, said: Said) -> dict[str, Tensor]:
    """Means for people, over all steps and unmasked."""
    every = {
        "pi_loss": parts.pi,
        "y_loss": parts.y,
        "z_loss": parts.z,
        "aux_loss": parts.aux,
        "q_loss": parts.q,
        "entropy": entropy(said.policy)[:-1],
        "y_entropy": entropy(said.y)[:-1],
        "z_entropy": entropy(said.z)[:-1],
        "aux_entropy": entropy(said.aux_pi)[:-1],
        "aux_target_entropy": entropy(said.policy)[1:],
        "logits": said.policy.logits[:-1],
        "y": said.y.logits[:-1],
        "z": said.z.logits[:-1],
    }
    return {name: x.mean() for name, x in every.items()}
