"""Batching and auto-reset against a plain Python loop over single environments."""

from dataclasses import replace
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from discorl.envs import BatchStep, Environment, EnvSpec, EpisodeEnd, TimeStep, batch, catch
from discorl.errors import DiscorlError

T, B = 30, 3


class WalkState(NamedTuple):
    position: jax.Array
    clock: jax.Array
    key: jax.Array


def bits(key):
    """A key as a number: as good as random here, and it shows which key was used."""
    return (jax.random.key_data(key)[1] >> jnp.uint32(8)).astype(jnp.int32)


def walk() -> Environment:
    """A random walk that terminates at ±3 and is truncated after 6 steps; all its keys leave traces."""

    def observe(state):
        return {"place": state.position.astype(jnp.float32), "time": jnp.stack([state.clock, bits(state.key)])}

    def reset(key):
        state = WalkState(position=bits(key) % 3 - 1, clock=jnp.int32(0), key=key)
        return state, observe(state)

    def step(key, state, action):
        noise = (bits(state.key) >> state.clock) % 2
        position = state.position + 2 * action - 1 + noise
        state = state._replace(position=position, clock=state.clock + 1)
        return state, TimeStep(
            obs=observe(state),
            reward=bits(key).astype(jnp.float32) / 1024,  # exact
            terminated=jnp.abs(position) >= 3,
            truncated=state.clock == 6,
        )

    observation = {"place": jax.ShapeDtypeStruct((), jnp.float32), "time": jax.ShapeDtypeStruct((2,), jnp.int32)}
    spec = EnvSpec(name="walk", num_actions=2, observation=observation)
    return Environment(spec=spec, reset=reset, step=step, render=str)


def weak() -> Environment:
    """State, observation and reward are bare Python numbers wherever JAX lets them be."""

    def reset(key):
        return {"clock": 0, "speed": 1.0}, 0.0

    def step(key, state, action):
        clock = state["clock"] + 1
        timestep = TimeStep(obs=state["speed"], reward=1.0, terminated=clock == 3, truncated=False)  # type: ignore
        return {"clock": clock, "speed": state["speed"]}, timestep

    spec = EnvSpec(name="weak", num_actions=1, observation=jax.ShapeDtypeStruct((), jnp.float32))
    return Environment(spec=spec, reset=reset, step=step, render=str)


def runner(env):
    """(key, actions) -> the first observation and all steps of a batch, as NumPy; step t gets `fold_in(key, t)`."""

    @jax.jit
    def run(key, actions):
        keys = jax.vmap(lambda t: jax.random.fold_in(key, t))(jnp.arange(len(actions)))
        state, obs = env.reset(key)
        return obs, jax.lax.scan(lambda state, x: env.step(x[0], state, x[1]), state, (keys, actions))[1]

    return lambda key, actions: jax.tree.map(np.asarray, run(key, actions))


@pytest.fixture(scope="module")
def run_walk():
    return runner(batch(walk(), B, keep_final_obs=True))


def test_batch_equals_a_python_loop_over_single_environments(run_walk, key):
    env = walk()
    # Keys as NumPy numbers: slicing arrays of keys outside of jit is slow.
    reset = jax.jit(lambda numbers: env.reset(jax.random.wrap_key_data(numbers)))
    step = jax.jit(lambda numbers, *args: env.step(jax.random.wrap_key_data(numbers), *args))
    split = jax.jit(jax.vmap(lambda t: jax.random.key_data(jax.random.split(jax.random.fold_in(key, t), (2, B)))))
    actions = np.random.default_rng(1).integers(0, 2, (T, B)).astype(np.int32)
    first_obs, got = run_walk(key, actions)
    reset_keys, keys = np.asarray(jax.random.key_data(jax.random.split(key, B))), np.asarray(split(np.arange(T)))

    endings = []
    for b in range(B):
        state, obs = reset(reset_keys[b])
        jax.tree.map(lambda x, y: np.testing.assert_array_equal(x[b], y), first_obs, obs)  # noqa: B023
        total, length = np.float32(0), 0
        for t in range(T):
            state, timestep = step(keys[t, 0, b], state, actions[t, b])
            terminated, truncated = bool(timestep.terminated), bool(timestep.truncated)
            ended = terminated or truncated
            total, length = total + np.float32(timestep.reward), length + 1
            final_obs = obs = timestep.obs
            if ended:
                endings.append((terminated, truncated))
                state, obs = reset(keys[t, 1, b])
            end = EpisodeEnd(*map(jnp.asarray, (ended, total if ended else 0, length if ended else 0)))
            expected = BatchStep(
                obs=obs,
                first=jnp.asarray(ended),
                reward=timestep.reward,
                discount=jnp.asarray(0 if ended else 1),
                truncated=jnp.asarray(truncated and not terminated),
                end=end,
                final_obs=final_obs,
            )
            here = jax.tree.map(lambda x: x[t, b], got)  # noqa: B023
            jax.tree.map(np.testing.assert_array_equal, here, expected)
            if ended:
                total, length = np.float32(0), 0
    assert {(True, False), (False, True)} <= set(endings), "both kinds of ending must occur in this test"


def test_types_of_a_step(key):
    env = batch(catch(3, 3), B)
    state, obs = jax.eval_shape(env.reset, key)
    _, info = jax.eval_shape(env.step, key, state, jax.ShapeDtypeStruct((B,), jnp.int32))
    assert obs.shape == info.obs.shape == (B, 3, 3)
    assert info.final_obs == ()
    types = {name: str(getattr(info, name).dtype) for name in ("first", "reward", "discount", "truncated")}
    assert types == {"first": "bool", "reward": "float32", "discount": "float32", "truncated": "bool"}
    assert [str(x.dtype) for x in info.end] == ["bool", "float32", "int32"]


def test_no_key_is_used_twice(key):
    """An environment whose observation is the key it was given."""

    def reset(key):
        return (), jax.random.key_data(key)

    def step(key, state, action):
        yes, no = jnp.ones((), bool), jnp.zeros((), bool)
        return (), TimeStep(obs=jax.random.key_data(key), reward=jnp.float32(0), terminated=yes, truncated=no)

    spec = EnvSpec(name="key", num_actions=1, observation=jax.ShapeDtypeStruct((2,), jnp.uint32))
    env = batch(Environment(spec=spec, reset=reset, step=step, render=str), B, keep_final_obs=True)
    first_obs, history = runner(env)(key, np.zeros((4, B), np.int32))
    seen = np.concatenate([x.reshape(-1, 2) for x in (first_obs, history.obs, history.final_obs)])
    assert len(np.unique(seen, axis=0)) == len(seen) == B + 4 * B + 4 * B


def test_step_is_traced_once(key):
    env, traces = batch(weak(), B), []
    step = jax.jit(lambda *args: (traces.append(1), env.step(*args))[1])
    state, _ = jax.jit(env.reset)(key)
    for t in range(3):
        state, _ = step(jax.random.fold_in(key, t), state, jnp.zeros(B, jnp.int32))
    assert len(traces) == 1


@pytest.mark.parametrize("make", [catch, walk, weak])
def test_a_step_returns_the_types_it_was_given_and_none_is_weak(make, key):
    env = batch(make(), B)
    state, obs = jax.eval_shape(env.reset, key)
    state_after, info = jax.eval_shape(env.step, key, state, jax.ShapeDtypeStruct((B,), jnp.int32))
    assert not any(x.weak_type for x in jax.tree.leaves((state, obs, state_after, info)))
    assert str(state) == str(state_after)


def test_same_key_same_bits_and_another_key_another_course(run_walk, key):
    actions = np.ones((T, B), np.int32)
    one, two, other = (run_walk(k, actions)[1] for k in (key, key, jax.random.fold_in(key, 7)))
    jax.tree.map(np.testing.assert_array_equal, one, two)
    assert not np.array_equal(one.reward, other.reward)
    assert len(np.unique(one.reward)) == T * B, "every step of every environment draws its own noise"


def test_a_population_is_a_vmap(key):
    P, env = 2, batch(catch(3, 3), B)

    def first_step(key, action):
        state, _ = env.reset(key)
        return env.step(key, state, action)[1]

    info = jax.eval_shape(jax.vmap(first_step), jax.random.split(key, P), jnp.ones((P, B), jnp.int32))
    assert info.reward.shape == info.end.length.shape == (P, B)
    assert info.obs.shape == (P, B, 3, 3)


@pytest.mark.parametrize("size", [0, -2])
def test_a_batch_needs_environments(size):
    with pytest.raises(DiscorlError, match=f"at least 1 environment, got {size}"):
        batch(catch(), size)


@pytest.mark.parametrize("size", [1, 40])
def test_costly_resets_a_few_at_a_time_give_the_same_numbers(size):
    """Also for batches side by side. The clock ends many lanes at once, more than one turn of the loop begins."""
    env = walk()
    costly = env._replace(spec=replace(env.spec, costly_reset=True))

    def run(env, key):
        batched = batch(env, size, keep_final_obs=True)

        def advance(state, key):
            return batched.step(key, state, jax.random.randint(key, (size,), 0, 2, jnp.int32))

        state, obs = batched.reset(key)
        state, history = jax.lax.scan(advance, state, jax.random.split(key, 2 * T))
        return obs, history, state.env.position, jax.random.key_data(state.env.key)

    keys = jax.random.split(jax.random.key(1), 2)
    plain, few = (jax.jit(jax.vmap(partial(run, x)))(keys) for x in (env, costly))
    jax.tree.map(np.testing.assert_array_equal, plain, few)
    at_once = np.asarray(plain[1].first).sum(-1).max()
    assert at_once > 6 or size == 1
    assert " while[" in str(jax.make_jaxpr(partial(run, costly))(keys[0]))
    assert " while[" not in str(jax.make_jaxpr(partial(run, env))(keys[0]))
