"""The split is fixed, and every family gives tasks that differ under one shape."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from discorl.envs import base, make, suites
from discorl.errors import DiscorlError

SPLIT = {
    "discovery": {
        *("catch/sizes", "catch/windy", "catch/many", "grid/goals", "grid/maze", "grid/traps"),
        *("chain/delayed", "chain/river", "chain/tables", "bandit/contextual", "control/cart-pole", "control/reach"),
        *("motion/pump", "motion/hover"),
    },
    "held-out": {
        *("grid/keys", "grid/cliff", "chain/deep-sea", "control/mountain-car", "control/pendulum", "control/acrobot"),
        *("game/dodge", "game/breakout"),
    },
}


def names(suite):
    return [family.name for family in suites.families(suite)]


def test_the_split_is_made_once_and_for_all():
    """A family that changes sides, or its ranges after rules were judged by it, spoils every figure so far."""
    for split, expected in SPLIT.items():
        assert {name for name, entry in suites.FAMILIES.items() if entry.split == split} == expected
    assert set(names("small-worlds")) == SPLIT["discovery"]
    assert set(names("held-out")) == SPLIT["held-out"]
    assert names("catch") == ["catch:5x5"]
    assert names("grid/keys") == ["grid/keys"]


def test_nothing_is_discovered_on_what_is_held_out():
    assert suites.for_discovery("small-worlds") == suites.families("small-worlds")
    for name in ("held-out", "grid/keys"):
        with pytest.raises(DiscorlError, match=f"'{name}' is held out.* discover on catch, small-worlds"):
            suites.for_discovery(name)
    with pytest.raises(DiscorlError, match="unknown suite 'small-world'; did you mean 'small-worlds'"):
        suites.families("small-world")


def test_suites_are_listed():
    assert [row[:2] for row in suites.listing()] == [
        ("catch", "discovery"),
        ("small-worlds", "discovery"),
        ("held-out", "held-out"),
    ]


def test_small_worlds_are_small():
    for family in suites.families("small-worlds"):
        assert math.prod(family.spec.observation.shape) <= 150
        assert 2 <= family.spec.num_actions <= 5


@pytest.mark.parametrize("name", suites.FAMILIES)
def test_tasks_differ_and_have_one_shape(name):
    family = suites.FAMILIES[name].family
    tasks = jax.jit(jax.vmap(family.draw))(jax.random.split(jax.random.key(0), 4))
    leaves = [np.asarray(x).reshape(4, -1) for x in jax.tree.leaves(tasks)]
    together = np.concatenate(leaves, axis=1)
    assert len(np.unique(together, axis=0)) == 4
    assert np.isfinite(together).all()
    one = jax.eval_shape(lambda key: family.make(family.draw(key)).reset(key)[1], jax.random.key(0))
    assert one == family.spec.observation
    standard = suites.FAMILIES[name].standard
    if standard:
        kinds = [(x.shape[1:], x.dtype) for x in jax.tree.leaves(tasks)]
        assert [(x.shape, x.dtype) for x in jax.tree.leaves(standard())] == kinds


def test_a_population_lives_in_tasks_of_its_own():
    """Traced tasks under `vmap` give what each task gives alone."""
    family, T, B = suites.FAMILIES["catch/windy"].family, 5, 2

    def life(key, task):
        env = base.batch(family.make(task), B)
        state, obs = env.reset(key)
        actions = jnp.arange(T * B, dtype=jnp.int32).reshape(T, B) % family.spec.num_actions
        _, steps = jax.lax.scan(lambda s, x: env.step(x[0], s, x[1]), state, (jax.random.split(key, T), actions))
        return obs, steps.obs, steps.reward

    keys = jax.random.split(jax.random.key(3), 3)
    tasks = jax.jit(jax.vmap(family.draw))(keys)
    together = jax.jit(jax.vmap(life))(keys, tasks)
    alone = jax.jit(life)
    for i in range(3):
        expected = alone(keys[i], jax.tree.map(lambda x, i=i: x[i], tasks))
        jax.tree.map(lambda x, y, i=i: np.testing.assert_array_equal(x[i], y), together, expected)
    assert len(np.unique(np.asarray(together[0]).reshape(3, -1), axis=0)) > 1


def test_a_number_is_a_task():
    seven = make("bandit/contextual:7")
    assert seven.spec.name == "bandit/contextual:7"
    assert make("bandit/contextual:0").spec.name == "bandit/contextual"
    family = suites.FAMILIES["bandit/contextual"].family
    key, action = jax.random.key(1), jnp.int32(2)
    for env, number in ((seven, 7), (make("bandit/contextual"), 0)):
        twin = family.make(family.draw(jax.random.key(number)))
        state, _ = twin.reset(key)
        assert isinstance(env, base.Environment)
        assert env.step(key, state, action)[1].reward == pytest.approx(float(twin.step(key, state, action)[1].reward))


def test_a_bare_name_is_the_standard_task_where_there_is_one():
    assert make("control/cart-pole").spec.name == "control/cart-pole"
    assert make("control/cart-pole:0").spec.name == "control/cart-pole:0"
    assert make("cartpole").spec.name == "cartpole"


def test_rewards_are_rescaled_and_nothing_else(key):
    from discorl.envs.catch_tasks import CatchRanges, catch_tasks
    from discorl.envs.families import rescaled

    plain = catch_tasks("plain", CatchRanges())
    family = rescaled(plain, (0.5, 2.0))
    tasks = jax.jit(jax.vmap(family.draw))(jax.random.split(key, 400))
    task, scales = jax.tree.map(lambda x: x[0], tasks), tasks.scale
    assert 0.5 <= scales.min() < 0.55 and 1.9 < scales.max() <= 2.0
    assert abs(np.mean(scales < 1.0) - 0.5) < 0.1  # as likely below as above, in the logarithm
    env, twin = family.make(task), plain.make(task.task)
    state, _ = jax.jit(twin.reset)(key)
    state = state._replace(row=task.task.rows - 2)
    got, expected = (jax.jit(e.step)(key, state, jnp.int32(0))[1] for e in (env, twin))
    assert abs(expected.reward) == 1
    assert got.reward == pytest.approx(float(expected.reward * task.scale))
    np.testing.assert_array_equal(got.obs, expected.obs)
