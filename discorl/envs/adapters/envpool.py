"""envpool: Procgen's games by their names, and anything else of envpool by its id. It steps in threads of its own.

Procgen: Cobbe et al. 2020 (https://arxiv.org/abs/1912.01588).
"""

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from discorl.envs.adapters.gym import NextStep
from discorl.envs.adapters.libraries import library
from discorl.envs.base import EnvSpec
from discorl.envs.host import HostEnvironment, HostStep
from discorl.envs.spaces import Actions, Observations, flat_actions, observations
from discorl.errors import DiscorlError, near_matches
from discorl.types import Observation

PROCGEN_ID = re.compile(r"([A-Z][a-z]+)(Easy|Hard|Extreme|Memory|Exploration)-v0")
LEVELS = re.compile(r"([1-9][0-9]*)|([0-9]+)-([0-9]+)")
HOW_TO_WRITE = "write procgen:GAME, then /easy, /hard, ..., then /200 for 200 levels or /500-699 for certain ones"
MAX_LEVEL = 2**31 - 2
NO_CLOCK = 2**31 - 1  # what envpool calls endless


def procgen(text: str) -> HostEnvironment:
    """GAME[/KIND[/LEVELS]]: without a kind easy, without levels all there are. LEVELS is how many, or FROM-TO."""
    full = f"procgen:{text}"
    envpool = library("envpool", "procgen", f"environment {full!r}")
    kinds: dict[str, list[str]] = {}
    for match in filter(None, map(PROCGEN_ID.fullmatch, envpool.list_all_envs())):
        kinds.setdefault(match[1].lower(), []).append(match[2].lower())
    game, kind, levels, *rest = [*text.split("/"), "", ""]
    if game not in kinds:
        raise DiscorlError(f"unknown environment {full!r}; {near_matches(game, kinds)}")
    kind = kind or "easy"
    if kind not in kinds[game]:
        raise DiscorlError(f"{full!r}: {game} comes as {', '.join(kinds[game])}, not as {kind!r}; {HOW_TO_WRITE}")
    options = _levels(levels, full, rest=[x for x in rest if x])
    return _environment(envpool, f"{game.capitalize()}{kind.capitalize()}-v0", full, channel_first=False, **options)


def _levels(text: str, full: str, rest: list[str]) -> dict[str, int]:
    if not text and not rest:
        return {"num_levels": 0, "start_level": 0}  # all of them
    match = LEVELS.fullmatch(text)
    if match is None or rest:
        raise DiscorlError(f"{full!r} does not say which levels; {HOW_TO_WRITE}")
    start, stop = (0, int(match[1])) if match[1] else (int(match[2]), int(match[3]) + 1)
    if not start < stop <= MAX_LEVEL:
        raise DiscorlError(f"{full!r} asks for no levels: they count up, from 0 to {MAX_LEVEL - 1}")
    return {"num_levels": stop - start, "start_level": start}


def from_id(name: str) -> HostEnvironment:
    """Anything that envpool lists and an agent of discrete actions can play, as envpool makes it."""
    full = f"envpool:{name}"
    envpool = library("envpool", "procgen", f"environment {full!r}")
    known = envpool.list_all_envs()
    if name not in known:
        near = near_matches(name, known)
        hint = near if near.startswith("did") else "`python -c 'import envpool; print(envpool.list_all_envs())'` lists"
        raise DiscorlError(f"unknown environment {full!r}; {hint}")
    return _environment(envpool, name, full)


def _environment(envpool: Any, task: str, full: str, **options: Any) -> HostEnvironment:
    owner = f"environment {full!r}"

    def make(size: int, seed: int) -> Any:
        try:
            return envpool.make(task, "gymnasium", num_envs=size, seed=seed, **options)
        except ImportError as error:
            if "qt" not in str(error).lower():
                raise DiscorlError(f"{owner} is not made by envpool, because importing it says: {error}") from error
            raise DiscorlError(
                f"{owner} needs the library Qt 5 of the system; on Debian and Ubuntu: "
                "apt install libqt5gui5 libqt5core5a"
            ) from error

    example = make(1, 0)
    actions = flat_actions(example.single_action_space, owner)
    seen = observations(example.single_observation_space, owner)
    limit = int(example.config["max_episode_steps"])
    example.close()
    spec = EnvSpec(full, actions.total, seen.spec, actions.names, time_limit=limit if limit < NO_CLOCK else 0)
    return HostEnvironment(spec, lambda size, render: Pool(make, size, actions, seen))


class Pool:
    """A vector that a reset makes anew: envpool takes a seed when it makes one, and never again."""

    def __init__(self, make: Callable[[int, int], Any], size: int, actions: Actions, seen: Observations) -> None:
        self._make, self._size, self._actions, self._seen = make, size, actions, seen
        self._pool: Any = None

    @property
    def size(self) -> int:
        return self._size

    def reset(self, seed: int) -> Observation:
        self.close()
        self._pool = self._make(self._size, int(seed) & 0x7FFFFFFF)
        self._steps = NextStep(self._pool, self._actions, self._seen)
        self._shown = self._steps.reset(None)
        return self._shown

    def step(self, action: np.ndarray) -> HostStep:
        came = self._steps.step(action)
        self._shown = came.obs
        return came

    def render(self) -> np.ndarray | None:
        """What is seen, where that is a coloured picture."""
        seen = self._shown
        coloured = isinstance(seen, np.ndarray) and seen.dtype == np.uint8 and seen.ndim == 4 and seen.shape[-1] == 3
        return seen[0] if coloured else None

    def close(self) -> None:
        if self._pool is not None:
            self._pool.close()
