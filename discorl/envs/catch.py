"""Catch: a ball falls, and a paddle must be under it when it lands. Only then is there a reward."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from discorl.envs.base import Environment, EnvSpec, TimeStep
from discorl.errors import DiscorlError
from discorl.types import Key

ROWS, COLUMNS = 8, 8


class CatchState(NamedTuple):
    row: Int[Array, ""]  # of the ball; the paddle never leaves the bottom row
    ball: Int[Array, ""]  # column
    paddle: Int[Array, ""]  # column


def catch(rows: int = ROWS, columns: int = COLUMNS) -> Environment:
    """Catch on a board of any size. An episode has `rows - 1` steps and ends with +1 (caught) or -1 (missed).

    The observation is the board: 1 at the ball and at the paddle, 0 elsewhere.
    """
    if rows < 2 or columns < 1:
        raise DiscorlError(f"a Catch board needs at least 2 rows and 1 column, got {rows}x{columns}")

    def board(state: CatchState) -> Float[Array, "rows columns"]:
        # Compared rather than scattered: many small scatters in a batch are slow.
        row = jnp.arange(rows, dtype=jnp.int32)[:, None]
        column = jnp.arange(columns, dtype=jnp.int32)[None, :]
        ball = (row == state.row) & (column == state.ball)
        paddle = (row == rows - 1) & (column == state.paddle)
        return (ball | paddle).astype(jnp.float32)

    def reset(key: Key) -> tuple[CatchState, Float[Array, "rows columns"]]:
        # One draw of 32 bits: the bias, columns / 2³², is never seen, and `randint` would run and compile three draws.
        ball = jax.random.bits(key, dtype=jnp.uint32) % jnp.uint32(columns)
        state = CatchState(
            row=jnp.zeros((), jnp.int32),
            ball=ball.astype(jnp.int32),
            paddle=jnp.full((), columns // 2, jnp.int32),
        )
        return state, board(state)

    def step(key: Key, state: CatchState, action: Int[Array, ""]) -> tuple[CatchState, TimeStep]:
        del key  # chance only chooses where the ball starts
        state = CatchState(
            row=state.row + 1,
            ball=state.ball,
            paddle=jnp.clip(state.paddle + action - 1, 0, columns - 1),
        )
        landed = state.row == rows - 1
        outcome = jnp.where(state.ball == state.paddle, jnp.float32(1), jnp.float32(-1))
        return state, TimeStep(
            obs=board(state),
            reward=jnp.where(landed, outcome, jnp.float32(0)),
            terminated=landed,
            truncated=jnp.zeros((), bool),
        )

    def render(state: CatchState) -> str:
        """`o` is the ball, `=` the paddle, `@` the ball on the paddle."""
        lines = [["."] * columns for _ in range(rows)]
        lines[-1][int(state.paddle)] = "="
        row, column = int(state.row), int(state.ball)
        lines[row][column] = "@" if lines[row][column] == "=" else "o"
        return "\n".join("".join(line) for line in lines)

    spec = EnvSpec(
        name="catch" if (rows, columns) == (ROWS, COLUMNS) else f"catch:{rows}x{columns}",
        num_actions=3,
        observation=jax.ShapeDtypeStruct((rows, columns), jnp.float32),
        action_names=("left", "stay", "right"),
    )
    return Environment(spec=spec, reset=reset, step=step, render=render)
