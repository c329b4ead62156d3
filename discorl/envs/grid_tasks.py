"""Maps of grid worlds, drawn once per lifetime: prizes, mazes, traps, keys, cliffs."""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from discorl.envs import grid
from discorl.envs.families import Family, Range, Span, real, whole
from discorl.envs.grid import GridTask
from discorl.types import Key


@dataclass(frozen=True)
class GridRanges:
    rows: Span
    columns: Span
    horizon: Span
    walls: Range = (0.0, 0.0)  # share of the walls of a maze that stand
    slip: Range = (0.0, 0.0)
    step_reward: Range = (0.0, 0.0)
    harm: Range = (-1.0, -1.0)  # value of what should be avoided

    @property
    def shape(self) -> tuple[int, int]:
        return self.rows[1], self.columns[1]


def goals(name: str, ranges: GridRanges, objects: Span, bad: float = 0.4, last: float = 0.2) -> Family:
    """Prizes from 0.2 to 1 and harmful things (a share of `bad`) lie about; some of either (`last`) end the episode.

    Each is there once per episode. The first is always a prize that does not end it.
    """
    most = objects[1]

    def draw(key: Key) -> GridTask:
        u = _numbers(key, ranges.shape, 4 * most)
        task = _empty(u, ranges)
        order, free = _shuffled(u.order, ~task.walls)
        which, value, last_one, count = u.more.reshape(4, most)
        first, there = jnp.arange(most) == 0, jnp.arange(most) < whole(count[0], objects)
        value = jnp.where((which < bad) & ~first, real(value, ranges.harm), real(value, (0.2, 1.0)))
        places = (order[:most, None] == jnp.arange(order.size)[None, :]) & there[:, None]  # [objects, cells]
        ends = places & ((last_one < last) & ~first)[:, None]
        return task._replace(
            value=jnp.sum(jnp.where(places, value[:, None], jnp.float32(0)), axis=0).reshape(ranges.shape),
            ends=jnp.any(ends, axis=0).reshape(ranges.shape),
            starts=order[most:],
            num_starts=free - most,
        )

    encoding = grid.planes(ranges.shape, grid.agent, grid.walls, grid.prizes, grid.harm)
    return grid.grid_family(name, encoding, draw, num_actions=5)


def maze(name: str, ranges: GridRanges) -> Family:
    """One goal in a maze, worth 1 and the end; the agent starts anywhere and sees only where it is."""

    def draw(key: Key) -> GridTask:
        u = _numbers(key, ranges.shape)
        task = _empty(u, ranges)
        order, free = _shuffled(u.order, ~task.walls)
        goal = _cell(order[0], ranges.shape)
        return task._replace(value=goal.astype(jnp.float32), ends=goal, starts=order[1:], num_starts=free - 1)

    return grid.grid_family(name, grid.one_hot(ranges.shape), draw)


def traps(name: str, ranges: GridRanges, density: Range) -> Family:
    """One goal, worth 1, and traps around which there is always a way; either ends the episode."""

    def draw(key: Key) -> GridTask:
        u = _numbers(key, ranges.shape, 2)
        task = _empty(u, ranges)
        odd = (jnp.arange(ranges.shape[0]) % 2 == 1)[:, None] & (jnp.arange(ranges.shape[1]) % 2 == 1)[None, :]
        trap = odd & (u.walls[2] < real(u.more[0], density)) & ~task.walls
        order, free = _shuffled(u.order, ~task.walls & ~trap)
        goal = _cell(order[0], ranges.shape)
        harm = real(u.more[1], ranges.harm)
        return task._replace(
            value=jnp.where(trap, harm, goal.astype(jnp.float32)),
            ends=goal | trap,
            starts=order[1:],
            num_starts=free - 1,
        )

    return grid.grid_family(name, grid.planes(ranges.shape, grid.agent, grid.prizes, grid.harm), draw)


def keys(name: str, ranges: GridRanges, key_value: Range) -> Family:
    """A wall parts the map. Behind its door is the goal, worth 1 and the end; on this side lies the key to it."""

    def draw(key: Key) -> GridTask:
        u = _numbers(key, ranges.shape, 4)
        task = _empty(u, ranges)
        row, column = jnp.arange(ranges.shape[0])[:, None], jnp.arange(ranges.shape[1])[None, :]
        wall = 2 + jnp.floor(u.more[0] * (task.columns - 4).astype(jnp.float32)).astype(jnp.int32)  # 2 … columns - 3
        doorway = jnp.floor(u.more[1] * task.rows.astype(jnp.float32)).astype(jnp.int32)
        left = (column < wall) == (u.more[2] < 0.5)
        parting = (column == wall) & (row < task.rows)
        ours, theirs = ~task.walls & ~parting & left, ~task.walls & ~parting & ~left
        order, free = _shuffled(u.order, ours)
        lying = _cell(order[0], ranges.shape)
        goal = _cell(_shuffled(u.order, theirs)[0][0], ranges.shape)
        return task._replace(
            walls=task.walls | (parting & (row != doorway)),
            door=parting & (row == doorway),
            key=lying,
            value=jnp.where(lying, real(u.more[3], key_value), goal.astype(jnp.float32)),
            ends=goal,
            starts=order[1:],
            num_starts=free - 1,
        )

    # The goal is the only prize that ends; the key's own value shows in the plane of prizes, where the key is anyway.
    return grid.grid_family(name, grid.planes(ranges.shape, grid.agent, grid.walls, grid.prizes, grid.key), draw)


def cliff(name: str, ranges: GridRanges) -> Family:
    """From one corner of the bottom row to the other, worth 1, along a cliff; falling off ends the episode."""

    def draw(key: Key) -> GridTask:
        u = _numbers(key, ranges.shape, 1)
        task = _empty(u, ranges)
        bottom = (jnp.arange(ranges.shape[0]) == task.rows - 1)[:, None]
        column = jnp.arange(ranges.shape[1])[None, :]
        goal = bottom & (column == task.columns - 1)
        edge = bottom & (column > 0) & (column < task.columns - 1)
        return task._replace(
            value=jnp.where(edge, real(u.more[0], ranges.harm), goal.astype(jnp.float32)),
            ends=goal | edge,
            starts=((task.rows - 1) * ranges.shape[1])[None],
        )

    return grid.grid_family(name, grid.one_hot(ranges.shape), draw)


# Parts of maps --------------------------------------------------------------------------------------------------------


class _Numbers(NamedTuple):
    """Everything uniform that a map is made of, of one call of the generator: it is quicker to compile than several."""

    walls: Float[Array, "3 H W"]
    order: Float[Array, " N"]
    task: Float[Array, "6"]
    more: Float[Array, " M"]


def _numbers(key: Key, shape: tuple[int, int], more: int = 0) -> _Numbers:
    cells = shape[0] * shape[1]
    u = jax.random.uniform(key, (4 * cells + 6 + more,))
    walls, order, task, rest = jnp.split(u, (3 * cells, 4 * cells, 4 * cells + 6))
    return _Numbers(walls=walls.reshape(3, *shape), order=order, task=task, more=rest)


def _empty(u: _Numbers, ranges: GridRanges) -> GridTask:
    """A map with walls and nothing else, to start in its first cell."""
    rows, columns = whole(u.task[0], ranges.rows), whole(u.task[1], ranges.columns)
    height, width = ranges.shape
    outside = (jnp.arange(height) >= rows)[:, None] | (jnp.arange(width) >= columns)[None, :]
    nothing = jnp.zeros(ranges.shape, bool)
    return GridTask(
        rows=rows,
        columns=columns,
        walls=outside | maze_walls(u.walls, real(u.task[2], ranges.walls)),
        value=jnp.zeros(ranges.shape, jnp.float32),
        ends=nothing,
        key=nothing,
        door=nothing,
        starts=jnp.zeros(1, jnp.int32),
        num_starts=jnp.ones((), jnp.int32),
        step_reward=real(u.task[3], ranges.step_reward),
        slip=real(u.task[4], ranges.slip),
        horizon=whole(u.task[5], ranges.horizon),
    )


def maze_walls(u: Float[Array, "3 H W"], density: Float[Array, ""]) -> Bool[Array, "H W"]:
    """Walls between which every free cell can be reached, also if rows and columns are cut off at the end.

    Cells with two even coordinates are rooms. Each room opens a passage to the room above it or to its left (those at
    the border have no choice), which joins all of them in a tree. Of all other walls between rooms, a share of
    `density` stands; what stands where four of them meet may only go if all four are gone.
    """
    row, column = jnp.arange(u.shape[1])[:, None], jnp.arange(u.shape[2])[None, :]
    upwards = (jnp.roll(u[0], -1, axis=0) < 0.5) | (column == 0)  # of the room below
    leftwards = (jnp.roll(u[0], -1, axis=1) >= 0.5) | (row == 0)  # of the room to the right
    odd_row, odd_column = row % 2 == 1, column % 2 == 1
    passage = jnp.where(odd_row, upwards, leftwards)
    wall = (odd_row != odd_column) & ~passage & (u[1] < density)
    # Nothing is blocked in row 0 and column 0, so it does no harm that rolling goes around.
    sides = [jnp.roll(wall, shift, axis=axis) for axis in (0, 1) for shift in (-1, 1)]
    corner = odd_row & odd_column & ((u[2] < density) | sides[0] | sides[1] | sides[2] | sides[3])
    return wall | corner


def _shuffled(u: Float[Array, " N"], among: Bool[Array, "H W"]) -> tuple[Int[Array, " N"], Int[Array, ""]]:
    """All cells in the order of `u`, those that are `among` first, and how many those are."""
    chosen = among.reshape(-1)
    order = jnp.argsort(jnp.where(chosen, u, jnp.float32(2)))
    return order.astype(jnp.int32), jnp.sum(chosen, dtype=jnp.int32)


def _cell(cell: Int[Array, ""], shape: tuple[int, int]) -> Bool[Array, "H W"]:
    return (jnp.arange(shape[0] * shape[1]) == cell).reshape(shape)
