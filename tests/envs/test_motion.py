"""Motion along a line against the same equations in NumPy (float64), and against what a person would do."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from walks import against_chance, walk

from discorl.envs import motion, suites

T = 40


def test_pump_is_a_spring_with_drag(key):
    family = motion.pump("pump")
    task = family.draw(key)._replace(limit=jnp.int32(30))
    pace, push, drag = (float(x) for x in task[:3])
    place, speed, actions = 0.3, 0.1, np.random.default_rng(0).integers(3, size=T)
    start = motion.MotionState(*map(jnp.float32, (place, speed, 1.0)), clock=jnp.int32(0))
    steps = walk(family.make(task), start, actions)
    for t, action in enumerate(actions):
        speed += pace**2 * (push * (action - 1) - place) - drag * speed
        place += speed
        np.testing.assert_allclose(steps.obs[t], [place, speed / pace], rtol=1e-4, atol=1e-5)
        assert steps.reward[t] == -1
        assert bool(steps.terminated[t]) == (abs(place) >= 1)
        assert bool(steps.truncated[t]) == (t >= 29 and abs(place) < 1)


def test_hover_costs_the_distance_and_never_ends(key):
    family = motion.hover("hover")
    task = family.draw(key)._replace(gusts=jnp.float32(0), limit=jnp.int32(30))
    thrust, pull, drag = (float(x) for x in task[:3])
    place, speed, target = 0.3, 0.0, -0.5
    actions = np.r_[np.random.default_rng(0).integers(3, size=T // 2), np.full(T // 2, 2)]  # at last as far as it goes
    start = motion.MotionState(*map(jnp.float32, (place, speed, target)), clock=jnp.int32(0))
    steps = walk(family.make(task._replace(pull=jnp.abs(task.pull))), start, actions)
    for t, action in enumerate(actions):
        speed += thrust * (action - 1 + abs(pull)) - drag * speed
        place += speed
        if abs(place) > 2:
            place, speed = np.clip(place, -2, 2), 0.0
        np.testing.assert_allclose(steps.obs[t], [place, speed / thrust / 4, target], rtol=1e-4, atol=1e-5)
        assert steps.reward[t] == pytest.approx(-0.1 * min(abs(place - target), 1), abs=1e-6)
        assert bool(steps.truncated[t]) == (t >= 29)
    assert not steps.terminated.any()
    assert place == 2


def test_gusts_are_drawn_at_every_step(key):
    family = motion.hover("hover")
    env = family.make(family.draw(key)._replace(gusts=jnp.float32(0.5)))
    state, _ = jax.jit(env.reset)(key)
    _, steps = jax.jit(jax.vmap(env.step, in_axes=(0, None, None)))(jax.random.split(key, 50), state, jnp.int32(1))
    assert len(np.unique(np.asarray(steps.obs[:, 0]))) > 40


def test_pushing_one_way_is_not_enough(key):
    """From rest, the spring swings out to twice the push at most."""
    family = motion.pump("pump")
    tasks = jax.vmap(family.draw)(jax.random.split(key, 200))
    assert np.asarray(tasks.push).max() < 0.5


PHASE = {"motion/pump": lambda obs: obs[1], "motion/hover": lambda obs: obs[2] - obs[0] - 0.5 * obs[1]}


@pytest.mark.parametrize("name", PHASE)
def test_who_knows_how_beats_chance(name, key):
    family = suites.FAMILIES[name].family
    knowing, chance = against_chance(family, lambda obs: jnp.where(PHASE[name](obs) > 0, 2, 0), key, steps=120)
    assert knowing > 0.6 * chance  # both are costs
