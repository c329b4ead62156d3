"""Catch varied: board sizes, wind, a slippery paddle, several balls in turn, rewards that come late."""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from discorl.envs.base import Environment, EnvSpec, TimeStep
from discorl.envs.families import Family, Range, Span, below, coarse, real, whole
from discorl.types import Key


@dataclass(frozen=True)
class CatchRanges:
    rows: Span = (4, 9)
    columns: Span = (3, 9)
    balls: Span = (1, 1)  # one after another, in one episode
    wind: Range = (0.0, 0.0)  # probability that the ball is blown aside in a step
    slip: Range = (0.0, 0.0)  # probability that the paddle does not move
    miss: Range = (-1.0, -1.0)  # reward of a ball that was missed; a caught one gives 1
    late: float = 0.0  # share of tasks that pay for all balls at the end
    numbers: bool = False  # observe five scaled numbers rather than the board


class CatchTask(NamedTuple):
    rows: Int[Array, ""]
    columns: Int[Array, ""]
    balls: Int[Array, ""]
    wind: Float[Array, ""]
    lean: Float[Array, ""]  # probability that a gust blows to the right
    slip: Float[Array, ""]
    miss: Float[Array, ""]
    late: Bool[Array, ""]


class CatchTaskState(NamedTuple):
    row: Int[Array, ""]  # of the ball
    ball: Int[Array, ""]  # column
    paddle: Int[Array, ""]  # column
    left: Int[Array, ""]  # balls, with the one that is falling
    bank: Float[Array, ""]  # earned in this episode


def catch_tasks(name: str, ranges: CatchRanges) -> Family:
    """Episodes end with the last ball. Smaller boards stand in the upper left corner of the largest one."""
    rows, columns = ranges.rows[1], ranges.columns[1]
    spec = EnvSpec(
        name=name,
        num_actions=3,
        observation=jax.ShapeDtypeStruct((5,) if ranges.numbers else (rows, columns), jnp.float32),
        action_names=("left", "stay", "right"),
    )

    def draw(key: Key) -> CatchTask:
        u = jax.random.uniform(key, (8,))
        return CatchTask(
            rows=whole(u[0], ranges.rows),
            columns=whole(u[1], ranges.columns),
            balls=whole(u[2], ranges.balls),
            wind=real(u[3], ranges.wind),
            lean=u[4],
            slip=real(u[5], ranges.slip),
            miss=real(u[6], ranges.miss),
            late=u[7] < ranges.late,
        )

    def make(task: CatchTask) -> Environment:
        def board(state: CatchTaskState) -> Float[Array, "rows columns"]:
            row = jnp.arange(rows, dtype=jnp.int32)[:, None]
            column = jnp.arange(columns, dtype=jnp.int32)[None, :]
            ball = (row == state.row) & (column == state.ball)
            paddle = (row == task.rows - 1) & (column == state.paddle)
            return (ball | paddle).astype(jnp.float32)

        def numbers(state: CatchTaskState) -> Float[Array, "5"]:
            of = jnp.stack([task.rows - 1, task.columns - 1, task.columns - 1, task.balls]).astype(jnp.float32)
            counts = jnp.stack([state.row, state.ball, state.paddle, state.left]).astype(jnp.float32)
            return jnp.concatenate([2 * counts / of - 1, (state.bank / of[3])[None]])

        observe = numbers if ranges.numbers else board

        def reset(key: Key) -> tuple[CatchTaskState, Array]:
            state = CatchTaskState(
                row=jnp.zeros((), jnp.int32),
                ball=below(jax.random.uniform(key), task.columns),
                paddle=task.columns // 2,
                left=task.balls,
                bank=jnp.zeros((), jnp.float32),
            )
            return state, observe(state)

        def step(key: Key, state: CatchTaskState, action: Int[Array, ""]) -> tuple[CatchTaskState, TimeStep]:
            u = coarse(key)
            move = jnp.where(u[0] < task.slip, 0, action - 1)
            paddle = jnp.clip(state.paddle + move, 0, task.columns - 1)
            gust = jnp.where(u[1] < task.wind, jnp.where(u[2] < task.lean, 1, -1), 0)
            ball = jnp.clip(state.ball + gust, 0, task.columns - 1)
            landed = state.row + 1 == task.rows - 1
            earned = jnp.where(landed, jnp.where(ball == paddle, jnp.float32(1), task.miss), jnp.float32(0))
            left, bank = state.left - landed.astype(jnp.int32), state.bank + earned
            over = left == 0
            again = landed & ~over
            state = CatchTaskState(
                row=jnp.where(again, 0, state.row + 1),
                ball=jnp.where(again, below(u[3], task.columns), ball),
                paddle=paddle,
                left=left,
                bank=bank,
            )
            paid_late = jnp.where(over, bank, jnp.float32(0))
            return state, TimeStep(
                obs=observe(state),
                reward=jnp.where(task.late, paid_late, earned),
                terminated=over,
                truncated=jnp.zeros((), bool),
            )

        def render(state: CatchTaskState) -> str:
            """`o` is the ball, `=` the paddle, `@` the ball on the paddle."""
            lines = [["."] * int(task.columns) for _ in range(int(task.rows))]
            lines[-1][int(state.paddle)] = "="
            row, column = int(state.row), int(state.ball)
            lines[row][column] = "@" if lines[row][column] == "=" else "o"
            return "\n".join("".join(line) for line in lines)

        return Environment(spec=spec, reset=reset, step=step, render=render)

    return Family(name=name, spec=spec, draw=draw, make=make)
