"""What training tells: where a run stands, and what came out of it."""

import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import PyTree

from discorl import evaluation
from discorl.envs import Environment, HostEnvironment
from discorl.networks import AgentNetwork
from discorl.settings import Settings


class Progress(NamedTuple):
    """Where a run stands. `phase` is 'compiling', 'training' or 'evaluating'."""

    phase: str
    updates: int
    total: int
    steps: int  # of the environment, of each agent
    episode_return: float = math.nan  # of the latest episodes, mean over agents
    speed: float = math.nan  # environment steps per second, all agents together
    seconds_left: float = math.nan


class TrainResult(NamedTuple):
    """What came out. Arrays have one row per agent; returns are NaN where no episode ended."""

    settings: Settings  # the effective ones
    env: Environment | HostEnvironment
    network: AgentNetwork
    params: PyTree  # [seeds, ...]
    updates: int  # done
    stopped: bool  # before the end, because somebody asked for it
    steps: np.ndarray  # [points] environment steps of each agent
    returns: np.ndarray  # [seeds, points] of the episodes that ended in a stretch
    greedy: np.ndarray  # [seeds, episodes] returns of the final agents, taking their likeliest actions
    sampled: np.ndarray  # [seeds, episodes] the same, drawing actions from their policies
    cut: int  # evaluation episodes that did not end, see `evaluation.longest`
    seconds: float  # spent training
    run_dir: Path | None


def summary(result: TrainResult) -> dict[str, Any]:
    """How a run ended, for machines."""
    scores = {"greedy": result.greedy, "sampled": result.sampled}
    return {
        "env": result.settings.env,
        "rule": result.settings.rule,
        "seeds": result.settings.seeds,
        "updates": result.updates,
        "steps": int(result.steps[-1]) if len(result.steps) else 0,
        "seconds": round(result.seconds, 3),
        "stopped": result.stopped,
        "evaluation": {
            name: {"returns": x.mean(axis=1).tolist(), **evaluation.spread(x.mean(axis=1))._asdict()}
            for name, x in scores.items()
            if x.size
        },
    }
