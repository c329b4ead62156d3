"""Returns and advantages from off-policy experience."""

from typing import NamedTuple

import torch
from torch import Tensor

from discorl.rule_config import DiscoConfig
from discorl_torch.distributions import select
from discorl_torch.moments import normalise, update_moments
from discorl_torch.types import Experience, RuleState


class ActionValues(NamedTuple):
    """All that the rule derives from action values; gradient-free."""

    q: Tensor  # [T+1, B, A]
    value: Tensor  # [T+1, B]
    target_q: Tensor  # [T+1, B, A]
    q_target: Tensor  # [T, B] G
    advantage: Tensor  # [T, B]
    normalised_advantage: Tensor  # [T, B]
    action_advantage: Tensor  # [T+1, B, A] of every action
    normalised_action_advantage: Tensor  # [T+1, B, A]
    td: Tensor  # [T, B]
    normalised_td: Tensor  # [T, B]


def retrace(reward: Tensor, discount: Tensor, value: Tensor, q: Tensor, trace: Tensor) -> Tensor:
    """Off-policy returns with cut traces.

        Gₜ = rₜ + γₜ [ vₜ₊₁ + cₜ₊₁ (Gₜ₊₁ − qₜ₊₁) ],   G_{T−1} = r + γ v_T

    Munos et al. 2016, eq. 3 (https://arxiv.org/abs/1606.02647). `value` has T+1 rows, all else T, none is shifted.
    """
    excess = torch.zeros_like(value[0])  # c (G − q) of the step after: no action was taken in the last row
    returns = []
    for t in reversed(range(reward.shape[0])):
        returns.append(reward[t] + discount[t] * (value[t + 1] + excess))
        excess = trace[t] * (returns[-1] - q[t])
    return torch.stack(returns[::-1])


def importance_ratio(logits: Tensor, behaviour_logits: Tensor, action: Tensor) -> Tensor:
    """ρ = π(a)/μ(a)"""
    return (select(logits.log_softmax(-1), action) - select(behaviour_logits.log_softmax(-1), action)).exp()


@torch.no_grad()  # values are facts to the rule, and a return is a target, not a path for gradients
def estimate_values(experience: Experience, state: RuleState, config: DiscoConfig) -> tuple[ActionValues, RuleState]:
    """Retrace on the target network's values under the online policy, and the advantages that follow from it."""
    rollout, online, target = experience
    action, q, target_q = rollout.action, online.actions.q, target.actions.q
    policy = online.policy.softmax(-1)
    value, target_value = (policy * q).sum(-1), (policy * target_q).sum(-1)
    rho = importance_ratio(online.policy[:-1], rollout.behaviour_logits, action)
    q_target = retrace(
        reward=rollout.earned,
        discount=config.discount * rollout.discount,
        value=target_value,
        q=select(target_q[:-1], action),
        trace=config.trace_decay * rho.clamp(max=1),
    )
    advantage = q_target - target_value[:-1]
    action_advantage = target_q - target_value.unsqueeze(-1)
    td = q_target - select(q[:-1], action)
    state = state._replace(
        advantage=update_moments(state.advantage, advantage, config.moment_decay),
        td=update_moments(state.td, td, config.moment_decay),
    )
    values = ActionValues(
        q=q,
        value=value,
        target_q=target_q,
        q_target=q_target,
        advantage=advantage,
        normalised_advantage=normalise(state.advantage, advantage),
        action_advantage=action_advantage,
        normalised_action_advantage=normalise(state.advantage, action_advantage),
        td=td,
        normalised_td=normalise(state.td, td, centre=False),
    )
    return values, state
