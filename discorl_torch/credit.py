"""Per-step credit for language models: a rule's judgement of every token of a completion (experimental).

The language model is not touched. A small adapter turns its hidden states and the logits of its K likeliest tokens into
what a rule asks of an agent; the rule's advantages then tell which steps of a completion did better than expected. The
adapter keeps the contract of an agent whose observation is {"hidden": [..., D], "logits": [..., K]}, so that a
`DiscoTrainer` can train it on the same completions: until it has, its values, and with them the credit, mean little.
"""

from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from discorl.errors import DiscorlError, near_matches
from discorl.rule_config import DiscoConfig
from discorl_torch.rule import DiscoRule
from discorl_torch.torsos import init_linear
from discorl_torch.types import ActionOutput, Experience, Rollout, RuleState, StateOutput, Tree
from discorl_torch.views import see

Missing = Literal["include", "mask", "error"]
FOREIGN = 30.0  # added to a logit, makes it the only choice
GROUP_EPS = 1e-6  # a group whose rewards are all the same has no better and no worse


class TopK(NamedTuple):
    """The K likeliest tokens of every step as the actions of that step."""

    logits: Tensor  # [T+1, B, K]
    tokens: Tensor  # [T+1, B, K] which tokens they are
    action: Tensor  # [T, B] which of them was written
    covered: Tensor  # [T, B] False where the written token is none of them


def top_k(logits: Tensor, tokens: Tensor, k: int, *, missing: Missing = "include") -> TopK:
    """Logits [T+1, B, V] of the whole vocabulary and the tokens [T, B] that were written after each, as K actions.

    What becomes of a token that is not among the K likeliest: `include` lets it take the place of the least likely of
    them, with its own logit; `mask` keeps the K and marks the step as not covered: it gets no credit and is not learned
    from, and the steps before it are judged by the value there instead of by what came after; `error` refuses.
    """
    if missing not in ("include", "mask", "error"):
        raise DiscorlError(f"missing={missing!r} is not known; {near_matches(missing, ['include', 'mask', 'error'])}")
    if tokens.dtype != torch.int64 or tokens.shape != (logits.shape[0] - 1, logits.shape[1]):
        need = f"int64 [{logits.shape[0] - 1}, {logits.shape[1]}]"
        raise DiscorlError(
            f"tokens are {tokens.dtype} {list(tokens.shape)}, but logits {list(logits.shape)} need {need}"
        )
    if not 1 < k <= logits.shape[-1]:
        raise DiscorlError(f"k must be from 2 to the {logits.shape[-1]} tokens of the vocabulary, got {k}")
    best, index = logits.topk(k, dim=-1)
    match = index[:-1] == tokens.unsqueeze(-1)
    covered = match.any(-1)
    if missing == "error" and not covered.all():
        count = int((~covered).sum())
        raise DiscorlError(
            f"{count} tokens are not among the {k} likeliest; raise k, or choose missing='include' or 'mask'"
        )
    action = torch.where(covered, match.int().argmax(-1), k - 1)
    if missing == "include":
        own = logits[:-1].gather(-1, tokens.unsqueeze(-1)).squeeze(-1)
        best, index = best.clone(), index.clone()
        best[:-1, :, -1] = torch.where(covered, best[:-1, :, -1], own)
        index[:-1, :, -1] = torch.where(covered, index[:-1, :, -1], tokens)
        covered = torch.ones_like(covered)
    return TopK(best, index, action, covered)


class CreditAdapter(nn.Module):
    """Hidden states [..., D] and top-k logits [..., K] to the outputs that a rule asks for; an `AgentNetwork`."""

    remembers = False

    def __init__(self, hidden_size: int, k: int, *, rule: DiscoRule | DiscoConfig | None = None, width: int = 32):
        super().__init__()
        config = DiscoConfig() if rule is None else rule if isinstance(rule, DiscoConfig) else rule.config
        self.k, self.width = k, width
        self.y = init_linear(hidden_size, config.predictions, scale=1e-2)
        self.features = init_linear(hidden_size, k * width)
        self.z = init_linear(width, config.predictions)
        self.q = init_linear(width, config.value_bins)
        self.aux_pi = init_linear(width, k)

    def initial_memory(self, batch: int) -> Tree:
        return ()

    def act(self, obs: Tree, first: Tensor, memory: Tree) -> tuple[Tensor, Tree]:
        return obs["logits"], memory

    def unroll(self, obs: Tree, first: Tensor, memory: Tree) -> tuple[StateOutput, Tensor]:
        hidden, logits = obs["hidden"], obs["logits"]
        return StateOutput(logits, self.y(hidden)), self.features(hidden).unflatten(-1, (self.k, self.width)).relu()

    def model(self, root: Tensor, action: Tensor | int, *, aux: bool) -> ActionOutput:
        if isinstance(action, int):
            x = root[..., action, :]
        else:
            x = root.gather(-2, action[..., None, None].expand(*action.shape, 1, self.width)).squeeze(-2)
        return ActionOutput(self.z(x), self.q(x), self.aux_pi(x) if aux else None)


def completion_rollout(hidden: Tensor, choice: TopK, reward: Tensor, terminal: Tensor) -> Rollout:
    """Completions as a rollout: hidden states [T+1, B, D], rewards [T, B], terminal [T, B] at the last token of each.

    Steps that are not covered, and those after the end, do not count.
    """
    wanted = [choice.action.shape[0] + 1, choice.action.shape[1]]
    if list(hidden.shape[:2]) != wanted or hidden.dim() != 3:
        raise DiscorlError(
            f"hidden states are {list(hidden.shape)}, but these tokens need [{wanted[0]}, {wanted[1]}, D]"
        )
    if reward.shape != choice.action.shape or terminal.shape != choice.action.shape:
        sides = f"rewards {list(reward.shape)} and terminal {list(terminal.shape)}"
        raise DiscorlError(f"{sides} must both be {list(choice.action.shape)}, one entry per token")
    if not torch.isfinite(reward).all():
        raise DiscorlError("the rewards hold NaN or infinite values")
    ended = terminal.bool()
    after_end = (ended.int().cumsum(0) - ended.int()) > 0
    cut = ended | after_end
    # π/μ of a step that is not covered must be small, whatever its placeholder: Retrace then stops at its value
    unlike = torch.zeros_like(choice.logits[:-1]).scatter_(-1, choice.action.unsqueeze(-1), FOREIGN)
    return Rollout(
        obs={"hidden": hidden.float(), "logits": choice.logits.float()},
        first=torch.cat([torch.ones_like(cut[:1]), cut]),
        action=choice.action,
        reward=torch.where(after_end, 0.0, reward.float()),
        discount=(~cut).float(),
        behaviour_logits=(choice.logits[:-1] + unlike * ~choice.covered.unsqueeze(-1)).float(),
        valid=choice.covered & ~after_end,
    )


class Credit(NamedTuple):
    credit: Tensor  # [T, B] how much better a step was than expected, in units of its usual spread; 0 where not covered
    state: RuleState  # hand it in the next time


@torch.no_grad()
def credit_from_rollout(
    rule: DiscoRule,
    adapter: CreditAdapter,
    rollout: Rollout,
    state: RuleState | None = None,
    target_adapter: CreditAdapter | None = None,
) -> Credit:
    """The rule's normalised advantages of completions (`completion_rollout`), [T, B]."""
    online = see(adapter, rule, rollout)
    target = see(target_adapter, rule, rollout) if target_adapter is not None else online
    _, state, found = rule.explain(state or rule.start(), Experience(rollout, online, target))
    credit = found.values.normalised_advantage
    return Credit(credit if rollout.valid is None else credit * rollout.valid, state)


def group_advantages(reward: Tensor) -> Tensor:
    """How much better a completion [..., G] was than the others of its group, in units of the group's spread."""
    if reward.shape[-1] < 2:
        raise DiscorlError("a group needs at least 2 completions to compare")
    centred = reward - reward.mean(-1, keepdim=True)
    return centred / (reward.std(-1, keepdim=True) + GROUP_EPS)


def modulate(advantage: Tensor, credit: Tensor, strength: float = 1.0, valid: Tensor | None = None) -> Tensor:
    """Advantages [B] of completions spread over their steps [T, B] by `advantage + strength·credit`.

    Where `valid` is False the step keeps the completion's advantage alone.
    """
    if advantage.shape != credit.shape[1:]:
        raise DiscorlError(f"advantages {list(advantage.shape)} do not fit credit {list(credit.shape)} [T, B]")
    return advantage + strength * (credit if valid is None else credit * valid)
