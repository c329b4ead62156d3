"""A ring of whole trajectories: the newest push out the oldest. On device, or in host memory."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from discorl.errors import DiscorlError
from discorl.frames import FrameStore, room
from discorl.types import Key, Rollout


class ReplayState(NamedTuple):
    """Trajectories lie along the first axis, each contiguous: writing and sampling copy whole blocks."""

    data: Rollout  # [capacity, T(+1), ...]
    next: Int[Array, ""]  # where the next trajectory goes
    size: Int[Array, ""]  # how many there are, the newest
    frames: Any = ()  # of stacks, once each, and how many there have been; `data.obs` are then their numbers


class Replay(NamedTuple):
    init: Callable[[Rollout], ReplayState]  # a rollout, or its shapes, as an example
    add: Callable[[ReplayState, Rollout], ReplayState]
    sample: Callable[[Key, ReplayState, Rollout], Rollout]  # the rollout just added is the fresh part of a batch


def init_replay(example: Rollout, *, capacity: int) -> ReplayState:
    def ring(x: jax.ShapeDtypeStruct) -> Array:
        return jnp.zeros((capacity, *x.shape[1:]), x.dtype)

    data = jax.tree.map(ring, jax.eval_shape(batch_first, example))
    return ReplayState(data=data, next=jnp.zeros((), jnp.int32), size=jnp.zeros((), jnp.int32))


def add_rollout(state: ReplayState, rollout: Rollout) -> ReplayState:
    new = batch_first(rollout)
    capacity, count = state.data.reward.shape[0], new.reward.shape[0]
    at = (state.next + jnp.arange(count, dtype=jnp.int32)) % capacity
    data = jax.tree.map(lambda ring, x: ring.at[at].set(x), state.data, new)
    size = jnp.minimum(state.size + count, capacity)
    return ReplayState(data=data, next=(state.next + count) % capacity, size=size)


def sample_rollout(key: Key, state: ReplayState, fresh: Rollout, *, batch: int, fresh_count: int) -> Rollout:
    """`batch` trajectories, uniform with replacement, of which `fresh_count` come from the newest rollout."""
    at = jax.random.randint(key, (batch - fresh_count,), 0, state.size)
    old = time_first(jax.tree.map(lambda ring: ring[at], state.data))
    if fresh_count == 0:
        return old
    newest = jax.tree.map(lambda x: x[:, :fresh_count], fresh._replace(memory=()))
    joined = jax.tree.map(lambda a, b: jnp.concatenate([a, b], axis=1), old._replace(memory=()), newest)
    memory = jax.tree.map(lambda a, b: jnp.concatenate([a, b[:fresh_count]]), old.memory, fresh.memory)
    return joined._replace(memory=memory)


def make_replay(capacity: int, batch: int, fresh_count: int = 0) -> Replay:
    if not 0 <= fresh_count <= batch:
        raise DiscorlError(f"a batch of {batch} trajectories cannot hold {fresh_count} fresh ones")

    def init(example: Rollout) -> ReplayState:
        return init_replay(example, capacity=capacity)

    def sample(key: Key, state: ReplayState, fresh: Rollout) -> Rollout:
        return sample_rollout(key, state, fresh, batch=batch, fresh_count=fresh_count)

    return Replay(init=init, add=add_rollout, sample=sample)


def batch_first(rollout: Rollout) -> Rollout:
    """[T, B, ...] -> [B, T, ...]; the memory has no time axis."""
    swapped = jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), rollout._replace(memory=()))
    return swapped._replace(memory=rollout.memory)


time_first = batch_first  # its own inverse


class Frames(NamedTuple):
    ring: Any  # [room, ..., C]
    total: Any  # [] that have ever been


def host_shapes(example: Rollout, capacity: int, stack: int = 0) -> ReplayState:
    """The shapes of what a `HostReplay` holds."""
    one = jax.eval_shape(batch_first, example)
    count: Any = jax.ShapeDtypeStruct((), np.int32)
    frames: Any = ()
    if stack:
        rows, *lead, wide = one.obs.shape[1:]
        ring = jax.ShapeDtypeStruct((room(capacity, rows - 1), *lead, wide // stack), one.obs.dtype)
        frames = Frames(ring=ring, total=count)
        numbers = lambda obs: jax.ShapeDtypeStruct((*obs.shape[:2], stack), np.int32)  # noqa: E731
        one = _with_obs(one, numbers(one.obs), one.cuts and numbers(one.cuts.obs))
    data = jax.tree.map(lambda x: jax.ShapeDtypeStruct((capacity, *x.shape[1:]), x.dtype), one)
    return ReplayState(data=data, next=count, size=count, frames=frames)


class HostReplay:
    """The same ring in NumPy, for observations too large for a device. It is written to in place.

    With `stack`, observations [..., stack·C] of which each step brings one frame [..., C], frames are stored once.
    """

    def __init__(self, example: Rollout, capacity: int, stack: int = 0) -> None:
        """`example` is a rollout, or its shapes."""
        if capacity < 1:
            raise DiscorlError(f"a replay needs room for at least 1 trajectory, got {capacity}")
        shapes = host_shapes(example, capacity, stack)
        self._state = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), shapes)
        self._frames = FrameStore(*self._state.frames) if stack else None

    @property
    def state(self) -> ReplayState:
        """What it holds, not a copy; for checkpoints."""
        return self._state

    def restore(self, state: ReplayState) -> None:
        for ring, x in zip(jax.tree.leaves(self._state), jax.tree.leaves(state), strict=True):
            ring[...] = x
        if self._frames:
            self._frames.forget_ends()

    def add(self, rollout: Rollout) -> None:
        new = _batch_first_numpy(rollout)
        if self._frames:
            numbers = self._frames.put(new.obs)
            after = new.cuts and self._frames.put_next(np.asarray(new.cuts.at), new.cuts.obs, new.obs, numbers)
            new = _with_obs(new, numbers, after)
        capacity, count = len(self._state.data.reward), len(new.reward)
        at = (int(self._state.next) + np.arange(count)) % capacity
        for ring, x in zip(jax.tree.leaves(self._state.data), jax.tree.leaves(new), strict=True):
            ring[at] = x
        self._state.next[...] = (self._state.next + count) % capacity
        self._state.size[...] = min(self._state.size + count, capacity)
        while self._frames and self._state.data.obs[self._newest(int(self._state.size))[0]].min() < self._frames.oldest:
            self._state.size[...] -= 1  # many stacks began anew: frames of the oldest trajectory are gone

    def sample(self, rng: np.random.Generator, batch: int, fresh_count: int = 0) -> Rollout:
        """`batch` trajectories, uniform with replacement, of which the newest make `fresh_count`."""
        size = int(self._state.size)
        if not size:
            raise DiscorlError("the replay is empty: add a rollout before sampling")
        old = self._newest(size)[rng.integers(size, size=batch - fresh_count)]
        at = np.concatenate([old, self._newest(fresh_count)])
        rows = jax.tree.map(lambda ring: ring[at], self._state.data)
        if self._frames:
            rows = _with_obs(rows, self._frames.get(rows.obs), rows.cuts and self._frames.get(rows.cuts.obs))
        return _batch_first_numpy(rows)

    def _newest(self, count: int) -> np.ndarray:
        """Where the newest `count` are, the oldest of them first."""
        return (int(self._state.next) - count + np.arange(count)) % len(self._state.data.reward)


def _with_obs(rollout: Rollout, obs: Any, after_cuts: Any) -> Rollout:
    return rollout._replace(obs=obs, cuts=rollout.cuts and rollout.cuts._replace(obs=after_cuts))


def _batch_first_numpy(rollout: Rollout) -> Rollout:
    swapped = jax.tree.map(lambda x: np.ascontiguousarray(np.swapaxes(x, 0, 1)), rollout._replace(memory=()))
    return swapped._replace(memory=jax.tree.map(np.asarray, rollout.memory))
