"""Families side by side: each agent lives in a task of its own family, as if the others were not there."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from discorl.envs import suites
from discorl.envs.base import EnvSpec
from discorl.envs.families import single
from discorl.envs.together import by_actions, together
from discorl.errors import DiscorlError

NAMES = ("catch/sizes", "catch/many", "chain/delayed")  # 81, 5 and 15 numbers; three actions each
FAMILIES = [suites.families(name)[0] for name in NAMES]


def test_every_family_is_lived_in_as_if_it_were_alone() -> None:
    alike = together(FAMILIES)
    assert alike.names == NAMES
    assert alike.spec.observation.shape == (81,)
    key, steps = jax.random.key(4), 12
    actions = jax.random.randint(jax.random.key(5), (steps,), 0, 3)

    def live(env) -> tuple:
        def step(state, at):
            state, came = env.step(jax.random.fold_in(key, at[0]), state, at[1])
            return state, came

        state, obs = env.reset(key)
        return obs, jax.lax.scan(step, state, (jnp.arange(steps), actions))[1]

    lives = jax.jit(jax.vmap(lambda which: live(alike.make(alike.draw(key, which)))))(jnp.arange(len(FAMILIES)))
    for i, family in enumerate(FAMILIES):
        first, came = jax.jit(lambda family=family: live(family.make(family.draw(key))))()
        got_first, got = jax.tree.map(lambda x, i=i: x[i], lives)
        size = first.size
        np.testing.assert_array_equal(got_first[:size], first.reshape(-1))
        np.testing.assert_array_equal(got.obs[:, :size], came.obs.reshape(steps, -1))
        assert not np.any(got.obs[:, size:])
        for name in ("reward", "terminated", "truncated"):
            np.testing.assert_array_equal(getattr(got, name), getattr(came, name), err_msg=f"{family.name} {name}")


def test_one_family_stays_as_it_is() -> None:
    family = suites.families("catch/sizes")[0]
    assert together([family]).spec is family.spec


def test_families_are_grouped_by_their_number_of_actions() -> None:
    groups = by_actions(suites.families("small-worlds"))
    assert [len({family.spec.num_actions for family in group}) for group in groups] == [1] * len(groups)
    assert sorted(f.name for group in groups for f in group) == sorted(f.name for f in suites.families("small-worlds"))


def test_what_cannot_go_together_is_refused() -> None:
    with pytest.raises(DiscorlError, match=r"\[2, 3\] actions cannot go together"):
        together([FAMILIES[0], suites.families("chain/river")[0]])
    env = suites.environment("catch/sizes")
    coarse = env._replace(spec=EnvSpec("pixels", 3, jax.ShapeDtypeStruct((4, 4), jnp.uint8)))
    with pytest.raises(DiscorlError, match="pixels shows other numbers than float32"):
        together([single(coarse), FAMILIES[0]])
