"""Grid worlds: a map of walls, prizes, traps and perhaps a key and a door; what an agent sees of it."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from discorl.envs.base import Environment, EnvSpec, TimeStep
from discorl.envs.families import Family, below, coarse, pick
from discorl.types import Key

MOVES = ("up", "down", "left", "right", "stay")


class GridTask(NamedTuple):
    """A map, padded with walls to the largest board of its family."""

    rows: Int[Array, ""]
    columns: Int[Array, ""]
    walls: Bool[Array, "H W"]
    value: Float[Array, "H W"]  # reward for entering, once per episode
    ends: Bool[Array, "H W"]  # entering ends the episode
    key: Bool[Array, "H W"]  # where the key lies, if there is one
    door: Bool[Array, "H W"]  # a wall for those without the key
    starts: Int[Array, " N"]  # cells, counted along the rows; the first `num_starts` of them count
    num_starts: Int[Array, ""]
    step_reward: Float[Array, ""]
    slip: Float[Array, ""]  # probability of a random move instead of the chosen one
    horizon: Int[Array, ""]


class GridState(NamedTuple):
    row: Int[Array, ""]
    column: Int[Array, ""]
    visited: Bool[Array, "H W"]
    has_key: Bool[Array, ""]
    clock: Int[Array, ""]


Plane = Callable[[GridTask, GridState], Bool[Array, "H W"] | Float[Array, "H W"]]


class Encoding(NamedTuple):
    """What is seen of a map."""

    shape: tuple[int, ...]
    observe: Callable[[GridTask, GridState], Float[Array, "..."]]


def grid_family(name: str, encoding: Encoding, draw: Callable[[Key], GridTask], num_actions: int = 4) -> Family:
    spec = EnvSpec(
        name=name,
        num_actions=num_actions,
        observation=jax.ShapeDtypeStruct(encoding.shape, jnp.float32),
        action_names=MOVES[:num_actions],
    )
    return Family(name=name, spec=spec, draw=draw, make=lambda task: grid_world(spec, encoding, task))


def grid_world(spec: EnvSpec, encoding: Encoding, task: GridTask) -> Environment:
    def reset(key: Key) -> tuple[GridState, Array]:
        width = task.walls.shape[1]
        cell = pick(task.starts, below(jax.random.uniform(key), task.num_starts))
        state = GridState(
            row=cell // width,
            column=cell % width,
            visited=jnp.zeros(task.walls.shape, bool),
            has_key=jnp.zeros((), bool),
            clock=jnp.zeros((), jnp.int32),
        )
        return state, encoding.observe(task, state)

    def step(key: Key, state: GridState, action: Int[Array, ""]) -> tuple[GridState, TimeStep]:
        u = coarse(key)
        action = jnp.where(u[0] < task.slip, (u[1] * 4).astype(jnp.int32), action)
        row = jnp.clip(state.row + (action == 1).astype(jnp.int32) - (action == 0).astype(jnp.int32), 0, task.rows - 1)
        column = jnp.clip(
            state.column + (action == 3).astype(jnp.int32) - (action == 2).astype(jnp.int32), 0, task.columns - 1
        )
        barred = task.walls | (task.door & ~state.has_key)
        stopped = jnp.any(barred & at(row, column, barred.shape))
        row, column = jnp.where(stopped, state.row, row), jnp.where(stopped, state.column, column)

        here = at(row, column, barred.shape)
        gain = jnp.sum(jnp.where(here & ~state.visited, task.value, jnp.float32(0)))
        after = GridState(
            row=row,
            column=column,
            visited=state.visited | here,
            has_key=state.has_key | jnp.any(here & task.key),
            clock=state.clock + 1,
        )
        terminated = jnp.any(here & task.ends)
        return after, TimeStep(
            obs=encoding.observe(task, after),
            reward=task.step_reward + gain,
            terminated=terminated,
            truncated=(after.clock >= task.horizon) & ~terminated,
        )

    return Environment(spec=spec, reset=reset, step=step, render=lambda state: picture(task, state))


def at(row: Int[Array, ""], column: Int[Array, ""], shape: tuple[int, ...]) -> Bool[Array, "H W"]:
    """True in one cell."""
    return (jnp.arange(shape[0]) == row)[:, None] & (jnp.arange(shape[1]) == column)[None, :]


def picture(task: GridTask, state: GridState) -> str:
    """`A` the agent, `#` walls, `+` and `-` prizes and harm (`G` and `x` where they end the episode), `k`ey, `D`oor."""

    def cell(row: int, column: int) -> str:
        if (row, column) == (int(state.row), int(state.column)):
            return "A"
        if task.walls[row, column]:
            return "#"
        if task.door[row, column]:
            return "D" if not state.has_key else "."
        if task.key[row, column] and not state.has_key:
            return "k"
        value, ends = float(task.value[row, column]), bool(task.ends[row, column])
        if value == 0 or state.visited[row, column]:
            return "x" if ends else "."
        if ends:
            return "G" if value > 0 else "x"
        return "+" if value > 0 else "-"

    return "\n".join("".join(cell(row, col) for col in range(int(task.columns))) for row in range(int(task.rows)))


# What is seen ---------------------------------------------------------------------------------------------------------


def planes(shape: tuple[int, int], *layers: Plane) -> Encoding:
    """One board per layer, as the last axis."""

    def observe(task: GridTask, state: GridState) -> Float[Array, "H W P"]:
        return jnp.stack([layer(task, state).astype(jnp.float32) for layer in layers], axis=-1)

    return Encoding((*shape, len(layers)), observe)


def one_hot(shape: tuple[int, int]) -> Encoding:
    """Only where the agent is: one number per row and one per column. The rest of the map must be learnt."""

    def observe(task: GridTask, state: GridState) -> Float[Array, " N"]:
        row, column = jnp.arange(shape[0]) == state.row, jnp.arange(shape[1]) == state.column
        return jnp.concatenate([row, column]).astype(jnp.float32)

    return Encoding((sum(shape),), observe)


def scaled() -> Encoding:
    """Only where the agent is, as two numbers from -1 to 1."""

    def observe(task: GridTask, state: GridState) -> Float[Array, "2"]:
        place = jnp.stack([state.row, state.column]).astype(jnp.float32)
        return 2 * place / (jnp.stack([task.rows, task.columns]).astype(jnp.float32) - 1) - 1

    return Encoding((2,), observe)


def agent(task: GridTask, state: GridState) -> Bool[Array, "H W"]:
    return at(state.row, state.column, task.walls.shape)


def walls(task: GridTask, state: GridState) -> Bool[Array, "H W"]:
    return task.walls | (task.door & ~state.has_key)


def prizes(task: GridTask, state: GridState) -> Float[Array, "H W"]:
    return jnp.where(state.visited, jnp.float32(0), jnp.maximum(task.value, 0))


def harm(task: GridTask, state: GridState) -> Float[Array, "H W"]:
    return jnp.where(state.visited, jnp.float32(0), jnp.maximum(-task.value, 0))


def key(task: GridTask, state: GridState) -> Bool[Array, "H W"]:
    return task.key & ~state.has_key
