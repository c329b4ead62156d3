"""Stacks of observations: a naive twin that remembers whole episodes, in compiled environments and in Python's."""

from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from host_worlds import Counter, Growing

import discorl
from discorl import envs
from discorl.envs import Environment, EnvSpec, HostEnvironment, TimeStep
from discorl.errors import DiscorlError
from discorl.replay import HostReplay
from discorl.types import Rollout

COUNT = 3


def naive(episode: list[np.ndarray]) -> np.ndarray:
    """The last observations of an episode, its first one standing for those before."""
    padded = [episode[0]] * COUNT + episode
    return np.concatenate(padded[-COUNT:], -1)


def as_host(env: Any, count: int) -> HostEnvironment:
    made = envs.stacked(envs.as_environment(env), count)
    assert isinstance(made, HostEnvironment)
    return made


def as_compiled(env: Environment, count: int) -> Environment:
    made = envs.stacked(env, count)
    assert isinstance(made, Environment)
    return made


def test_a_compiled_environment_shows_its_last_boards() -> None:
    plain = discorl.envs.catch(rows=5, columns=5)
    wide = as_compiled(plain, COUNT)
    assert wide.spec.observation.shape == (5, 5, COUNT)
    envs.check(wide)
    (state, obs), (own_state, own) = wide.reset(jax.random.key(0)), plain.reset(jax.random.key(0))
    episode = [np.asarray(own)[..., None]]
    np.testing.assert_array_equal(obs, naive(episode))
    for t in range(4):
        key, action = jax.random.key(t), jnp.int32(t % 3)
        state, came = wide.step(key, state, action)
        own_state, own_came = plain.step(key, own_state, action)
        episode.append(np.asarray(own_came.obs)[..., None])
        np.testing.assert_array_equal(came.obs, naive(episode))
        assert (came.reward, came.terminated) == (own_came.reward, own_came.terminated)
    assert wide.render(state) == plain.render(own_state)


def test_lanes_that_python_steps_begin_anew_one_by_one() -> None:
    vector, own = as_host(Counter, COUNT).open(2), as_host(Counter, 1).open(2)
    obs, own_obs = vector.reset(4), own.reset(4)
    episodes = [[row] for row in own_obs]
    np.testing.assert_array_equal(obs, [naive(episode) for episode in episodes])
    for _ in range(20):
        action = np.zeros(2, np.int32)
        came, own_came = vector.step(action), own.step(action)
        final = [naive([*episode, row]) for episode, row in zip(episodes, own_came.final_obs, strict=True)]
        np.testing.assert_array_equal(came.final_obs, final)
        for lane, row in enumerate(own_came.obs):
            episodes[lane] = [row] if own_came.first[lane] else [*episodes[lane], row]
        np.testing.assert_array_equal(came.obs, [naive(episode) for episode in episodes])
        np.testing.assert_array_equal(came.first, own_came.first)


class Camera(Counter):
    """A coloured picture, channels first or last."""

    observation_space: Any = SimpleNamespace(shape=(3, 6, 6), dtype=np.dtype(np.uint8), low=0, high=255)

    def seen(self) -> np.ndarray:
        shape = self.observation_space.shape
        return (np.arange(np.prod(shape)).reshape(shape) + 7 * self.t + 50 * self.episode).astype(np.uint8)


class LastCamera(Camera):
    observation_space: Any = SimpleNamespace(shape=(6, 6, 3), dtype=np.dtype(np.uint8), low=0, high=255)


@pytest.mark.parametrize("camera", [Camera, LastCamera])
def test_channels_come_last(camera: type[Camera]) -> None:
    env = as_host(camera, 2)
    assert env.spec.observation.shape == (6, 6, 6)
    vector = env.open(1)
    vector.reset(0)
    vector.step(np.zeros(1, np.int32))
    obs = vector.step(np.zeros(1, np.int32)).obs[0]
    newest = np.asarray(as_host(camera, 1).open(1).reset(0)[0]) + np.uint8(14)  # 2 steps later
    newest = newest.transpose(1, 2, 0) if camera is Camera else newest
    np.testing.assert_array_equal(obs[..., 3:], newest)
    np.testing.assert_array_equal(obs[..., :3], newest - np.uint8(7))


def test_the_replay_holds_coloured_frames_once() -> None:
    env, steps = as_host(LastCamera, 4), 8
    vector = env.open(2)
    seen = [vector.reset(1)]
    seen += [vector.step(np.zeros(2, np.int32)).obs for _ in range(steps)]
    zeros = np.zeros((steps, 2), np.float32)
    first = np.zeros((steps + 1, 2), bool)
    rollout = Rollout(np.stack(seen), first, zeros.astype(np.int32), zeros, zeros, zeros[..., None], ())
    replay = HostReplay(rollout, 4, env.spec.stack)
    replay.add(rollout)
    back = replay.sample(np.random.default_rng(0), 2, fresh_count=2)
    np.testing.assert_array_equal(back.obs, rollout.obs)
    assert replay.state.frames.ring.shape[1:] == (6, 6, 3)
    assert replay.state.frames.total <= 2 * (steps + 1)


def test_a_mask_is_the_one_of_now() -> None:
    def seen(t: jax.Array) -> dict[str, jax.Array]:
        return {"action_mask": jnp.array([True, False]) ^ (t % 2 == 1), "number": t[None].astype(jnp.float32)}

    def step(key: jax.Array, t: jax.Array, action: jax.Array) -> tuple[jax.Array, TimeStep]:
        return t + 1, TimeStep(seen(t + 1), jnp.float32(0), jnp.bool_(False), jnp.bool_(False))

    shapes = jax.eval_shape(seen, jnp.int32(0))
    plain = Environment(EnvSpec("count", 2, shapes), lambda key: (jnp.int32(0), seen(jnp.int32(0))), step, str)
    wide = as_compiled(plain, COUNT)
    assert wide.spec.stack == 0  # a tree is stored as it is
    state, _ = wide.reset(jax.random.key(0))
    state, _ = wide.step(jax.random.key(0), state, jnp.int32(0))
    state, came = wide.step(jax.random.key(0), state, jnp.int32(0))
    np.testing.assert_array_equal(came.obs["number"], [0, 1, 2])
    np.testing.assert_array_equal(came.obs["action_mask"], [True, False])


def test_a_stack_of_stacks_is_refused() -> None:
    spec = EnvSpec("frames", 2, jax.ShapeDtypeStruct((6, 6, 4), np.dtype(np.uint8)), stack=4)
    with pytest.raises(DiscorlError, match="shows 4 frames at once already; leave out frame_stack"):
        envs.stacked(HostEnvironment(spec, lambda size, render: None), 2)


def test_a_wrong_observation_is_still_said_in_one_sentence() -> None:
    vector = as_host(Growing, COUNT).open(1)
    vector.reset(0)
    with pytest.raises(DiscorlError, match="may not change"):
        for _ in range(4):
            vector.step(np.zeros(1, np.int32))
