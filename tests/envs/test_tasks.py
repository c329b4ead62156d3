"""Catch, chains, bandits and games: scripted policies do what the rules promise, chance does not."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from discorl.envs import suites
from discorl.envs.base import batch


def returns(name, policy, T, lives=24):
    """Mean returns of a scripted policy and of chance, over episodes of many lifetimes, before rewards are rescaled."""
    family = suites.FAMILIES[name].family

    def life(key, skilled):
        task = family.draw(key)
        plain, scale = getattr(task, "task", task), getattr(task, "scale", jnp.float32(1))
        env = batch(family.make(task), 1)
        state, _ = env.reset(key)

        def step(state, word):
            one = jax.tree.map(lambda x: x[0], state.env)
            action = jnp.where(skilled, policy(plain, one, word), (word % family.spec.num_actions).astype(jnp.int32))
            # Bits are keys enough for a test, and splitting keys takes long to compile.
            state, after = env.step(jax.random.wrap_key_data(jnp.stack([word, word])), state, action[None])
            return state, after.end

        _, end = jax.lax.scan(step, state, jax.random.bits(key, (T,)))
        return end.episode_return / scale, end.ended

    keys = jax.random.split(jax.random.key(0), lives)
    both = jax.jit(jax.vmap(life))(jnp.concatenate([keys, keys]), jnp.arange(2 * lives) < lives)
    got, ended = (np.asarray(x).reshape(2, -1) for x in both)
    return (got * ended).sum(axis=1) / ended.sum(axis=1)


def towards(target, place):
    """Left, stay or right."""
    return 1 + jnp.sign(target - place)


def under_the_ball(task, state, word):
    return towards(state.ball, state.paddle)


def answer(task, state, word):
    return jnp.sum(jnp.where(jnp.arange(3) == state.signal, task.answer, 0))


def best_arm(task, state, word):
    return jnp.argmax(jnp.sum(task.weights * state.context[None, :], axis=1)).astype(jnp.int32)


def rightwards(task, state, word):
    return task.right[state.row, state.column].astype(jnp.int32)


def step_aside(task, state, word):
    """To where nothing falls next, nor after that if possible."""
    rocks, moves = state.rocks.astype(jnp.int32), jnp.arange(-1, 2)
    column = jnp.clip(state.column + moves, 0, task.columns - 1)
    danger = 4 * rocks[task.rows - 2, column] + 2 * rocks[task.rows - 3, column] + jnp.abs(moves)
    return jnp.argmin(danger).astype(jnp.int32)


def under_the_next_bounce(task, state, word):
    aside = state.column + state.right
    right = jnp.where((aside < 0) | (aside >= task.columns), -state.right, state.right)
    return towards(state.column + right - (word % 2).astype(jnp.int32), state.paddle)


@pytest.mark.parametrize(
    "name, T, policy, good, bad",
    [
        ("catch/windy", 30, under_the_ball, 0.4, 0.1),
        ("catch/many", 60, under_the_ball, 2.0, 0.6),
        ("chain/delayed", 40, answer, 0.8, 0.3),
        ("chain/deep-sea", 30, rightwards, 0.94, 0.3),
        ("bandit/contextual", 50, best_arm, 6.0, 1.5),
        ("game/dodge", 120, step_aside, 1.5, 0.8),
        ("game/breakout", 210, under_the_next_bounce, 0.6, 0.3),
    ],
)
def test_a_good_policy_beats_chance(name, T, policy, good, bad):
    skilled, lucky = returns(name, policy, T)
    assert skilled > good > bad > lucky
