"""Two small games on a board: dodging what falls, and knocking down a wall with a ball."""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from discorl.envs.base import Environment, EnvSpec, TimeStep
from discorl.envs.families import Family, Range, Span, below, drawn
from discorl.types import Key

MOVES = ("left", "stay", "right")

# Dodging --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DodgeRanges:
    rows: Span = (4, 7)
    columns: Span = (4, 6)
    density: Range = (0.1, 0.3)  # of the rocks in a new row
    crash: Range = (-2.0, 0.0)  # reward of being hit
    horizon: Span = (20, 50)


class DodgeTask(NamedTuple):
    rows: Int[Array, ""]
    columns: Int[Array, ""]
    density: Float[Array, ""]
    crash: Float[Array, ""]
    horizon: Int[Array, ""]


class DodgeState(NamedTuple):
    rocks: Bool[Array, "rows columns"]
    column: Int[Array, ""]
    clock: Int[Array, ""]


def dodge(name: str, ranges: DodgeRanges = DodgeRanges()) -> Family:
    """Rocks fall, one row per step. Reward 0.1 per step survived; the first hit ends the episode."""
    shape = (ranges.rows[1], ranges.columns[1])
    spec = EnvSpec(
        name=name,
        num_actions=3,
        observation=jax.ShapeDtypeStruct((*shape, 2), jnp.float32),
        action_names=MOVES,
    )

    def draw(key: Key) -> DodgeTask:
        return drawn(DodgeTask, ranges, key)

    def make(task: DodgeTask) -> Environment:
        def player(column: Int[Array, ""]) -> Bool[Array, "rows columns"]:
            return (jnp.arange(shape[0]) == task.rows - 1)[:, None] & (jnp.arange(shape[1]) == column)[None, :]

        def observe(state: DodgeState) -> Float[Array, "rows columns 2"]:
            return jnp.stack([player(state.column), state.rocks], axis=-1).astype(jnp.float32)

        def reset(key: Key) -> tuple[DodgeState, Array]:
            del key  # the sky is clear at first
            state = DodgeState(rocks=jnp.zeros(shape, bool), column=task.columns // 2, clock=jnp.zeros((), jnp.int32))
            return state, observe(state)

        def step(key: Key, state: DodgeState, action: Int[Array, ""]) -> tuple[DodgeState, TimeStep]:
            fresh = jax.random.uniform(key, (shape[1],)) < task.density
            fresh &= jnp.arange(shape[1]) < task.columns
            inside = jnp.arange(shape[0]) < task.rows
            rocks = jnp.concatenate([fresh[None], state.rocks[:-1]]) & inside[:, None]
            column = jnp.clip(state.column + action - 1, 0, task.columns - 1)
            after = DodgeState(rocks=rocks, column=column, clock=state.clock + 1)
            hit = jnp.any(rocks & player(column))
            return after, TimeStep(
                obs=observe(after),
                reward=jnp.where(hit, task.crash, jnp.float32(0.1)),
                terminated=hit,
                truncated=(after.clock >= task.horizon) & ~hit,
            )

        def render(state: DodgeState) -> str:
            """`o` are rocks, `A` the player, `X` a hit."""
            lines = [["o" if x else "." for x in line] for line in state.rocks[: int(task.rows), : int(task.columns)]]
            column = int(state.column)
            lines[-1][column] = "X" if lines[-1][column] == "o" else "A"
            return "\n".join("".join(line) for line in lines)

        return Environment(spec=spec, reset=reset, step=step, render=render)

    return Family(name=name, spec=spec, draw=draw, make=make)


# Knocking down a wall -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BreakoutRanges:
    rows: Span = (5, 7)
    columns: Span = (4, 5)
    bricks: Span = (1, 2)  # rows of them, under one free row
    lost: Range = (-1.0, 0.0)  # reward of losing the ball
    horizon: Span = (50, 100)


class BreakoutTask(NamedTuple):
    rows: Int[Array, ""]
    columns: Int[Array, ""]
    bricks: Int[Array, ""]
    lost: Float[Array, ""]
    horizon: Int[Array, ""]


class BreakoutState(NamedTuple):
    bricks: Bool[Array, "rows columns"]
    row: Int[Array, ""]  # of the ball
    column: Int[Array, ""]
    down: Int[Array, ""]  # 1 or -1
    right: Int[Array, ""]  # 1 or -1
    paddle: Int[Array, ""]  # its left one of two cells
    clock: Int[Array, ""]


def breakout(name: str, ranges: BreakoutRanges = BreakoutRanges()) -> Family:
    """A ball bounces off walls, bricks and a paddle of two cells. All bricks together are worth 1.

    The episode ends when the ball is lost or nothing stands any more. Where the ball is going is seen as a plane of its
    own: the cell it comes from.
    """
    shape = (ranges.rows[1], ranges.columns[1])
    spec = EnvSpec(
        name=name,
        num_actions=3,
        observation=jax.ShapeDtypeStruct((*shape, 4), jnp.float32),
        action_names=MOVES,
    )

    def draw(key: Key) -> BreakoutTask:
        return drawn(BreakoutTask, ranges, key)

    def make(task: BreakoutTask) -> Environment:
        row, column = jnp.arange(shape[0])[:, None], jnp.arange(shape[1])[None, :]
        wall = (row >= 1) & (row <= task.bricks) & (column < task.columns)

        def at(r: Int[Array, ""], c: Int[Array, ""]) -> Bool[Array, "rows columns"]:
            return (row == r) & (column == c)

        def observe(state: BreakoutState) -> Float[Array, "rows columns 4"]:
            paddle = (row == task.rows - 1) & ((column == state.paddle) | (column == state.paddle + 1))
            came_from = at(state.row - state.down, state.column - state.right)
            layers = [at(state.row, state.column), came_from, paddle, state.bricks]
            return jnp.stack(layers, axis=-1).astype(jnp.float32)

        def reset(key: Key) -> tuple[BreakoutState, Array]:
            place = below(jax.random.uniform(key), 2 * task.columns)  # and the way it goes
            state = BreakoutState(
                bricks=wall,
                row=task.bricks + 1,
                column=place // 2,
                down=jnp.ones((), jnp.int32),
                right=2 * (place % 2) - 1,
                paddle=task.columns // 2 - 1,
                clock=jnp.zeros((), jnp.int32),
            )
            return state, observe(state)

        def step(key: Key, state: BreakoutState, action: Int[Array, ""]) -> tuple[BreakoutState, TimeStep]:
            del key
            paddle = jnp.clip(state.paddle + action - 1, 0, task.columns - 2)
            # Off the side walls first, then off a brick, the ceiling or the paddle.
            aside = state.column + state.right
            right = jnp.where((aside < 0) | (aside >= task.columns), -state.right, state.right)
            ahead_row, ahead = state.row + state.down, state.column + right
            brick = at(ahead_row, ahead) & state.bricks
            struck = jnp.any(brick)
            bottom = ahead_row == task.rows - 1
            held = bottom & ((ahead == paddle) | (ahead == paddle + 1))
            back = struck | (ahead_row < 0) | held
            # The paddle's left cell sends the ball to the left, the other to the right: so one can aim.
            right = jnp.where(held, jnp.where(ahead == paddle, -1, 1), right)
            bricks = state.bricks & ~brick
            after = BreakoutState(
                bricks=bricks,
                row=jnp.where(back, state.row, ahead_row),
                column=ahead,
                down=jnp.where(back, -state.down, state.down),
                right=right,
                paddle=paddle,
                clock=state.clock + 1,
            )
            lost, cleared = bottom & ~held, ~jnp.any(bricks)
            worth = 1 / (task.bricks * task.columns).astype(jnp.float32)
            gain = jnp.where(struck, worth, jnp.float32(0)) + jnp.where(lost, task.lost, jnp.float32(0))
            over = lost | cleared
            return after, TimeStep(
                obs=observe(after), reward=gain, terminated=over, truncated=(after.clock >= task.horizon) & ~over
            )

        def render(state: BreakoutState) -> str:
            """`#` are bricks, `o` is the ball, `=` the paddle."""
            lines = [["#" if x else "." for x in line] for line in state.bricks[: int(task.rows), : int(task.columns)]]
            left = int(state.paddle)
            lines[-1][left : left + 2] = "=="
            lines[int(state.row)][int(state.column)] = "o"
            return "\n".join("".join(line) for line in lines)

        return Environment(spec=spec, reset=reset, step=step, render=render)

    return Family(name=name, spec=spec, draw=draw, make=make)
