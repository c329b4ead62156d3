"""Agents' networks: a torso of your own with heads and an action model around it, or a network all of your own.

What the trainer asks of a network is `AgentNetwork`. The action model is written for one given action per state, which
makes the cheap things cheap: what does not depend on the action is computed once, acting touches no model head, and the
loss differentiates the taken action only.
"""

from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from discorl.errors import DiscorlError
from discorl.rule_config import DiscoConfig
from discorl_torch.meta_network import forget_bias, lstm_gates
from discorl_torch.torsos import init_linear, mlp_layers
from discorl_torch.trees import as_tensors, leaves, shapes, tree_map
from discorl_torch.types import ActionOutput, StateOutput, Tree

HEAD_SCALE = 1e-2  # policies start close to uniform


@runtime_checkable
class AgentNetwork(Protocol):
    """The contract between a network and the trainer; implementations are `nn.Module`s."""

    def initial_memory(self, batch: int) -> Tree:
        """Memory at birth, [B, ...] in every leaf; () if feed-forward."""
        ...

    def act(self, obs: Tree, first: Tensor, memory: Tree) -> tuple[Tensor, Tree]:
        """Logits [B, A] for obs [B, ...] and the memory after it. `first` [B]: memory is to be forgotten before."""
        ...

    def unroll(self, obs: Tree, first: Tensor, memory: Tree) -> tuple[StateOutput, Any]:
        """Outputs for obs [T, B, ...] in time order, and what `model` needs of them."""
        ...

    def model(self, root: Any, action: Tensor | int, *, aux: bool) -> ActionOutput:
        """Outputs for one action per state, [T, B], or the same everywhere. `aux_pi` only if asked for.

        `root` is that of `unroll` or a stretch of time of it: a tree of tensors [T, B, ...].
        """
        ...


class ModelRoot(NamedTuple):
    gates: Tensor  # [T, B, 4H] the hidden state's share of the gates, the same for every action
    cell: Tensor  # [T, B, H]


class DiscoAgent(nn.Module):
    """The reference agent around any torso.

    `torso` maps a batch of observations [N, ...] to embeddings [N, E]. A recurrent one has a method
    `initial_memory(batch)` and maps (obs [T, B, ...], first [T, B], memory) to (embeddings [T, B, E], memory).
    `example_obs` is one observation, without batch axes, in any nesting of tuples and dicts. `rule` tells the sizes of
    the heads.
    """

    def __init__(
        self,
        torso: nn.Module,
        example_obs: Tree,
        num_actions: int,
        *,
        rule: DiscoConfig | Any = None,
        model_width: int = 128,
        head_hidden: tuple[int, ...] = (128,),
    ):
        super().__init__()
        config = DiscoConfig() if rule is None else getattr(rule, "config", rule)
        self.num_actions, self.torso = num_actions, torso
        self.example_obs = as_tensors(example_obs)
        width = self._embedding_width(self.example_obs)
        self.logits = init_linear(width, num_actions, scale=HEAD_SCALE)
        self.y = init_linear(width, config.predictions, scale=HEAD_SCALE)
        self.cell = init_linear(width, model_width)
        self.lstm = init_linear(num_actions + model_width, 4 * model_width)  # on [one-hot action, hidden]
        self.z = mlp_layers(model_width, (*head_hidden, config.predictions))
        self.aux_pi = mlp_layers(model_width, (*head_hidden, num_actions))
        self.q = mlp_layers(model_width, (*head_hidden, config.value_bins))

    @property
    def remembers(self) -> bool:
        """Whether learning needs the memory that acting had."""
        return hasattr(self.torso, "initial_memory")

    def initial_memory(self, batch: int) -> Tree:
        return self.torso.initial_memory(batch) if self.remembers else ()  # pyright: ignore[reportCallIssue]

    def embed(self, obs: Tree, first: Tensor, memory: Tree) -> tuple[Tensor, Tree]:
        if self.remembers:
            return self.torso(obs, first, memory)
        flat = self.torso(tree_map(lambda x: x.flatten(0, 1), obs))
        return flat.unflatten(0, first.shape), memory

    def act(self, obs: Tree, first: Tensor, memory: Tree) -> tuple[Tensor, Tree]:
        embedding, memory = self.embed(tree_map(lambda x: x.unsqueeze(0), obs), first.unsqueeze(0), memory)
        return self.logits(embedding[0]), memory

    def unroll(self, obs: Tree, first: Tensor, memory: Tree) -> tuple[StateOutput, ModelRoot]:
        embedding, _ = self.embed(obs, first, memory)
        cell = self.cell(embedding)
        gates = F.linear(cell.tanh(), self.lstm.weight[:, self.num_actions :], forget_bias(self.lstm.bias))
        return StateOutput(logits=self.logits(embedding), y=self.y(embedding)), ModelRoot(gates, cell)

    def model(self, root: ModelRoot, action: Tensor | int, *, aux: bool) -> ActionOutput:
        of_actions = self.lstm.weight[:, : self.num_actions].t()  # [A, 4H]
        if isinstance(action, int):
            gates = root.gates + of_actions[action]
        else:  # a product adds faster than an index does, and far faster backwards
            one_hot = F.one_hot(action, self.num_actions).to(of_actions.dtype).flatten(0, -2)
            gates = torch.addmm(root.gates.flatten(0, -2), one_hot, of_actions).view_as(root.gates)
        hidden = lstm_gates(gates, root.cell).hidden
        return ActionOutput(z=self.z(hidden), q=self.q(hidden), aux_pi=self.aux_pi(hidden) if aux else None)

    def forward(self, obs: Tree, first: Tensor | None = None, memory: Tree = ()) -> dict[str, Tensor]:
        """Everything for obs [T, B, ...], all actions included, as a mapping. Learning and acting need less."""
        if first is None:
            leaf = next(leaves(obs))
            first = torch.zeros(leaf.shape[:2], dtype=torch.bool, device=leaf.device)
        state, root = self.unroll(obs, first.bool(), memory or self.initial_memory(first.shape[1]))
        actions = [self.model(root, a, aux=True)._asdict() for a in range(self.num_actions)]
        return state._asdict() | {key: torch.stack([out[key] for out in actions], -2) for key in ("z", "q", "aux_pi")}

    def _embedding_width(self, example_obs: Tree) -> int:
        obs = tree_map(lambda x: x.expand(2, 3, *x.shape), example_obs)
        with torch.no_grad():
            try:
                out, _ = self.embed(obs, torch.zeros(2, 3, dtype=torch.bool), self.initial_memory(3))
            except (RuntimeError, TypeError, ValueError, KeyError, IndexError) as error:
                reason = str(error).splitlines()[0]
                raise DiscorlError(f"the torso does not run on observations {shapes(obs, 2)}: {reason}") from error
        if not isinstance(out, Tensor) or out.dim() != 3 or out.shape[:2] != (2, 3):
            got = list(out.shape) if isinstance(out, Tensor) else type(out).__name__
            raise DiscorlError(f"the torso must emit one vector per observation, [2, 3, E] here, but emits {got}")
        return out.shape[-1]
