"""One update of one agent."""

import copy
from typing import Literal

import torch
from torch import Tensor, nn

from discorl.errors import DiscorlError
from discorl_torch.agent import AgentNetwork
from discorl_torch.distributions import scalar_value
from discorl_torch.losses import loss_info
from discorl_torch.optim import ClippedAdam
from discorl_torch.rule import DiscoRule, target_info
from discorl_torch.trees import leaves, tree_map
from discorl_torch.types import Experience, Rollout, RuleState, Tree
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
        self.agent, self.rule, self.optimizer = agent, rule, optimizer
        self.mask: Mask = mask
        self.target_agent = copy.deepcopy(agent).requires_grad_(False)
        self.rule_state: RuleState = rule.start()

    @property
    def network(self) -> AgentNetwork:
        return _network(self.agent)

    def update(self, rollout: Rollout) -> dict[str, Tensor]:
        """Outputs of both parameter sets, targets, gradient, a step of the target parameters, a step of Adam."""
        said, online = see_and_take(self.network, self.rule, rollout)
        with torch.no_grad():  # targets are constants to the agent
            experience = Experience(rollout, online, see(_network(self.target_agent), self.rule, rollout))
            targets, rule_state, findings = self.rule.explain(self.rule_state, experience)
        losses, parts = self.rule.loss(said, targets, rollout)
        weights = loss_mask(rollout, self.mask)
        total = (weights * losses).sum() / (weights.sum() + MASK_EPS)
        if not torch.isfinite(total):
            raise DiscorlError("the loss is no longer finite; lower the learning rate, or look for huge rewards")
        self.rule_state = rule_state
        self.optimizer.zero_grad()
        total.backward()
        logs = {"total_loss": total.detach()} | loss_info(parts, said) | target_info(targets, findings)
        grads = [p.grad for p in self.agent.parameters() if p.grad is not None]
        logs["gradient_norm"] = torch.stack([g.norm() for g in grads]).norm()
        self._move_target()
        logs["update_norm"] = self.optimizer.step()
        return logs

    @torch.no_grad()
    def value(self, obs: Tree, memory: Tree) -> Tensor:
        """V = Σ π(a)·Q(a) of observations [B, ...]."""
        obs = tree_map(lambda x: x.unsqueeze(0), obs)
        first = torch.zeros(next(leaves(obs)).shape[:2], dtype=torch.bool, device=self.rule.bins.device)
        state, root = self.network.unroll(obs, first, memory)
        every = [self.network.model(root, a, aux=False).q for a in range(state.logits.shape[-1])]
        q = scalar_value(torch.stack(every, -2).softmax(-1), self.rule.bins)
        return (state.logits.softmax(-1) * q).sum(-1)[0]

    def to(self, device: torch.device | str) -> "Learner":
        for module in (self.agent, self.target_agent, self.rule):
            module.to(device)
        self.rule_state = tree_map(lambda x: x.to(device), self.rule_state)
        for state in self.optimizer.state.values():
            state.update({key: x.to(device) for key, x in state.items() if isinstance(x, Tensor)})
        return self

    @torch.no_grad()
    def _move_target(self) -> None:
        """Towards the parameters of *before* this update's step. Buffers, such as running statistics, are copied."""
        for old, new in zip(self.target_agent.parameters(), self.agent.parameters(), strict=True):
            old.lerp_(new, 1 - self.rule.config.target_keep)
        for old, new in zip(self.target_agent.buffers(), self.agent.buffers(), strict=True):
            old.copy_(new)


def _network(module: nn.Module) -> AgentNetwork:
    assert isinstance(module, AgentNetwork)
    return module
