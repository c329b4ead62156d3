"""The smallest training that still has everything in it."""

from pathlib import Path
from typing import Any

CACHE = str(Path(__file__).parents[1] / ".pytest_cache" / "jax")  # of compiled programs, for all tests
ENV, RULE = "catch:4x3", "actor_critic"
SIZES: dict[str, Any] = {
    "updates": 6,
    "envs": 2,
    "batch": 4,
    "rollout": 5,
    "replay_size": 8,
    "hidden": (8,),
    "log_every": 2,
    "eval_episodes": 4,
}
FLAGS = [
    text for name, x in SIZES.items() for text in (f"--{name.replace('_', '-')}", str(x[0] if name == "hidden" else x))
]
