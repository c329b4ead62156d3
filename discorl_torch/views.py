"""What parameters say of a rollout, as far as the rule wants to know. Actions are streamed: z and q of all are never kept."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from discorl_torch.agent import AgentNetwork
from discorl_torch.rule import DiscoRule
from discorl_torch.types import ActionOutput, Digest, Rollout, StateOutput, View


def see(agent: AgentNetwork, rule: DiscoRule, rollout: Rollout) -> View:
    """Every action once."""
    state, root = agent.unroll(rollout.obs, rollout.first, rollout.memory)
    digests = [_digest(agent, rule, root, a) for a in range(state.logits.shape[-1])]
    return View(logits=state.logits, y=state.y, actions=_stack(digests))


def see_and_take(agent: AgentNetwork, rule: DiscoRule, rollout: Rollout) -> tuple[StateOutput, ActionOutput, View]:
    """The outputs to learn from, of the taken action, and the view; a gradient flows into the former only.

    Every action is computed once. The first pass takes, in each state, the action that was taken, and keeps what a
    gradient needs; the others take the actions after it, cyclically.
    """
    state, root = agent.unroll(rollout.obs, rollout.first, rollout.memory)
    num_actions = state.logits.shape[-1]
    taken = F.pad(rollout.action, (0, 0, 0, 1))  # [T+1, B] none was taken in the last row: any will do
    outputs = agent.model(root, taken, aux=True)
    with torch.no_grad():
        digests = [rule.digest(outputs.z, outputs.q)]
        digests += [_digest(agent, rule, root, (taken + offset) % num_actions) for offset in range(1, num_actions)]
        cyclic = _stack(digests)
        every = torch.arange(num_actions, device=taken.device)
        offset = (every - taken.unsqueeze(-1)) % num_actions  # [T+1, B, A] where to find an action
        actions = Digest(*(x.gather(2, _like(offset, x)) for x in cyclic))
    return state, outputs, View(logits=state.logits.detach(), y=state.y.detach(), actions=actions)


def _digest(agent: AgentNetwork, rule: DiscoRule, root: Any, action: Tensor | int) -> Digest:
    outputs = agent.model(root, action, aux=False)
    return rule.digest(outputs.z, outputs.q)


def _stack(digests: list[Digest]) -> Digest:
    return Digest(*(torch.stack(parts, 2) for parts in zip(*digests, strict=True)))


def _like(index: Tensor, x: Tensor) -> Tensor:
    return index if x.dim() == 3 else index.unsqueeze(-1).expand(x.shape)
