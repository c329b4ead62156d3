"""Grid worlds against a naive twin on text maps; every map can be solved."""

from collections import deque
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from discorl.envs import grid, suites
from discorl.envs.grid_tasks import maze_walls

STEPS = ((-1, 0), (1, 0), (0, -1), (0, 1), (0, 0))
GRIDS = [name for name in suites.FAMILIES if name.startswith("grid/")]


@cache
def tasks_of(name):
    """Maps of a family as NumPy arrays."""
    family, count = suites.FAMILIES[name].family, 12
    drawn = jax.jit(jax.vmap(family.draw))(jax.random.split(jax.random.key(1), count))
    tasks = jax.tree.map(np.asarray, getattr(drawn, "task", drawn))
    return [jax.tree.map(lambda x, i=i: x[i], tasks) for i in range(count)]


def reachable(barred, start):
    """Cells in order of their distance, by breadth-first search."""
    found, queue = {start: 0}, deque([start])
    while queue:
        row, column = queue.popleft()
        for dr, dc in STEPS[:4]:
            r, c = row + dr, column + dc
            inside = 0 <= r < barred.shape[0] and 0 <= c < barred.shape[1]
            if inside and not barred[r, c] and (r, c) not in found:
                found[r, c] = found[row, column] + 1
                queue.append((r, c))
    return found


@pytest.mark.parametrize("density", [0.0, 0.4, 1.0])
def test_mazes_have_no_closed_rooms_however_they_are_cut(density):
    u = np.random.default_rng(0).uniform(size=(30, 3, 7, 8)).astype(np.float32)
    mazes = np.asarray(jax.vmap(maze_walls, in_axes=(0, None))(jnp.asarray(u), jnp.float32(density)))
    for walls in mazes:
        for rows, columns in ((7, 8), (6, 7), (4, 5), (2, 2)):
            cut = walls[:rows, :columns]
            assert len(reachable(cut, (0, 0))) == (~cut).sum()
    assert mazes.mean() == 0 if density == 0 else mazes.mean() > 0.1
    if density == 1:
        assert mazes[:, 1::2, 1::2].all()  # where walls meet, something stands
        assert (~mazes[0, :7, :7]).sum() == 2 * 16 - 1  # a tree of 16 rooms has 15 passages


@pytest.mark.parametrize("name", GRIDS)
def test_every_map_can_be_solved_from_every_start(name):
    for task in tasks_of(name):
        count, width = int(task.num_starts), task.walls.shape[1]
        assert 1 <= count <= task.starts.size
        starts = [(int(cell) // width, int(cell) % width) for cell in task.starts[:count]]
        assert task.walls[task.rows :].all() and task.walls[:, task.columns :].all()
        harmful = task.ends & (task.value < 0)
        open_map = task.walls | harmful
        closed_map = open_map | task.door
        prize = task.value > 0
        for start in starts[:3]:
            assert not task.walls[start] and not task.ends[start] and task.value[start] == 0
            if name == "grid/keys":
                at_key = tuple(np.argwhere(task.key)[0])
                goal = tuple(np.argwhere(task.ends)[0])
                first, then = reachable(closed_map, start), reachable(open_map, at_key)
                assert at_key in first and goal not in first and goal in then
                assert first[at_key] + then[goal] < task.horizon
            else:
                found = reachable(open_map, start)
                assert max(found.get(tuple(cell), 99) for cell in np.argwhere(prize)) < task.horizon


@pytest.mark.parametrize("name", GRIDS)
def test_episodes_equal_the_twin(name):
    """Random actions where nothing slips, against one step of the rules written out."""
    family = suites.FAMILIES[name].family
    num_actions, T, rng = family.spec.num_actions, 60, np.random.default_rng(0)
    encoding = grid.planes((1, 1), grid.agent, grid.walls, grid.prizes, grid.harm, grid.key)  # whatever is seen: all

    @jax.jit
    def walk(task, key, actions):
        env = grid.grid_world(family.spec, encoding, task)
        state, obs = env.reset(key)
        _, steps = jax.lax.scan(lambda s, a: env.step(key, s, a), state, actions)
        return state, obs, steps

    ends = set()
    for task in tasks_of(name)[:6]:
        task = task._replace(slip=np.float32(0), horizon=np.int32(T - 5))
        actions = rng.integers(0, num_actions, T).astype(np.int32)
        start, _, steps = jax.tree.map(np.asarray, walk(task, jax.random.key(int(rng.integers(99))), actions))
        row, column, taken, has_key = int(start.row), int(start.column), set(), False
        for t, action in enumerate(actions):
            r, c = row + STEPS[action][0], column + STEPS[action][1]
            free = 0 <= r < task.rows and 0 <= c < task.columns and not task.walls[r, c]
            if free and (has_key or not task.door[r, c]):
                row, column = r, c
            reward = task.step_reward + (task.value[row, column] if (row, column) not in taken else 0)
            taken.add((row, column))
            has_key = has_key or bool(task.key[row, column])
            assert steps.reward[t] == pytest.approx(reward, abs=1e-6)
            agent, walls, prizes, harm, key = np.moveaxis(steps.obs[t], -1, 0)
            assert np.argwhere(agent).tolist() == [[row, column]]
            assert (walls > 0).sum() == task.walls.sum() + (0 if has_key else task.door.sum())
            seen = task.value.copy()
            seen[tuple(zip(*taken, strict=True))] = 0
            np.testing.assert_array_equal(prizes - harm, seen)
            assert key.sum() == (task.key.any() and not has_key)
            over, late = bool(task.ends[row, column]), t + 1 >= T - 5
            assert (steps.terminated[t], steps.truncated[t]) == (over, late and not over)
            if over or late:
                ends.add("over" if over else "late")
                break
        else:
            raise AssertionError("the episode did not end")
    assert ends


def test_slipping_is_as_likely_as_the_task_says(key):
    family = suites.FAMILIES["grid/cliff"].family
    task = tasks_of("grid/cliff")[0]._replace(slip=np.float32(0.5), starts=np.zeros(1, np.int32))
    task = jax.tree.map(jnp.asarray, task)
    env = family.make(task)
    state, _ = jax.jit(env.reset)(key)
    step = jax.jit(jax.vmap(env.step, in_axes=(0, None, None)))
    after, _ = step(jax.random.split(key, 4000), state, jnp.int32(1))  # down, from the upper left corner
    down, right = np.asarray(after.row).mean(), np.asarray(after.column).mean()
    assert down == pytest.approx(0.5 + 0.5 / 4, abs=0.03)
    assert right == pytest.approx(0.5 / 4, abs=0.03)


def test_what_is_seen_of_a_place():
    task = tasks_of("grid/maze")[0]
    task = task._replace(rows=np.int32(5), columns=np.int32(3))
    state = grid.GridState(
        row=jnp.int32(1), column=jnp.int32(2), visited=jnp.zeros((7, 7), bool), has_key=jnp.bool_(0), clock=jnp.int32(0)
    )
    np.testing.assert_array_equal(grid.one_hot((3, 4)).observe(task, state), [0, 1, 0, 0, 0, 1, 0])
    np.testing.assert_array_equal(grid.scaled().observe(task, state), [-0.5, 1.0])


def test_render_shows_the_map():
    task = tasks_of("grid/keys")[0]
    nothing = np.zeros_like(task.walls)
    value, ends, key, door = (x.copy() for x in (task.value * 0, nothing, nothing, nothing))
    value[0, 1], value[0, 2], value[1, 1], value[1, 2] = 0.5, -0.5, 1, -1
    ends[1, 1:3], key[0, 3], door[1, 0] = True, True, True
    task = task._replace(
        rows=np.int32(2), columns=np.int32(5), walls=nothing, value=value, ends=ends, key=key, door=door
    )
    task.walls[1, 3] = True
    state = grid.GridState(
        row=jnp.int32(0),
        column=jnp.int32(4),
        visited=jnp.zeros_like(task.walls),
        has_key=jnp.bool_(0),
        clock=jnp.int32(0),
    )
    assert grid.picture(task, state) == ".+-kA\nDGx#."
    assert grid.picture(task, state._replace(has_key=jnp.bool_(1))) == ".+-.A\n.Gx#."
