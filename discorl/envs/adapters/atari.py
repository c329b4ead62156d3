"""Atari 2600 games through ale-py's vector of environments, which steps them in threads of its own.

Raw rewards, 84×84 grey frames, four of them stacked, each action repeated four times, sticky actions (probability
1/4), up to 30 actions of nothing at the start, whole games as episodes, the game's own set of actions: Machado et al.
2018 (https://arxiv.org/abs/1709.06009) but for its full action set, which `atari:GAME/full` asks for.
"""

from typing import Any

import jax
import numpy as np

from discorl.envs.adapters.gym import SameStep
from discorl.envs.adapters.libraries import library
from discorl.envs.base import EnvSpec
from discorl.envs.host import HostEnvironment
from discorl.envs.spaces import Observations, flat_actions
from discorl.errors import DiscorlError, near_matches
from discorl.types import Observation

STACK, SIDE, REPEAT = 4, 84, 4
MAX_FRAMES = 108_000  # half an hour of play
OPTIONS = {
    "repeat_action_probability": 0.25,
    "reward_clipping": False,
    "use_fire_reset": False,
    "max_num_frames_per_episode": MAX_FRAMES,
    "stack_num": STACK,
    "frameskip": REPEAT,
}


class Games(SameStep):
    def reset(self, seed: int | None) -> Observation:
        # ale-py takes 32 bits with a sign, and counts up from the first
        return super().reset(None if seed is None else seed % 2**30)


def from_game(text: str) -> HostEnvironment:
    """GAME, or GAME/full for all 18 actions."""
    game, _, actions = text.partition("/")
    full = f"atari:{text}"
    ale_py = library("ale_py", "atari", f"environment {full!r}")
    modes = library("gymnasium.vector", "atari", f"environment {full!r}").AutoresetMode
    known = ale_py.roms.get_all_rom_ids()
    if game not in known or actions not in ("", "full"):
        raise DiscorlError(f"unknown environment {full!r}; {near_matches(game, known)}")

    def vector(size: int) -> Any:
        make = library("ale_py.vector_env", "atari", f"environment {full!r}").AtariVectorEnv
        return make(game, size, full_action_space=actions == "full", autoreset_mode=modes.SAME_STEP, **OPTIONS)

    seen = Observations(jax.ShapeDtypeStruct((SIDE, SIDE, STACK), np.dtype(np.uint8)), _channels_last, _stacked)
    choice = flat_actions(vector(1).single_action_space, f"environment {full!r}")
    spec = EnvSpec(full, choice.total, seen.spec, stack=STACK, time_limit=MAX_FRAMES // REPEAT)
    return HostEnvironment(spec, lambda size, render: Games(vector(size), choice, seen))


def _channels_last(frames: Any) -> np.ndarray:
    return np.ascontiguousarray(np.moveaxis(np.asarray(frames), 1, -1))


def _stacked(rows: Any) -> np.ndarray:
    return _channels_last(np.stack(rows))
