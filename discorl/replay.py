"""A ring of whole trajectories: the newest push out the oldest. On device, or in host memory."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from discorl.errors import DiscorlError
from discorl.types import Key, Rollout


class ReplayState(NamedTuple):
    """Trajectories lie along the first axis, each contiguous: writing and sampling copy whole blocks."""

    data: Rollout  # [capacity, T(+1), ...]
    next: Int[Array, ""]  # where the next trajectory goes
    size: Int[Array, ""]  # how many there are


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


class HostReplay:
    """The same ring in NumPy, for observations too large for a device. It is written to in place."""

    def __init__(self, example: Rollout, capacity: int) -> None:
        """`example` is a rollout, or its shapes."""
        if capacity < 1:
            raise DiscorlError(f"a replay needs room for at least 1 trajectory, got {capacity}")
        shapes = jax.eval_shape(batch_first, example)
        data = jax.tree.map(lambda x: np.zeros((capacity, *x.shape[1:]), x.dtype), shapes)
        at: Any = np.zeros((), np.int32)
        self._state = ReplayState(data=data, next=at, size=at.copy())

    @property
    def state(self) -> ReplayState:
        """What it holds, not a copy; for checkpoints."""
        return self._state

    def restore(self, state: ReplayState) -> None:
        for ring, x in zip(jax.tree.leaves(self._state), jax.tree.leaves(state), strict=True):
            ring[...] = x

    def add(self, rollout: Rollout) -> None:
        new = _batch_first_numpy(rollout)
        capacity, count = len(self._state.data.reward), len(new.reward)
        at = self._last(-count, capacity)
        for ring, x in zip(jax.tree.leaves(self._state.data), jax.tree.leaves(new), strict=True):
            ring[at] = x
        self._state.next[...] = (self._state.next + count) % capacity
        self._state.size[...] = min(self._state.size + count, capacity)

    def sample(self, rng: np.random.Generator, batch: int, fresh_count: int = 0) -> Rollout:
        """`batch` trajectories, uniform with replacement, of which the newest make `fresh_count`."""
        if not self._state.size:
            raise DiscorlError("the replay is empty: add a rollout before sampling")
        old = rng.integers(self._state.size, size=batch - fresh_count)
        at = np.concatenate([old, self._last(fresh_count, len(self._state.data.reward))])
        return _batch_first_numpy(jax.tree.map(lambda ring: ring[at], self._state.data))

    def _last(self, count: int, capacity: int) -> np.ndarray:
        """Where the newest `count` are; where the next will be, if negative."""
        start = int(self._state.next) - max(count, 0)
        return (start + np.arange(abs(count))) % capacity


def _batch_first_numpy(rollout: Rollout) -> Rollout:
    swapped = jax.tree.map(lambda x: np.ascontiguousarray(np.swapaxes(x, 0, 1)), rollout._replace(memory=()))
    return swapped._replace(memory=jax.tree.map(np.asarray, rollout.memory))
