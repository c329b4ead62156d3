"""One update of one agent."""

import copy
from typing import Literal

import torch
from torch import Tensor, nn

from discorl_torch.agent import AgentNetwork
from discorl_torch.losses import loss_info
from discorl_torch.optim import ClippedAdam
from discorl_torch.rule import DiscoRule, target_info
from discorl_torch.types import Experience, Rollout, RuleState
from discorl_torch.views import see, see_and_take

Mask = Literal["reference", "all"]
MASK_EPS = 1e-8  # a batch that is masked altogether has loss 0


def loss_mask(rollout: Rollout, mask: Mask) -> Tensor:
    """Weights [T, B]. The released code gives none to the first step of an episode; `all` uses every step."""
    weights = torch.ones_like(rollout.reward) if mask == "all" else (~rollout.first[:-1]).to(rollout.reward.dtype)
    return weights if rollout.valid is None else weights * rollout.valid


class Learner:
    """An agent, the slowly moving copy of it that targets come from, and the memory of the rule that teaches it."""

    def __init__(self, agent: nn.Module, rule: DiscoRule, optimizer: ClippedAdam, *, mask: Mask = "reference"):
        self.agent, self.rule, self.optimizer, self.mask = agent, rule, optimizer, mask
        self.target_agent = copy.deepcopy(agent).requires_grad_(False)
        self.rule_state: RuleState = rule.start()

    def update(self, rollout: Rollout) -> dict[str, Tensor]:
        """Outputs of both parameter sets, targets, gradient, a step of the target parameters, a step of Adam."""
        agent, target_agent = self._network(self.agent), self._network(self.target_agent)
        state, action, online = see_and_take(agent, self.rule, rollout)
        with torch.no_grad():  # targets are constants to the agent
            experience = Experience(rollout, online, see(target_agent, self.rule, rollout))
            targets, self.rule_state, findings = self.rule.explain(self.rule_state, experience)
        losses, parts = self.rule.loss(state, action, targets, rollout)
        weights = loss_mask(rollout, self.mask)
        total = (weights * losses).sum() / (weights.sum() + MASK_EPS)
        self.optimizer.zero_grad()
        total.backward()
        logs = {"total_loss": total.detach()} | loss_info(parts, state, action) | target_info(targets, findings)
        logs["gradient_norm"] = self._gradient_norm()
        self._move_target()
        logs["update_norm"] = self.optimizer.step()
        return logs

    @staticmethod
    def _network(module: nn.Module) -> AgentNetwork:
        assert isinstance(module, AgentNetwork)
        return module

    def _gradient_norm(self) -> Tensor:
        grads = [p.grad for p in self.agent.parameters() if p.grad is not None]
        return torch.stack(torch._foreach_norm(grads)).norm()

    @torch.no_grad()
    def _move_target(self) -> None:
        """Towards the parameters of *before* this update's step. Buffers, such as running statistics, are copied."""
        old, new = list(self.target_agent.parameters()), list(self.agent.parameters())
        torch._foreach_lerp_(old, new, 1 - self.rule.config.target_keep)
        for ours, theirs in zip(self.target_agent.buffers(), self.agent.buffers(), strict=True):
            ours.copy_(theirs)
