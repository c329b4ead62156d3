"""Maps of grid worlds, drawn once per lifetime: prizes, mazes, traps, keys, cliffs."""

from dataclasses import dataclass

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


def goals(name: str, ranges: GridRanges, objects: Span = (3, 6), bad: float = 0.4, last: float = 0.2) -> Family:
    """Prizes from 0.2 to 1 and harmful things lie about; some of either (`last`) end the episode.

    Each is there once per episode. The first is always a prize that does not end it.
    """
    most = objects[1]

    def draw(key: Key) -> GridTask:
        key_map, key_order, key_objects = jax.random.split(key, 3)
        task = _empty(key_map, ranges)
        order, free = _shuffled(key_order, ~task.walls)
        u = jax.random.uniform(key_objects, (4, most))
        first, there = jnp.arange(most) == 0, jnp.arange(most) < whole(u[0, 0], objects)
        value = jnp.where((u[1] < bad) & ~first, real(u[2], ranges.harm), real(u[2], (0.2, 1.0)))
        places = (order[:most, None] == jnp.arange(order.size)[None, :]) & there[:, None]  # [objects, cells]
        ends = places & ((u[3] < last) & ~first)[:, None]
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
        key_map, key_order = jax.random.split(key)
        task = _empty(key_map, ranges)
        order, free = _shuffled(key_order, ~task.walls)
        goal = _cells(order[0], ranges.shape)
        return task._replace(value=goal.astype(jnp.float32), ends=goal, starts=order[1:], num_starts=free - 1)

    return grid.grid_family(name, grid.one_hot(ranges.shape), draw)


# Parts of maps --------------------------------------------------------------------------------------------------------


def _empty(key: Key, ranges: GridRanges) -> GridTask:
    """A map with walls and nothing else; starts are left to be chosen."""
    key_walls, key_numbers = jax.random.split(key)
    u = jax.random.uniform(key_numbers, (6,))
    rows, columns = whole(u[0], ranges.rows), whole(u[1], ranges.columns)
    height, width = ranges.shape
    outside = (jnp.arange(height) >= rows)[:, None] | (jnp.arange(width) >= columns)[None, :]
    nothing = jnp.zeros(ranges.shape, bool)
    return GridTask(
        rows=rows,
        columns=columns,
        walls=outside | maze_walls(key_walls, ranges.shape, real(u[2], ranges.walls)),
        value=jnp.zeros(ranges.shape, jnp.float32),
        ends=nothing,
        key=nothing,
        door=nothing,
        starts=jnp.zeros(height * width, jnp.int32),
        num_starts=jnp.ones((), jnp.int32),
        step_reward=real(u[3], ranges.step_reward),
        slip=real(u[4], ranges.slip),
        horizon=whole(u[5], ranges.horizon),
    )


def maze_walls(key: Key, shape: tuple[int, int], density: Float[Array, ""]) -> Bool[Array, "H W"]:
    """Walls between which every free cell can be reached, also if rows and columns are cut off at the end.

    Cells with two even coordinates are rooms. Each room opens a passage to the room above it or to its left (those at
    the border have no choice), which joins all of them in a tree. Of all other walls between rooms, a share of
    `density` stands; what stands where four of them meet may only go if all four are gone.
    """
    u = jax.random.uniform(key, (3, *shape))
    row, column = jnp.arange(shape[0])[:, None], jnp.arange(shape[1])[None, :]
    upwards = (jnp.roll(u[0], -1, axis=0) < 0.5) | (column == 0)  # of the room below
    leftwards = (jnp.roll(u[0], -1, axis=1) >= 0.5) | (row == 0)  # of the room to the right
    odd_row, odd_column = row % 2 == 1, column % 2 == 1
    passage = jnp.where(odd_row, upwards, leftwards)
    wall = (odd_row != odd_column) & ~passage & (u[1] < density)
    # Nothing is blocked in row 0 and column 0, so it does no harm that rolling goes around.
    sides = [jnp.roll(wall, shift, axis=axis) for axis in (0, 1) for shift in (-1, 1)]
    corner = odd_row & odd_column & ((u[2] < density) | sides[0] | sides[1] | sides[2] | sides[3])
    return wall | corner


def _shuffled(key: Key, among: Bool[Array, "H W"]) -> tuple[Int[Array, " N"], Int[Array, ""]]:
    """All cells in random order, those that are `among` first, and how many those are."""
    chosen = among.reshape(-1)
    order = jnp.argsort(jnp.where(chosen, jax.random.uniform(key, chosen.shape), jnp.float32(2)))
    return order.astype(jnp.int32), jnp.sum(chosen, dtype=jnp.int32)


def _cells(cell: Int[Array, ""], shape: tuple[int, int]) -> Bool[Array, "H W"]:
    return (jnp.arange(shape[0] * shape[1]) == cell).reshape(shape)
