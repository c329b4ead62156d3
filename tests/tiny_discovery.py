"""The smallest discovery that still has everything in it."""

from typing import Any

SIZES: dict[str, Any] = {
    "suite": "catch",
    "meta_steps": 4,
    "agents": 2,
    "window": 2,
    "envs": 3,
    "batch": 4,
    "rollout": 4,
    "replay_size": 6,
    "replay_share": 0.5,
    "validation_envs": 2,
    "validation_rollout": 4,
    "hidden": (6,),
    "model_width": 4,
    "head_hidden": (4,),
    "predictions": 5,
    "value_bins": 5,
    "max_value": 3.0,
    "trajectory_width": 5,
    "lifetime_width": 4,
    "prediction_embedding": (3, 1),
    "action_channels": (3, 2),
    "policy_channels": (3,),
    "lifetime_inputs": 3,
    "value_hidden": (6,),
    "lifetimes": (6,),
    "log_every": 2,
    "snapshot_every": 2,
    "checkpoint_every": 2,
}
FLAGS = [
    text
    for name, x in SIZES.items()
    for text in (f"--{name.replace('_', '-')}", ",".join(map(str, x)) if isinstance(x, tuple) else str(x))
]
