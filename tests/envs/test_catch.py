"""Catch against a naive twin: a NumPy board and a loop."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from discorl.envs import batch, catch
from discorl.envs.catch import CatchState
from discorl.errors import DiscorlError

SIZES = [(8, 8), (5, 5), (2, 1), (3, 7), (7, 4)]


class Twin:
    """One episode of Catch as one would write it without JAX. The ball's column is read off the first board."""

    def __init__(self, first_board):
        self.rows, self.columns = first_board.shape
        (self.ball,) = np.flatnonzero(first_board[0])
        self.row, self.paddle = 0, self.columns // 2

    def board(self):
        board = np.zeros((self.rows, self.columns), np.float32)
        board[self.row, self.ball] = 1
        board[self.rows - 1, self.paddle] = 1
        return board

    def step(self, action):
        self.paddle = min(max(self.paddle + [-1, 0, 1][action], 0), self.columns - 1)
        self.row += 1
        if self.row < self.rows - 1:
            return 0.0, False
        return (1.0 if self.paddle == self.ball else -1.0), True


@pytest.mark.parametrize("rows, columns", SIZES)
def test_an_episode_equals_the_twin_for_every_start_of_the_ball(rows, columns, key):
    env, repeats = catch(rows, columns), 6
    B = repeats * columns
    actions = np.random.default_rng(0).integers(0, 3, (rows - 1, B)).astype(np.int32)
    start = CatchState(
        row=jnp.zeros(B, jnp.int32), ball=jnp.arange(B) % columns, paddle=jnp.full(B, columns // 2, jnp.int32)
    )
    step = jax.vmap(env.step, in_axes=(None, 0, 0))
    run = jax.jit(lambda actions: jax.lax.scan(lambda state, action: step(key, state, action), start, actions)[1])
    got = jax.tree.map(np.asarray, run(actions))
    outcomes = set()
    for b in range(B):
        first_board = np.zeros((rows, columns), np.float32)
        first_board[0, b % columns] = 1
        twin = Twin(first_board)
        reward, ended = 0.0, False
        for t in range(rows - 1):
            reward, ended = twin.step(actions[t, b])
            np.testing.assert_array_equal(got.obs[t, b], twin.board())
            assert (got.reward[t, b], got.terminated[t, b], got.truncated[t, b]) == (reward, ended, False)
        assert ended
        outcomes.add(reward)
    assert outcomes == ({1.0, -1.0} if columns > 1 else {1.0})


def test_many_episodes_in_a_batch_equal_the_twin(key):
    (rows, columns), T, B = (4, 5), 16, 4
    env = batch(catch(rows, columns), B)
    actions = np.random.default_rng(0).integers(0, 3, (T, B)).astype(np.int32)

    @jax.jit
    def run(key):
        state, obs = env.reset(key)
        keys = jax.random.split(jax.random.fold_in(key, 1), T)
        return obs, jax.lax.scan(lambda s, x: env.step(x[0], s, x[1]), state, (keys, jnp.asarray(actions)))[1]

    first_obs, history = jax.tree.map(np.asarray, run(key))
    balls = []
    for b in range(B):
        twin = Twin(first_obs[b])
        np.testing.assert_array_equal(first_obs[b], twin.board())
        for t in range(T):
            reward, ended = twin.step(actions[t, b])
            assert (history.reward[t, b], history.discount[t, b]) == (reward, 0.0 if ended else 1.0)
            if ended:
                twin = Twin(history.obs[t, b])
                balls.append(twin.ball)
            np.testing.assert_array_equal(history.obs[t, b], twin.board())
    assert len(balls) == B * (T // (rows - 1))
    assert len(set(balls)) > 1, "each episode draws its own ball"


def test_the_ball_starts_anywhere_in_the_top_row_equally_often(key):
    columns, n = 5, 5000
    state, obs = jax.jit(jax.vmap(catch(4, columns).reset))(jax.random.split(key, n))
    counts = np.asarray(obs)[:, 0].sum(0)
    sigma = np.sqrt(n * 0.2 * 0.8)
    assert np.abs(counts - n / columns).max() < 4 * sigma
    np.testing.assert_array_equal(np.asarray(obs)[0], Twin(np.asarray(obs)[0]).board())
    assert set(np.asarray(state.paddle).tolist()) == {columns // 2}


def test_render_shows_ball_paddle_and_catch():
    env = catch(3, 4)

    def state(row, ball, paddle):
        return CatchState(row=jnp.int32(row), ball=jnp.int32(ball), paddle=jnp.int32(paddle))

    assert env.render(state(0, 1, 2)) == ".o..\n....\n..=."
    assert env.render(state(2, 0, 3)) == "....\n....\no..="
    assert env.render(state(2, 3, 3)) == "....\n....\n...@"


@pytest.mark.parametrize("rows, columns", [(1, 8), (2, 0), (-1, -1)])
def test_boards_too_small_are_refused(rows, columns):
    with pytest.raises(DiscorlError, match=f"at least 2 rows and 1 column, got {rows}x{columns}"):
        catch(rows, columns)
