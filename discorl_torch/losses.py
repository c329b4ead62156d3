"""How far an agent's outputs are from their targets (Oh et al. 2025, Methods, eq. 2)."""

from typing import NamedTuple

import torch
from torch import Tensor

from discorl_torch.distributions import entropy, kl, value_cross_entropy
from discorl_torch.types import ActionOutput, Rollout, StateOutput, Targets


class StepLosses(NamedTuple):
    """The five parts of the loss, unweighted, [T, B] each."""

    pi: Tensor
    y: Tensor
    z: Tensor
    aux: Tensor
    q: Tensor


def step_losses(
    state: StateOutput, action: ActionOutput, targets: Targets, rollout: Rollout, bins: Tensor
) -> StepLosses:
    """`state` has T+1 rows; `action` is of the taken action, its rows from T on are not looked at."""
    assert action.aux_pi is not None  # whoever computes a loss has asked for it
    next_policy = state.logits[1:].detach()  # the auxiliary policy learns from the policy, not back
    return StepLosses(
        pi=kl(targets.pi, state.logits),
        y=kl(targets.y, state.y),
        z=kl(targets.z, action.z),
        aux=rollout.discount * kl(next_policy, action.aux_pi),  # there is no next policy after the end
        q=value_cross_entropy(targets.value, action.q, bins),
    )


@torch.no_grad()
def loss_info(parts: StepLosses, state: StateOutput, action: ActionOutput) -> dict[str, Tensor]:
    """Means for people, over all steps and unmasked."""
    assert action.aux_pi is not None
    steps = parts.pi.shape[0]
    every = {
        "pi_loss": parts.pi,
        "y_loss": parts.y,
        "z_loss": parts.z,
        "aux_loss": parts.aux,
        "q_loss": parts.q,
        "entropy": entropy(state.logits[:-1]),
        "y_entropy": entropy(state.y[:-1]),
        "z_entropy": entropy(action.z[:steps]),
        "aux_entropy": entropy(action.aux_pi[:steps]),
        "aux_target_entropy": entropy(state.logits[1:]),
        "logits": state.logits[:-1],
        "y": state.y[:-1],
        "z": action.z[:steps],
    }
    return {name: x.mean() for name, x in every.items()}
