"""Settings for whole domains, for `discorl train --preset`; docs/presets.md says where they come from. No JAX."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from discorl import settings
from discorl.errors import DiscorlError, near_matches


@dataclass(frozen=True)
class Preset:
    text: str
    values: Mapping[str, Any] = field(hash=False)  # settings; their length of training is in steps
    warmup: float = 0.0  # share of training until the step size is reached
    cosine: bool = True  # the step size decays to zero over all of training


_PAPER: dict[str, Any] = {
    "agent": "impala-paper",
    "rollout": 29,
    "learning_rate": 3e-4,
    "max_update": 1.0,
    "discount": 0.997,
    "replay_size": 4096,
    "log_every": 100,
    "checkpoint_every": 10_000,
}
_SMALL: dict[str, Any] = {"agent": "impala-small", "envs": 4, "batch": 16, "replay_size": 512, "checkpoint_every": 1000}
# As many environments as a batch has fresh trajectories: each is fresh once, as the paper's share of replay has it.
_ATARI = _PAPER | {"envs": 5, "batch": 96, "replay_share": 0.95, "weight_decay": 0.1, "steps": 50_000_000}
_PROCGEN = _PAPER | {"envs": 19, "batch": 192, "replay_share": 0.9, "weight_decay": 0.1, "steps": 50_000_000}
_PROCGEN |= {"frame_stack": 4}  # those of Atari stack four by themselves
_CRAFTER = _PAPER | {"envs": 1, "batch": 24, "replay_share": 0.99, "weight_decay": 0.3, "steps": 20_000_000}
_CRAFTER |= {"frame_stack": 32, "updates_per_rollout": 4}  # one fresh trajectory in four batches: 0.99
_DMLAB = _PAPER | {"envs": 10, "batch": 96, "replay_share": 0.9, "weight_decay": 0.01, "steps": 50_000_000}
_DMLAB |= {"rollout": 100, "learning_rate": 5e-4, "discount": 0.99, "replay_size": 1024}
_NETHACK = _PAPER | {"envs": 5, "batch": 96, "replay_share": 0.95, "weight_decay": 0.03, "steps": 200_000_000}
_NETHACK |= {"learning_rate": 1e-4, "max_update": 0.3, "frame_stack": 4}
_SOKOBAN = _PAPER | {"envs": 10, "batch": 96, "replay_share": 0.9, "weight_decay": 0.1, "steps": 50_000_000}
_SOKOBAN |= {"frame_stack": 4}
_OURS: dict[str, Any] = {"rollout": 29, "learning_rate": 1e-3, "weight_decay": 0.01, "log_every": 50}

PRESETS = {
    "atari": Preset("the paper's on Atari, for accelerators", _ATARI, warmup=0.025),
    "atari-small": Preset("the same in small, for two cores", _ATARI | _SMALL | {"steps": 2_000_000}, warmup=0.025),
    "procgen": Preset("the paper's on ProcGen, for accelerators", _PROCGEN, warmup=0.02),
    "procgen-small": Preset("the same in small", _PROCGEN | _SMALL | {"steps": 2_000_000}, warmup=0.02),
    "crafter": Preset("the paper's on Crafter, for accelerators", _CRAFTER, cosine=False),
    "crafter-small": Preset(
        "the same in small",
        _CRAFTER | _SMALL | {"frame_stack": 4, "updates_per_rollout": 1, "steps": 1_000_000},
        cosine=False,
    ),
    "dmlab": Preset("the paper's on DMLab-30, for accelerators", _DMLAB, warmup=0.02),
    "dmlab-small": Preset("the same in small", _DMLAB | _SMALL | {"replay_size": 128, "steps": 2_000_000}, warmup=0.02),
    "nethack": Preset("the paper's on NetHack, for accelerators", _NETHACK, warmup=0.05),
    "nethack-small": Preset("the same in small", _NETHACK | _SMALL | {"steps": 2_000_000}, warmup=0.05),
    "sokoban": Preset("the paper's on Sokoban, for accelerators", _SOKOBAN),
    "sokoban-small": Preset("the same in small", _SOKOBAN | _SMALL | {"steps": 2_000_000}),
    "minatar": Preset(
        "MinAtar on two cores",
        _OURS
        | {"agent": "impala-small", "channels": (16,), "hidden": (128,), "learning_rate": 2e-3}
        | {"envs": 4, "batch": 16, "replay_share": 0.75, "replay_size": 16_384, "steps": 2_000_000},
    ),
    "minigrid": Preset(
        "small grids seen through a window, on two cores",
        _OURS
        | {"agent": "lstm", "hidden": (128,), "memory_width": 128}
        | {"envs": 16, "batch": 32, "replay_share": 0.5, "replay_size": 1024, "steps": 1_000_000},
    ),
}


def preset(name: str, **own: Any) -> dict[str, Any]:
    """Settings of a preset, overridden by one's own; its schedule spans the training that is asked for."""
    if name not in PRESETS:
        raise DiscorlError(f"unknown preset {name!r}; {near_matches(name, PRESETS)}")
    chosen = PRESETS[name]
    base = dict(chosen.values)
    if own.get("agent") not in (None, base["agent"]):  # sizes are those of the preset's agent
        base = {key: value for key, value in base.items() if key not in settings.SIZES}
    values = settings.merge(base, own)
    made = settings.make(values)  # says so if something is wrong with them
    assert made.envs is not None
    assert made.rollout is not None
    rollouts = math.ceil((made.steps or 0) / (made.envs * made.rollout))
    updates = made.updates or rollouts * made.updates_per_rollout
    schedule = {"warmup_updates": round(chosen.warmup * updates), "decay_updates": updates if chosen.cosine else 0}
    return schedule | values
