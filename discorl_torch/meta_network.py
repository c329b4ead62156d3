"""The network η that turns features of experience into targets (Oh et al. 2025, Methods, "Meta-network").

η is a mapping from the published names to tensors; nothing here renames or reorders it.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from discorl.rule_config import DiscoConfig
from discorl_torch.distributions import categorical
from discorl_torch.features import Embedded, Shared, features
from discorl_torch.types import Categorical, LSTMState

Eta = Mapping[str, Tensor]
Activation = Callable[[Tensor], Tensor]

ACTIVATIONS: dict[str, Activation] = {"relu": torch.relu, "silu": F.silu}
TRAJECTORY, LIFETIME = "lstm", "lstm/~/meta_lstm/~unroll"  # prefixes of the two recurrent networks
FORGET_BIAS = 1.0


class MetaInputs(NamedTuple):
    """Predictions as each of the two recurrent networks sees them, and what both share."""

    shared: Shared
    terminal: Tensor  # [T, B]
    online: tuple[Embedded, Embedded]  # for the trajectory network, for the lifetime network
    target: tuple[Embedded, Embedded]


class MetaTargets(NamedTuple):
    pi: Categorical  # [T, B, A]
    y: Categorical  # [T, B, Y]
    z: Categorical  # [T, B, Y]
    summary: Tensor  # [T, B, 1] for the lifetime network


def weight(eta: Eta, name: str) -> Tensor:
    """[inputs, outputs]; a kernel axis of size 1 is dropped."""
    w = eta[f"{name}/w"]
    return w.reshape(w.shape[-2:])


def linear(eta: Eta, name: str, x: Tensor) -> Tensor:
    return F.linear(x, weight(eta, name).t(), eta[f"{name}/b"])


def embed_predictions(eta: Eta, mlp: str, p: Tensor, depth: int) -> tuple[Tensor, Tensor]:
    """Probabilities through the MLP of that name of both recurrent networks, whose first products are made as one."""
    names = [f"{prefix}/{mlp}/~/linear_" for prefix in (TRAJECTORY, LIFETIME)]
    first = torch.cat([weight(eta, f"{name}0") for name in names], -1)
    bias = torch.cat([eta[f"{name}0/b"] for name in names])
    outs = F.linear(p, first.t(), bias).chunk(2, -1)
    for i in range(1, depth):
        outs = [linear(eta, f"{name}{i}", torch.relu(x)) for name, x in zip(names, outs, strict=True)]
    return outs[0], outs[1]


def _block(eta: Eta, name: str, x: Tensor) -> Tensor:
    own, mean = weight(eta, name).chunk(2)
    return F.linear(x, own.t(), eta[f"{name}/b"]) + x.mean(-2, keepdim=True) @ mean


def action_blocks(eta: Eta, names: list[str], x: Tensor, activation: Activation) -> Tensor:
    """Each block sees an action's channels beside their mean over actions: any number of actions, in any order."""
    for name in names:
        x = activation(_block(eta, name, x))
    return x


def block_names(prefix: str, count: int) -> list[str]:
    return [f"{prefix}/conv1_d{f'_{i}' if i else ''}" for i in range(count)]


def forget_bias(bias: Tensor) -> Tensor:
    """The bias of an LSTM's gates i, g, f, o with the constant that its forget gate is opened by."""
    width = bias.shape[0] // 4
    return torch.cat([bias[: 2 * width], bias[2 * width : 3 * width] + FORGET_BIAS, bias[3 * width :]])


def lstm_gates(gates: Tensor, cell: Tensor) -> LSTMState:
    """c' = σ(f)·c + σ(i)·tanh(g), h' = σ(o)·tanh(c'), the four side by side as i, g, f, o; see `forget_bias`."""
    i, g, f, o = gates.chunk(4, -1)
    cell = torch.addcmul(f.sigmoid() * cell, i.sigmoid(), g.tanh())
    return LSTMState(hidden=o.sigmoid() * cell.tanh(), cell=cell)


def lstm_backwards(eta: Eta, name: str, x: Tensor, reset: Tensor) -> Tensor:
    """From the last step to the first, from a zero state, which `reset` restores before the step it marks.

    The product of all inputs is made at once; only the product of the hidden state is left to the loop.
    """
    w = weight(eta, name)
    inputs, recurrent = w[: x.shape[-1]], w[x.shape[-1] :]
    # the bias as the weight of one more input that is always 1: torch would write it to all of `gates` first
    inputs = torch.cat([inputs, forget_bias(eta[f"{name}/b"]).unsqueeze(0)])
    gates = F.pad(x, (0, 1), value=1.0) @ inputs  # [T, B, 4H]
    keep = (~reset).to(x.dtype).unsqueeze(-1)
    hidden = cell = x.new_zeros(x.shape[1], recurrent.shape[0])
    outs = []
    for t in reversed(range(x.shape[0])):
        hidden, cell = lstm_gates(torch.addmm(gates[t], hidden * keep[t], recurrent), cell * keep[t])
        outs.append(hidden)
    return torch.stack(outs[::-1])


def _recurrent_inputs(
    eta: Eta, prefix: str, config: DiscoConfig, shared: Shared, seen: tuple[Embedded, Embedded]
) -> tuple[Tensor, Tensor]:
    """Per-step inputs [T, B, F] of a recurrent network, and the encoded actions [T, B, A, D]."""
    step, action = features(shared, *seen)
    names = block_names(f"{prefix}/sequential", len(config.action_channels))
    encoded = action_blocks(eta, names, action, ACTIVATIONS[config.activation])
    return torch.cat([step, encoded.mean(-2), (shared.taken * encoded).sum(-2)], -1), encoded


def policy_target(eta: Eta, config: DiscoConfig, x: Tensor, encoded: Tensor) -> Tensor:
    """Blocks on [x, encoded action]. x is the same for every action, so its product is made once, not A times."""
    activation = ACTIVATIONS[config.activation]
    first, *rest = block_names("lstm/sequential_1", len(config.policy_channels))
    own, mean = weight(eta, first).chunk(2)
    width = x.shape[-1]
    from_x = F.linear(x, (own[:width] + mean[:width]).t(), eta[f"{first}/b"])  # the mean of x over actions is x
    from_actions = encoded @ own[width:] + encoded.mean(-2, keepdim=True) @ mean[width:]
    hidden = action_blocks(eta, rest, activation(from_x.unsqueeze(-2) + from_actions), activation)
    return linear(eta, "lstm/linear_4", hidden).squeeze(-1)


def apply_meta_network(
    eta: Eta, config: DiscoConfig, lifetime: LSTMState, inputs: MetaInputs
) -> tuple[MetaTargets, LSTMState]:
    """Targets for every step, and the lifetime state after this update.

    The trajectory network runs backwards, so that a step's target knows what came of it; the lifetime state of
    *before* this update gates what it says.
    """
    fast, slow = zip(inputs.online, inputs.target, strict=True)
    x, encoded = _recurrent_inputs(eta, TRAJECTORY, config, inputs.shared, fast)
    x = lstm_backwards(eta, "lstm/lstm/linear", x, inputs.terminal)
    x = x * linear(eta, "lstm/linear", lifetime.hidden)
    targets = MetaTargets(
        pi=categorical(policy_target(eta, config, x, encoded)),
        y=categorical(linear(eta, "lstm/linear_2", x)),
        z=categorical(linear(eta, "lstm/linear_3", x)),
        summary=linear(eta, "lstm/linear_1", x),
    )
    step, _ = _recurrent_inputs(eta, LIFETIME, config, inputs.shared, slow)
    y_hat = embed_predictions(eta, "mlp", targets.y.p, len(config.prediction_embedding))[1]
    mean = torch.cat([step, targets.summary, y_hat], -1).mean((0, 1))  # a mean commutes with the linear layer after it
    seen = torch.cat([linear(eta, f"{LIFETIME}/mlp_2/~/linear_0", mean), lifetime.hidden])
    name = f"{LIFETIME}/lstm/linear"
    gates = F.linear(seen, weight(eta, name).t(), forget_bias(eta[f"{name}/b"]))
    return targets, lstm_gates(gates, lifetime.cell)
