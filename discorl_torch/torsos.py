"""Observations to embeddings: for vectors (and anything that can be flattened), pixels, and with a memory."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from discorl_torch.meta_network import forget_bias, lstm_gates
from discorl_torch.trees import leaves, tree_map
from discorl_torch.types import Tree


def init_linear(inputs: int, outputs: int, scale: float | None = None) -> nn.Linear:
    """Weights from a normal distribution cut at two standard deviations, 1/√inputs unless told; no bias at first."""
    layer = nn.Linear(inputs, outputs)
    scale = 1 / math.sqrt(inputs) if scale is None else scale
    nn.init.trunc_normal_(layer.weight, std=scale, a=-2 * scale, b=2 * scale)
    nn.init.zeros_(layer.bias)
    return layer


def mlp_layers(inputs: int, widths: tuple[int, ...]) -> nn.Sequential:
    """Linear layers with ReLU between them, none after the last."""
    layers: list[nn.Module] = []
    for width in widths:
        layers += [init_linear(inputs, width), nn.ReLU()]
        inputs = width
    return nn.Sequential(*layers[:-1])


class MLPTorso(nn.Module):
    """All entries of an observation, flattened and side by side, through `hidden`; the torso of the reference agent."""

    def __init__(self, inputs: int, hidden: tuple[int, ...] = (512, 512)):
        super().__init__()
        self.layers = mlp_layers(inputs, hidden)

    def forward(self, obs: Tree) -> Tensor:
        return self.layers(torch.cat([x.flatten(1).float() for x in leaves(obs)], -1))


class ConvTorso(nn.Module):
    """Pixels [N, C, H, W], bytes or floats, through residual stages that halve the image (Espeholt et al. 2018)."""

    def __init__(self, shape: tuple[int, int, int], channels: tuple[int, ...] = (16, 32, 32), width: int = 256):
        super().__init__()
        inputs, height, breadth = shape
        stages: list[nn.Module] = []
        for count in channels:
            stages += [_Stage(inputs, count)]
            inputs, height, breadth = count, (height + 1) // 2, (breadth + 1) // 2
        self.stages = nn.Sequential(*stages)
        self.out = init_linear(inputs * height * breadth, width)

    def forward(self, obs: Tensor) -> Tensor:
        x = obs.float() / 255 if obs.dtype == torch.uint8 else obs
        return self.out(self.stages(x).relu().flatten(1))


class _Stage(nn.Module):
    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        self.enter = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.ReLU(),
                nn.Conv2d(outputs, outputs, 3, padding=1),
                nn.ReLU(),
                nn.Conv2d(outputs, outputs, 3, padding=1),
            )
            for _ in range(2)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(self.enter(x), 3, stride=2, padding=1)
        for block in self.blocks:
            x = x + block(x)
        return x


class RecurrentTorso(nn.Module):
    """Any feed-forward torso with an LSTM after it, forgotten where an episode begins."""

    def __init__(self, torso: nn.Module, inputs: int, width: int = 256):
        super().__init__()
        self.torso, self.width = torso, width
        self.lstm = init_linear(inputs + width, 4 * width)

    def initial_memory(self, batch: int) -> tuple[Tensor, Tensor]:
        zeros = self.lstm.weight.new_zeros(batch, self.width)
        return zeros, zeros.clone()

    def forward(self, obs: Tree, first: Tensor, memory: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        x = self.torso(tree_map(lambda leaf: leaf.flatten(0, 1), obs)).unflatten(0, first.shape)
        inputs = x.shape[-1]
        gates = F.linear(x, self.lstm.weight[:, :inputs], forget_bias(self.lstm.bias))
        recurrent = self.lstm.weight[:, inputs:].t()
        keep = (~first).to(x.dtype).unsqueeze(-1)
        hidden, cell = memory
        outs = []
        for t in range(x.shape[0]):
            hidden, cell = lstm_gates(torch.addmm(gates[t], hidden * keep[t], recurrent), cell * keep[t])
            outs.append(hidden)
        return torch.stack(outs), (hidden, cell)
