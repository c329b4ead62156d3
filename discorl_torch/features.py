"""What the meta-network sees: 9 + 14·W numbers per step and 7 + 2·W channels per action (W = 1: 23 and 9).

Both of its recurrent networks see the same, each through its own encoders of y and z (Oh et al. 2025, Methods).
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from discorl_torch.distributions import select, signed_log
from discorl_torch.types import Experience
from discorl_torch.values import ActionValues


class Embedded(NamedTuple):
    """Predictions of one set of parameters, seen through one network's encoders."""

    y: Tensor  # [T+1, B, W]
    z: Tensor  # [T+1, B, A, W]


class Shared(NamedTuple):
    """The part of the inputs that passes through no encoder, the same for both recurrent networks."""

    policy: Tensor  # [T+1, B, A] π
    step: Tensor  # [T, B, 9]
    policies: Tensor  # [T, B, A, 3] π, μ, π⁻
    values: Tensor  # [T, B, A, 4]

    @property
    def taken(self) -> Tensor:
        return self.values[..., -1:]  # [T, B, A, 1] one-hot


def pair(x: Tensor) -> Tensor:
    """Now and next, side by side: [T+1, B, W] -> [T, B, 2W]."""
    return torch.cat([x[:-1], x[1:]], -1)


@torch.no_grad()  # what an agent is and what it earned are facts; a gradient reaches it through y and z only
def shared_features(experience: Experience, values: ActionValues) -> Shared:
    rollout, action = experience.rollout, experience.rollout.action
    policy = experience.online.policy.softmax(-1)
    behaviour = rollout.behaviour_logits.softmax(-1)
    target = experience.target.policy[:-1].softmax(-1)
    log_value = signed_log(values.value)
    step = [
        select(policy[:-1], action),
        select(behaviour, action),
        signed_log(rollout.reward),
        rollout.discount,
        log_value[:-1],
        log_value[1:],
        signed_log(values.advantage),
        values.normalised_advantage,
        select(target, action),
    ]
    per_action = [
        signed_log(values.target_q[:-1]),
        signed_log(values.action_advantage[:-1]),
        values.normalised_action_advantage[:-1],
        one_hot(action, policy.shape[-1]).to(policy.dtype),
    ]
    return Shared(
        policy=policy,
        step=torch.stack(step, -1),
        policies=torch.stack([policy[:-1], behaviour, target], -1),
        values=torch.stack(per_action, -1),
    )


def features(shared: Shared, online: Embedded, target: Embedded) -> tuple[Tensor, Tensor]:
    """Per step [T, B, 9 + 14·W] and per action [T, B, A, 7 + 2·W], in the published order: the weights depend on it."""
    step = [shared.step, pair(online.y), pair(target.y)]
    for z in (online.z, target.z):
        under_policy = (shared.policy.unsqueeze(-1) * z).sum(-2)
        step += [(shared.taken * z[:-1]).sum(-2), pair(under_policy), pair(z.amax(-2))]
    action = [shared.policies, online.z[:-1], target.z[:-1], shared.values]
    return torch.cat(step, -1), torch.cat(action, -1)
