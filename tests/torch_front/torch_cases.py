"""Recorded figures as tensors, and small rules, agents and rollouts to test with."""

import json
import math
import zlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from discorl.rule_config import DiscoConfig, array_shapes
from discorl_torch.agent import DiscoAgent
from discorl_torch.rule import DiscoRule
from discorl_torch.torsos import MLPTorso
from discorl_torch.types import Rollout

GOLDEN = Path(__file__).parents[1] / "golden"
TINY = DiscoConfig(
    predictions=6, value_bins=9, max_value=4.0, trajectory_width=8, lifetime_width=5, prediction_embedding=(4, 1),
    action_channels=(4, 2), policy_channels=(3,), lifetime_inputs=4,
)  # fmt: skip
Data = Mapping[str, np.ndarray]


def load(name: str) -> dict[str, np.ndarray]:
    with np.load(GOLDEN / f"{name}.npz", allow_pickle=False) as data:
        return {key: data[key] for key in data.files}


def settings(data: Data) -> dict:
    return json.loads(str(data["cfg"]))


def seeded_arrays(seed: int, config: DiscoConfig = DiscoConfig()) -> dict[str, np.ndarray]:
    arrays = {}
    for name, shape in array_shapes(config).items():
        rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
        scale = 0.1 if len(shape) < 2 else 1 / math.sqrt(math.prod(shape[:-1]))
        arrays[name] = (rng.standard_normal(shape).astype(np.float32) * np.float32(scale)).astype(np.float32)
    return arrays


def recorded_rollout(data: Data, step: int) -> Rollout:
    """The recorded layout stores rewards with the observation they arrived with; ours with the action they follow."""
    get = {key: torch.tensor(data[f"step{step}/rollout/{key}"]) for key in ("observations", "actions", "rewards")}
    ended = torch.tensor(data[f"step{step}/rollout/discounts"]) == 0
    return Rollout(
        obs=get["observations"],
        first=ended,
        action=get["actions"][:-1].long(),
        reward=get["rewards"][1:],
        discount=1 - ended[1:].float(),
        behaviour_logits=torch.tensor(data[f"step{step}/rollout/behaviour_logits"])[:-1],
    )


def agent_arrays(data: Data, prefix: str) -> dict[str, Tensor]:
    """Recorded parameters under the names of `DiscoAgent`; linear weights are stored transposed there."""
    layers = {f"torso.layers.{2 * i}": f"~_embedding_pass/torso/~/linear_{i}" for i in range(2)}
    layers |= {"logits": "~_head_pass/torso_head/~/linear_0", "y": "~_head_pass/torso_head_1/~/linear_0"}
    layers |= {"cell": "linear", "lstm": "action_cond/linear"}
    for ours, theirs in {"z": "mlp", "aux_pi": "mlp_1", "q": "mlp_2"}.items():
        layers |= {f"{ours}.{2 * i}": f"{theirs}/~/linear_{i}" for i in range(2)}
    tensors = {}
    for ours, theirs in layers.items():
        tensors[f"{ours}.weight"] = torch.tensor(data[f"{prefix}/mlp/{theirs}/w"]).t().contiguous()
        tensors[f"{ours}.bias"] = torch.tensor(data[f"{prefix}/mlp/{theirs}/b"])
    return tensors


def recorded_agent(data: Data) -> DiscoAgent:
    cfg = settings(data)
    torso = MLPTorso(math.prod(cfg["obs_shape"]), tuple(cfg["dense"]))
    agent = DiscoAgent(
        torso, np.zeros(cfg["obs_shape"], np.float32), cfg["A"], model_width=cfg["lstm"], head_hidden=tuple(cfg["head"])
    )
    agent.load_state_dict(agent_arrays(data, "agent_params"))
    return agent


def tiny_rule(seed: int = 0, **changes) -> DiscoRule:
    config = replace(TINY, **changes)
    return DiscoRule(config, seeded_arrays(seed, config), "tiny")


def tiny_agent(num_actions: int = 3, obs_size: int = 4, config: DiscoConfig = TINY) -> DiscoAgent:
    torch.manual_seed(0)
    torso = MLPTorso(obs_size, (7,))
    return DiscoAgent(torso, np.zeros(obs_size), num_actions, rule=config, model_width=5, head_hidden=(6,))


def random_rollout(T: int = 5, B: int = 3, A: int = 3, obs_size: int = 4, seed: int = 0) -> Rollout:
    rng = torch.Generator().manual_seed(seed)
    ended = torch.rand(T, B, generator=rng) < 0.3
    first = torch.cat([torch.rand(1, B, generator=rng) < 0.3, ended])
    return Rollout(
        obs=torch.randn(T + 1, B, obs_size, generator=rng),
        first=first,
        action=torch.randint(A, (T, B), generator=rng),
        reward=torch.randn(T, B, generator=rng),
        discount=(~ended).float(),
        behaviour_logits=torch.randn(T, B, A, generator=rng),
    )
