"""Acting: (agent, environments) -> Rollout; and the check of rollouts from elsewhere."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from discorl.errors import DiscorlError
from discorl_torch.environments import Stepper, stepper
from discorl_torch.own_network import as_network
from discorl_torch.trees import as_tensors, leaves, shapes, stack, tree_map
from discorl_torch.types import Rollout, Tree


class ActingState(NamedTuple):
    """What acting carries from one rollout to the next."""

    memory: Tree  # [B, ...]
    first: Tensor  # [B] the coming observation starts an episode
    pending: Tensor  # [B] the coming step is a reset that ignores its action


FutureValue = Callable[[Tree, Tree], Tensor]  # observations [B, ...], memory -> discounted value [B]


@torch.no_grad()
def collect_rollout(  # noqa: PLR0913 (the arguments of disco-torch, so that its users change one import)
    agent: nn.Module,
    env: Any,
    obs: Tree = None,
    state: Any = None,
    rollout_len: int = 29,
    device: torch.device | str | None = None,
    *,
    generator: torch.Generator | None = None,
    future_value: FutureValue | None = None,
) -> tuple[Rollout, Tree, ActingState]:
    """Acts for `rollout_len` steps in B environments that never stop; returns what to hand in the next time, too.

    `env` is a Gymnasium vector environment, in any of its auto-reset modes, or a function that takes actions [B] and
    returns (obs, reward, done) or (obs, reward, terminated, truncated), where obs already begins the next episode of
    those that ended. `obs` are the current observations, none to reset a Gymnasium environment first; `state` is what
    the last call returned, none at first. Without `future_value` an episode that was truncated ends like any other;
    with it (`DiscoTrainer.future_value`) what it would have been worth counts as earned by its last step.
    """
    network = as_network(agent)
    device = device or next((p.device for p in agent.parameters()), torch.device("cpu"))
    step = stepper(env)
    obs = as_tensors(step.reset() if obs is None else obs, device)
    acting = _continue(state, network.initial_memory, next(leaves(obs)).shape[0], device)
    memory = acting.memory if getattr(network, "remembers", True) else ()
    rows: list[tuple[Tensor, ...]] = []
    seen, firsts = [obs], [acting.first]
    for _ in range(rollout_len):
        logits, after = network.act(obs, acting.first, acting.memory)
        action = torch.multinomial(logits.softmax(-1), 1, generator=generator).squeeze(-1)
        obs, acting, row = _advance(step, action, acting._replace(memory=after), device, future_value)
        rows.append((action, *row, logits))
        seen.append(obs)
        firsts.append(acting.first)
    action, reward, rest, discount, valid, logits = (torch.stack(x) for x in zip(*rows, strict=True))
    rollout = Rollout(stack(seen), torch.stack(firsts), action, reward, discount, logits, memory, valid)
    if future_value is not None:
        rollout = rollout._replace(rest=rest)
    return rollout if not valid.all() else rollout._replace(valid=None), obs, acting


def _continue(state: Any, initial_memory: Callable[[int], Tree], batch: int, device: Any) -> ActingState:
    if isinstance(state, ActingState):
        return tree_map(lambda x: x.to(device), state)
    begins = torch.ones(batch, dtype=torch.bool, device=device)
    memory = initial_memory(batch) if state is None else state  # a memory of one's own, at the start
    return ActingState(memory=memory, first=begins, pending=torch.zeros_like(begins))


def _advance(
    step: Stepper, action: Tensor, acting: ActingState, device: Any, future_value: FutureValue | None
) -> tuple[Tree, ActingState, tuple[Tensor, Tensor, Tensor, Tensor]]:
    """One step everywhere: observations, state, and (reward, rest, discount, valid)."""
    after = step(action.cpu().numpy(), acting.pending.cpu().numpy())
    obs = as_tensors(after.obs, device)

    def flag(x: np.ndarray) -> Tensor:
        return torch.as_tensor(x, dtype=torch.bool, device=device)

    reward = torch.as_tensor(after.reward, dtype=torch.float32, device=device)
    ended, valid = flag(after.terminated | after.truncated), ~acting.pending
    cut_short = flag(after.truncated & ~after.terminated) & valid
    rest = torch.zeros_like(reward)
    if future_value is not None and cut_short.any():
        final = as_tensors(after.final_obs if after.final_obs is not None else after.obs, device)
        rest = torch.where(cut_short, future_value(final, acting.memory), 0.0)
    begins = ended | acting.pending
    pending = ended if step.resets_next else torch.zeros_like(ended)
    state = ActingState(memory=acting.memory, first=begins, pending=pending & valid)
    return obs, state, (reward * valid, rest, (~begins).float(), valid)


KEYS = ("observations", "actions", "rewards", "discounts", "agent_out")


def as_rollout(data: Rollout | Mapping[str, Any]) -> Rollout:
    """A rollout from a mapping as disco-torch has it; a `Rollout` is taken as it is."""
    if isinstance(data, Rollout):
        return data
    if missing := [key for key in KEYS if key not in data]:
        raise DiscorlError(f"the rollout has no {missing[0]!r}; a mapping needs {', '.join(KEYS)}")
    if "logits" not in data["agent_out"]:
        raise DiscorlError("the rollout's agent_out has no 'logits'; nothing else of it is needed")
    steps = len(data["rewards"])
    ended = torch.as_tensor(data["discounts"]) == 0
    return Rollout(
        obs=as_tensors(data["observations"]),
        first=torch.cat([torch.zeros_like(ended[:1]), ended]),
        action=torch.as_tensor(data["actions"])[:steps],
        reward=torch.as_tensor(data["rewards"]),
        discount=(~ended).float(),
        behaviour_logits=torch.as_tensor(data["agent_out"]["logits"])[:steps],
    )


def check_rollout(rollout: Rollout) -> None:
    """Raises with one sentence if a rollout cannot be learned from."""
    action = rollout.action
    if action.dtype not in (torch.int64, torch.int32, torch.int16, torch.uint8):
        raise DiscorlError(f"actions must be integers, the index of each, but are {action.dtype}")
    if action.dim() != 2:
        raise DiscorlError(f"actions must be [T, B], but are {list(action.shape)}")
    steps, batch = action.shape
    wanted = {"first": [steps + 1, batch], "reward": [steps, batch], "discount": [steps, batch]}
    for name, shape in wanted.items():
        if (got := list(getattr(rollout, name).shape)) != shape:
            raise DiscorlError(f"{name} is {got}, but actions {[steps, batch]} need {shape}")
    if any(x.shape[:2] != (steps + 1, batch) for x in leaves(rollout.obs)):
        raise DiscorlError(
            f"observations are {shapes(rollout.obs)}, but actions {[steps, batch]} need [{steps + 1}, {batch}, ...]: "
            "one row more, to bootstrap from"
        )
    logits = rollout.behaviour_logits
    if logits.dim() != 3 or logits.shape[:2] != (steps, batch):
        raise DiscorlError(f"behaviour_logits are {list(logits.shape)}, but actions {[steps, batch]} need [T, B, A]")
    if steps and (action.min() < 0 or action.max() >= logits.shape[-1]):
        raise DiscorlError(
            f"actions run from {action.min()} to {action.max()}, but there are {logits.shape[-1]} of them"
        )
    for name in ("reward", "discount", "behaviour_logits"):
        if not torch.isfinite(getattr(rollout, name)).all():
            raise DiscorlError(f"{name} holds NaN or infinite values; look at the environment that gave it")
