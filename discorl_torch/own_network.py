"""A whole network of one's own as an agent, and the check that a network emits what a rule needs.

The module maps (obs [T, B, ...], first [T, B]) to a mapping with

    logits [T, B, A]   y [T, B, Y]   z [T, B, A, Y]   q [T, B, A, K]   aux_pi [T, B, A, A]

where `first` is 1 where an episode begins. It may take the memory at the start as a third argument. To act with a
memory it has `forward_step(obs [B, ...], memory) -> (mapping, memory)` and `init_lstm_state(batch, device) -> memory`.
"""

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from discorl.errors import DiscorlError, near_matches
from discorl.rule_config import DiscoConfig
from discorl_torch.agent import AgentNetwork
from discorl_torch.trees import leaves, shapes, tree_map
from discorl_torch.types import ActionOutput, StateOutput, Tree

KEYS = ("logits", "y", "z", "q", "aux_pi")


class OwnNetwork(nn.Module):
    """Makes such a module an `AgentNetwork`. It computes all heads of all actions; `DiscoAgent` computes less."""

    def __init__(self, module: nn.Module):
        super().__init__()
        self.module = module
        self.arguments = _positional_arguments(module.forward)
        self.remembers = self.arguments > 2

    def initial_memory(self, batch: int) -> Tree:
        make = getattr(self.module, "init_lstm_state", None)
        memory = make(batch, _device(self)) if make else ()
        return () if memory is None else memory

    def act(self, obs: Tree, first: Tensor, memory: Tree) -> tuple[Tensor, Tree]:
        step = getattr(self.module, "forward_step", None)
        if step is None:
            out = self._call(tree_map(lambda x: x.unsqueeze(0), obs), first.unsqueeze(0), memory)
            return out["logits"][0], memory
        fresh = self.initial_memory(first.shape[0])
        memory = tree_map(lambda new, old: torch.where(_beside(first, old), new, old), fresh, memory)
        out, memory = step(obs, memory)
        return out["logits"], () if memory is None else memory

    def unroll(self, obs: Tree, first: Tensor, memory: Tree) -> tuple[StateOutput, Any]:
        out = self._call(obs, first, memory)
        return StateOutput(out["logits"], out["y"]), {key: out[key] for key in ("z", "q", "aux_pi")}

    def model(self, root: Any, action: Tensor | int, *, aux: bool) -> ActionOutput:
        def take(x: Tensor) -> Tensor:
            if isinstance(action, int):
                return x[..., action, :]
            index = action[..., None, None].expand(*action.shape, 1, x.shape[-1])
            return x.gather(-2, index).squeeze(-2)

        return ActionOutput(take(root["z"]), take(root["q"]), take(root["aux_pi"]) if aux else None)

    def _call(self, obs: Tree, first: Tensor, memory: Tree) -> Mapping[str, Tensor]:
        out = self.module(*(obs, first.float(), memory)[: max(1, min(3, self.arguments))])
        if not isinstance(out, Mapping):
            raise DiscorlError(f"an agent must emit a mapping with {', '.join(KEYS)}, but this one emits {type(out)}")
        if missing := [key for key in KEYS if key not in out]:
            hint = near_matches(missing[0], out)
            raise DiscorlError(
                f"the agent's output has no {missing[0]!r}, but the rule needs {', '.join(KEYS)}; {hint}"
            )
        return out


def as_network(agent: nn.Module) -> AgentNetwork:
    """The agent itself if it keeps the contract of `AgentNetwork`, else wrapped as a network of one's own."""
    return agent if isinstance(agent, AgentNetwork) else OwnNetwork(agent)


def check_network(network: AgentNetwork, config: DiscoConfig, obs: Tree) -> int:
    """Raises with both sides in the text if the network does not emit what the rule needs; returns A.

    `obs` is any [T, B, ...].
    """
    lead = next(leaves(obs)).shape[:2]
    first = torch.zeros(lead, dtype=torch.bool, device=next(leaves(obs)).device)
    with torch.no_grad():
        try:
            state, root = network.unroll(obs, first, network.initial_memory(lead[1]))
            action = network.model(root, 0, aux=True)
        except (RuntimeError, TypeError, ValueError, KeyError, IndexError) as error:
            reason = str(error).splitlines()[0]
            raise DiscorlError(f"the agent does not run on observations {shapes(obs)} [T, B, ...]: {reason}") from error
    num_actions = state.logits.shape[-1]
    sizes = {"logits": num_actions, "y": config.predictions, "z": config.predictions, "q": config.value_bins}
    wanted = {key: [*lead, size] for key, size in (sizes | {"aux_pi": num_actions}).items()}
    got = {key: list(x.shape) for key, x in (state._asdict() | action._asdict()).items()}
    if got != wanted:
        raise DiscorlError(
            f"the agent emits {_row(got)} (z, q, aux_pi per action), but this rule needs {_row(wanted)}; "
            "DiscoAgent(..., rule=rule) has the sizes that a rule asks for"
        )
    return num_actions


def _row(sides: dict[str, list[int]]) -> str:
    return ", ".join(f"{key} {size}" for key, size in sides.items())


def _positional_arguments(function: Any) -> int:
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(function).parameters.values()
    return 2 if any(p.kind is p.VAR_POSITIONAL for p in parameters) else sum(p.kind in kinds for p in parameters)


def _device(module: nn.Module) -> torch.device:
    return next((p.device for p in module.parameters()), torch.device("cpu"))


def _beside(first: Tensor, x: Tensor) -> Tensor:
    return first.reshape(-1, *[1] * (x.dim() - 1))
