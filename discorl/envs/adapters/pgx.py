"""pgx: MinAtar and other games for one player.

Masks of legal actions are not used: in the few games of one player that have any (2048), an illegal action loses.
"""

from typing import Any

import jax

from discorl.envs.adapters.libraries import library
from discorl.envs.adapters.pure import RawStep, pure_environment
from discorl.envs.base import Environment
from discorl.errors import DiscorlError, near_matches
from discorl.types import Key


def from_id(name: str) -> Environment:
    full = f"pgx:{name}"
    pgx = library("pgx", "minatar", f"environment {full!r}")
    known = pgx.available_envs()
    if name not in known:
        raise DiscorlError(f"unknown environment {full!r}; {near_matches(name, known)}")
    game = pgx.make(name)
    if game.num_players != 1:
        raise DiscorlError(
            f"environment {full!r} is a game of {game.num_players} players, but an agent here plays alone: "
            "write an environment that plays the others, see examples/own_environment.py"
        )

    def reset(key: Key) -> tuple[Any, Any]:
        state = game.init(key)
        return state, state.observation

    def step(key: Key, state: Any, action: jax.Array) -> tuple[Any, RawStep]:
        state = game.step(state, action, key)
        return state, RawStep(state.observation, state.rewards[0], state.terminated, state.truncated)

    return pure_environment(full, game.num_actions, reset, step, lambda state: state.observation)


def minatar(game: str) -> Environment:
    """minatar:breakout, as people call it."""
    return from_id(f"minatar-{game.replace('-', '_').lower()}")
