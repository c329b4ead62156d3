"""What parameters say of a rollout, as far as the rule wants to know.

Actions are streamed, a stretch of time at once, so that z and q of all of them never exist at the same time: with 18
actions they would be the largest arrays of the program, and even of one action they are better made where the processor
still has them at hand when the next operation wants them.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from discorl_torch.agent import AgentNetwork
from discorl_torch.distributions import categorical
from discorl_torch.rule import DiscoRule
from discorl_torch.trees import tree_map
from discorl_torch.types import Categorical, Digest, Rollout, Said, View

STATES_AT_ONCE = 448  # per thread of a CPU: 1 MB each of an action's z and q, half of a usual second-level cache


@torch.no_grad()
def see(agent: AgentNetwork, rule: DiscoRule, rollout: Rollout) -> View:
    """Every action once. Without a memory, stretches of time are independent of each other from the start."""
    every = [slice(None)] if getattr(agent, "remembers", True) else _stretches(rollout.first)
    views = []
    for rows in every:
        obs = tree_map(lambda x, rows=rows: x[rows], rollout.obs)
        state, root = agent.unroll(obs, rollout.first[rows], rollout.memory)
        choices = [lambda rows, a=a: a for a in range(state.logits.shape[-1])]
        actions = _stack(_digests(agent, rule, root, choices, state.logits))
        views.append(View(state.logits, *rule.digest_state(state.y.softmax(-1)), actions))
    return tree_map(lambda *parts: torch.cat(parts), *views)


def see_and_take(agent: AgentNetwork, rule: DiscoRule, rollout: Rollout) -> tuple[Said, View]:
    """What to learn from, with gradients, and the view, without.

    Every action is computed once. The first pass takes, in each state, the action that was taken, and keeps what a
    gradient needs; the others take the actions after it, cyclically.
    """
    state, root = agent.unroll(rollout.obs, rollout.first, rollout.memory)
    num_actions = state.logits.shape[-1]
    taken = F.pad(rollout.action, (0, 0, 0, 1))  # [T+1, B] none was taken in the last row: any will do
    action = agent.model(root, taken, aux=True)
    assert action.aux_pi is not None  # it was asked for
    said = Said(*map(_constant, (state.logits, state.y, action.z, action.q, action.aux_pi)))
    with torch.no_grad():
        others = [lambda rows, n=n: (taken[rows] + n) % num_actions for n in range(1, num_actions)]
        digests = [rule.digest(said.z.p, said.q.p), *_digests(agent, rule, root, others, state.logits)]
        every = torch.arange(num_actions, device=taken.device)
        offset = (every - taken.unsqueeze(-1)) % num_actions  # [T+1, B, A] where to find an action
        actions = Digest(*(x.gather(2, _like(offset, x)) for x in _stack(digests)))
        return said, View(state.logits.detach(), *rule.digest_state(said.y.p), actions)


def _constant(logits: Tensor) -> Categorical:
    """A gradient enters at the logits; what is derived from them is a number."""
    return categorical(logits.detach())._replace(logits=logits)


Choice = Callable[[slice], Tensor | int]  # rows of time to the action to take there


def _digests(agent: AgentNetwork, rule: DiscoRule, root: Any, choices: Sequence[Choice], like: Tensor) -> list[Digest]:
    parts: list[list[Digest]] = [[] for _ in choices]
    for rows in _stretches(like):
        here = tree_map(lambda x, rows=rows: x[rows], root)
        for part, choose in zip(parts, choices, strict=True):
            outputs = agent.model(here, choose(rows), aux=False)
            part.append(rule.digest(outputs.z.softmax(-1), outputs.q.softmax(-1)))
    return [Digest(*(torch.cat(xs) for xs in zip(*part, strict=True))) for part in parts]


def _stretches(like: Tensor) -> list[slice]:
    steps, batch = like.shape[:2]
    # threads share the rows of a product, and each has a cache of its own
    at_once = STATES_AT_ONCE * torch.get_num_threads()
    stride = max(1, at_once // batch) if like.device.type == "cpu" else steps
    return [slice(start, start + stride) for start in range(0, steps, stride)]


def _stack(digests: list[Digest]) -> Digest:
    return Digest(*(torch.stack(parts, 2) for parts in zip(*digests, strict=True)))


def _like(index: Tensor, x: Tensor) -> Tensor:
    return index if x.dim() == 3 else index.unsqueeze(-1).expand(x.shape)
