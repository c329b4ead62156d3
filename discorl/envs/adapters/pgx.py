"""pgx: MinAtar and other games for one player; games of several against an opponent that one states.

In a game of several the agent is player 0, who moves first or later as the game draws it, and `pgx:GAME/random` lets
all others draw among their legal moves. What an action leads to is what is seen when it is the agent's turn again; its
rewards on the way are added up. Legal moves are a mask, but in MinAtar, where every move is legal.
"""

from typing import Any

import jax
import jax.numpy as jnp

from discorl.envs.adapters.libraries import library
from discorl.envs.adapters.pure import RawStep, pure_environment
from discorl.envs.base import ACTION_MASK, Environment
from discorl.errors import DiscorlError, near_matches
from discorl.types import Key

OPPONENTS = ("random",)
AGENT = 0  # its seat
MINATAR = "minatar-"


def from_id(name: str) -> Environment:
    """GAME, or GAME/OPPONENT for games of several players."""
    full, (game_name, _, opponent) = f"pgx:{name}", name.partition("/")
    pgx = library("pgx", "minatar", f"environment {full!r}")
    known = pgx.available_envs()
    if game_name not in known:
        raise DiscorlError(f"unknown environment {full!r}; {near_matches(game_name, known)}")
    game = pgx.make(game_name)
    if game.num_players == 1:
        if opponent:
            raise DiscorlError(f"{full!r} names an opponent, but that game has one player: write 'pgx:{game_name}'")
        return _alone(full, game, masked=not game_name.startswith(MINATAR))
    if not opponent:
        raise DiscorlError(
            f"environment {full!r} is a game of {game.num_players} players: say who plays against the agent, "
            f"'pgx:{game_name}/random', or write an environment that does, see examples/own_environment.py"
        )
    if opponent not in OPPONENTS:
        raise DiscorlError(f"unknown opponent {opponent!r} in {full!r}; {near_matches(opponent, OPPONENTS)}")
    return _against_chance(full, game)


def minatar(game: str) -> Environment:
    """minatar:breakout, as people call it."""
    full, name = f"minatar:{game}", game.replace("-", "_").lower()
    pgx = library("pgx", "minatar", f"environment {full!r}")
    known = [each.removeprefix(MINATAR) for each in pgx.available_envs() if each.startswith(MINATAR)]
    if name not in known:
        raise DiscorlError(f"unknown environment {full!r}; {near_matches(name, known)}")
    return from_id(MINATAR + name)


def _seen(state: Any) -> dict[str, jax.Array]:
    return {ACTION_MASK: state.legal_action_mask, "observation": state.observation}


def _alone(full: str, game: Any, masked: bool) -> Environment:
    seen = _seen if masked else lambda state: state.observation

    def reset(key: Key) -> tuple[Any, Any]:
        state = game.init(key)
        return state, seen(state)

    def step(key: Key, state: Any, action: jax.Array) -> tuple[Any, RawStep]:
        state = game.step(state, action, key)
        return state, RawStep(seen(state), state.rewards[AGENT], state.terminated, state.truncated)

    return pure_environment(full, game.num_actions, reset, step, lambda state: state.observation)


def _against_chance(full: str, game: Any) -> Environment:
    def others_turn(carry: tuple[Key, Any, jax.Array]) -> jax.Array:
        _, state, _ = carry
        return (state.current_player != AGENT) & ~(state.terminated | state.truncated)

    def others_move(carry: tuple[Key, Any, jax.Array]) -> tuple[Key, Any, jax.Array]:
        key, state, reward = carry
        key, key_choice, key_step = jax.random.split(key, 3)
        action = jax.random.categorical(key_choice, jnp.where(state.legal_action_mask, 0.0, -jnp.inf))
        state = game.step(state, action, key_step)
        return key, state, reward + state.rewards[AGENT]

    def until_it_is_our_turn(key: Key, state: Any, reward: jax.Array) -> tuple[Any, jax.Array]:
        return jax.lax.while_loop(others_turn, others_move, (key, state, reward))[1:]

    def reset(key: Key) -> tuple[Any, Any]:
        key_game, key_others = jax.random.split(key)
        state, _ = until_it_is_our_turn(key_others, game.init(key_game), jnp.float32(0))
        return state, _seen(state)

    def step(key: Key, state: Any, action: jax.Array) -> tuple[Any, RawStep]:
        key_game, key_others = jax.random.split(key)
        state = game.step(state, action, key_game)
        state, reward = until_it_is_our_turn(key_others, state, state.rewards[AGENT])
        return state, RawStep(_seen(state), reward, state.terminated, state.truncated)

    return pure_environment(full, game.num_actions, reset, step, lambda state: state.observation)
