"""The compliance check passes what is sound, and names what is not."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from discorl.envs import Environment, EnvSpec, TimeStep, catch, check, make
from discorl.envs.names import NAMED
from discorl.errors import DiscorlError

RANDOM = np.random.default_rng(0)
SPEC = EnvSpec(name="sound", num_actions=3, observation={"x": jax.ShapeDtypeStruct((2,), jnp.float32)})


def obs_of(state):
    return {"x": jnp.full((2,), state.astype(jnp.float32))}


def reset(key):
    return jnp.int32(0), obs_of(jnp.int32(0))


def timestep(state, **changes):
    sound = TimeStep(obs=obs_of(state), reward=jnp.float32(1), terminated=state == 4, truncated=jnp.zeros((), bool))
    return sound._replace(**changes)


def step(key, state, action):
    return state + 1, timestep(state + 1)


SOUND = Environment(spec=SPEC, reset=reset, step=step, render=str)


def spec(**changes):
    return SOUND._replace(spec=EnvSpec(**{**SPEC.__dict__, **changes}))


def resets_to(make_state, make_obs=lambda: obs_of(jnp.int32(0))):
    return SOUND._replace(reset=lambda key: (make_state(), make_obs()))


def gives(**changes):
    """The sound environment, but with some fields of its time step made otherwise: functions of (state, action)."""

    def step(key, state, action):
        return state + 1, timestep(state + 1, **{name: f(state + 1, action) for name, f in changes.items()})

    return SOUND._replace(step=step)


def drawn_at_run_time(state, action):
    draw = jax.pure_callback(
        lambda: np.float32(RANDOM.normal()), jax.ShapeDtypeStruct((), jnp.float32), vmap_method="sequential"
    )
    return draw


@pytest.mark.parametrize("name", sorted(NAMED))
def test_built_in_environments_comply(name):
    check(make(name))


def test_a_sound_environment_complies_and_ends():
    check(SOUND, max_steps=4)


def test_state_may_be_empty_or_hold_a_key():
    keyed = SOUND._replace(
        reset=lambda key: ((jnp.int32(0), key), obs_of(jnp.int32(0))),
        step=lambda key, state, action: ((state[0] + 1, state[1]), timestep(state[0] + 1)),
        render=lambda state: "",
    )
    check(keyed, steps=2)
    empty = SOUND._replace(
        reset=lambda key: ((), obs_of(jnp.int32(0))), step=lambda key, state, action: (state, timestep(jnp.int32(1)))
    )
    check(empty, steps=0)


def branches(key, state, action):
    return (state + 1, timestep(state + 1)) if action > 0 else (state, timestep(state))


WRONG_TYPES = {
    "no environment": ("cartpole", "must be a discorl.envs.Environment, got str"),
    "no spec": (SOUND._replace(spec=None), "spec of an environment must be an EnvSpec, got NoneType"),  # type: ignore
    "no name": (spec(name=""), "name of an environment must be a string that is not empty"),
    "no actions": (spec(num_actions=0), "'sound': spec.num_actions must be a whole number of at least 1, got 0"),
    "bool actions": (spec(num_actions=True), "must be a whole number of at least 1, got True"),
    "action names": (spec(action_names=("a", "b")), "spec.action_names has 2 names for 3 actions"),
    "no observation": (spec(observation=()), "spec.observation has no arrays"),
    "spec of arrays": (spec(observation=np.zeros(2)), r"tree of jax.ShapeDtypeStruct, but it holds float64\[2\]"),
    "reset alone": (SOUND._replace(reset=lambda key: jnp.int32(0)), r"reset must return \(state, obs\), got int32\[\]"),
    "reset raises": (SOUND._replace(reset=lambda: 0), "reset raised TypeError: .*takes 0 positional arguments"),
    "reset shape": (
        resets_to(lambda: jnp.int32(0), lambda: {"x": jnp.zeros(3)}),
        r"the observation of reset is float32\[3\] at \['x'\], but spec.observation says float32\[2\]",
    ),
    "reset dtype": (
        resets_to(lambda: jnp.int32(0), lambda: {"x": jnp.zeros(2, jnp.int32)}),
        r"the observation of reset is int32\[2\] at \['x'\], but spec.observation says float32\[2\]",
    ),
    "reset structure": (
        resets_to(lambda: jnp.int32(0), lambda: jnp.zeros(2)),
        r"the observation of reset has the structure PyTreeDef\(\*\), but spec.observation says .*'x'",
    ),
    "branches": (SOUND._replace(step=branches), "step raised TracerBoolConversionError: "),
    "gym step": (
        SOUND._replace(step=lambda key, state, action: (obs_of(state), 1.0, True, False)),  # type: ignore
        r"step must return \(state, TimeStep\), got tuple",
    ),
    "no TimeStep": (
        SOUND._replace(step=lambda key, state, action: (state, obs_of(state))),  # type: ignore
        r"step must return \(state, TimeStep\), got dict as the second",
    ),
    "state shape": (
        SOUND._replace(step=lambda key, state, action: (state[None], timestep(state))),
        r"the state after step is int32\[1\], but the state of reset says int32\[\]",
    ),
    "state dtype": (
        SOUND._replace(step=lambda key, state, action: (state.astype(jnp.float32), timestep(state))),
        r"the state after step is float32\[\], but the state of reset says int32\[\]",
    ),
    "state structure": (
        SOUND._replace(step=lambda key, state, action: ((state, state), timestep(state))),
        "the state after step has the structure .*, but the state of reset says ",
    ),
    "step obs": (
        gives(obs=lambda state, action: {"x": jnp.zeros((2, 1))}),
        r"the observation of step is float32\[2,1\] at \['x'\], but spec.observation says float32\[2\]",
    ),
    "reward shape": (
        gives(reward=lambda state, action: jnp.ones(1)),
        r"reward is float32\[1\], but the contract says float32\[\]",
    ),
    "reward dtype": (
        gives(reward=lambda state, action: state),
        r"reward is int32\[\], but the contract says float32\[\]",
    ),
    "terminated dtype": (
        gives(terminated=lambda state, action: jnp.float32(0)),
        r"terminated is float32\[\], but the contract says bool\[\]",
    ),
    "truncated shape": (
        gives(truncated=lambda state, action: jnp.zeros(2, bool)),
        r"truncated is bool\[2\], but the contract says bool\[\]",
    ),
    "weak reset": (
        resets_to(lambda: jnp.asarray(0)),
        r"the state of reset is weakly typed \(made .*jnp.asarray\(x, jnp.int32\)",
    ),
    "weak step": (
        SOUND._replace(step=lambda key, state, action: (jnp.asarray(3), timestep(state))),
        "the state after step is weakly typed",
    ),
    "weak reset obs": (
        resets_to(lambda: jnp.int32(0), lambda: {"x": jnp.full((2,), 1.0)}),
        r"the observation of reset is weakly typed at \['x'\]",
    ),
    "weak reward": (
        gives(reward=lambda state, action: 1.0),
        r"the result of step is weakly typed at .*reward.*jnp.float32",
    ),
}

WRONG_NUMBERS = {
    "reward of the last action": (
        gives(reward=lambda state, action: jnp.where(action == 2, jnp.float32(jnp.inf), jnp.float32(0))),
        "'sound': reward must be finite",
    ),
    "late observation": (
        gives(obs=lambda state, action: {"x": jnp.full((2,), jnp.where(state == 3, jnp.inf, jnp.float32(0)))}),
        "'sound': observations must be finite",
    ),
    "first observation": (
        resets_to(lambda: jnp.int32(0), lambda: {"x": jnp.full((2,), jnp.float32(jnp.inf))}),
        "'sound': observations must be finite",
    ),
    "drawn while tracing": (
        gives(reward=lambda state, action: jnp.float32(RANDOM.normal())),
        "the same key gave different numbers; draw all randomness from the key",
    ),
    "drawn at run time": (
        gives(reward=drawn_at_run_time),
        "the same key gave different numbers; draw all randomness from the key",
    ),
    "render says nothing": (
        SOUND._replace(render=lambda state: None),  # type: ignore
        "render must return text, got NoneType",
    ),
    "render wants a batch": (
        SOUND._replace(render=lambda state: str(state[0])),
        "render raised IndexError: ",
    ),
}


@pytest.mark.parametrize("broken", WRONG_TYPES)
def test_wrong_types_are_named_without_running_anything(broken):
    env, message = WRONG_TYPES[broken]
    with pytest.raises(DiscorlError, match=message):
        check(env, steps=0)


@pytest.mark.parametrize("broken", WRONG_NUMBERS)
def test_wrong_numbers_are_named(broken):
    env, message = WRONG_NUMBERS[broken]
    check(env, steps=0)
    with pytest.raises(DiscorlError, match=message) as caught:
        check(env, steps=3)  # fewer than an episode has, so the first observation is seen once
    assert "\n" not in str(caught.value)


def test_every_action_is_tried_also_when_there_are_more_than_lanes():
    last = 99
    env = gives(reward=lambda state, action: jnp.where(action == last, jnp.float32(jnp.inf), jnp.float32(0)))
    with pytest.raises(DiscorlError, match="reward must be finite"):
        check(env._replace(spec=EnvSpec(name="wide", num_actions=last + 1, observation=SPEC.observation)), steps=1)


def test_episodes_that_do_not_end_in_time_are_named():
    with pytest.raises(DiscorlError, match="'sound': an episode did not end within 3 steps"):
        check(SOUND, steps=0, max_steps=3)


def test_catch_ends_after_one_step_less_than_rows():
    check(catch(3, 3), steps=0, max_steps=2)
    with pytest.raises(DiscorlError, match="did not end within 1 steps"):
        check(catch(3, 3), steps=0, max_steps=1)
