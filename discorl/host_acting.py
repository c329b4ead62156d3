"""Acting in environments that Python steps: trajectories of one length, assembled in host memory."""

from collections import deque
from collections.abc import Callable
from concurrent.futures import CancelledError
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from discorl import acting
from discorl.envs.base import EnvSpec
from discorl.envs.host import HostStep, HostVector
from discorl.networks.base import AgentNetwork
from discorl.types import Memory, Observation, Params, Rollout

Policy = Callable[[Params, Memory, Observation, np.ndarray], tuple[jax.Array, Memory]]


class Ends(NamedTuple):
    """Of the episodes that ended while collecting."""

    episodes: float = 0
    return_sum: float = 0
    length_sum: float = 0


def make_policy(network: AgentNetwork) -> Policy:
    """One compiled call per step, up to the logits: the few numbers that are left are drawn faster by NumPy."""
    return jax.jit(partial(acting.policy, network))


def example_rollout(network: AgentNetwork, spec: EnvSpec, length: int, slots: int, size: int) -> Rollout:
    """Shapes of what `Collector.collect` returns."""

    def make() -> Rollout:
        obs = jax.tree.map(lambda x: jnp.zeros((size, *x.shape), x.dtype), spec.observation)
        return Rollout(
            obs=jax.tree.map(lambda x: jnp.stack([x] * (length + 1)), obs),
            first=jnp.zeros((length + 1, size), jnp.bool_),
            action=jnp.zeros((length, size), jnp.int32),
            reward=jnp.zeros((length, size), jnp.float32),
            discount=jnp.zeros((length, size), jnp.float32),
            behaviour_logits=jnp.zeros((length, size, spec.num_actions), jnp.float32),
            memory=network.memory(size),
            cuts=acting.no_cuts(slots, length, obs, network.memory(size)),
        )

    return jax.eval_shape(make)


class Collector:
    """A vector of environments that lives on between rollouts, and the trajectories that are being made in it.

    A lane may spend a step on a reset alone (`HostStep.real`), so lanes do not fill their trajectories in step; a
    rollout is made of the next `size` trajectories that are full.
    """

    def __init__(self, network: AgentNetwork, policy: Policy, vector: HostVector, example: Rollout) -> None:
        """`example` has the shapes of `example_rollout`, of as many trajectories as there are environments."""
        self._network, self._policy, self._vector = network, policy, vector
        self._length = example.reward.shape[0]
        self._open: Rollout = _batch_first(jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), example))
        self._rows = jax.tree.leaves(self._open._replace(memory=(), cuts=()))
        self._full: deque[Rollout] = deque()
        self._stopped = False

    def begin(self, seed: int) -> None:
        """New episodes everywhere; the seed is that of environments and of choices."""
        size = self._vector.size
        self._rng = np.random.default_rng(seed)
        self._obs = self._vector.reset(seed)
        self._first = np.ones(size, bool)
        self._memory = self._network.memory(size)
        self._filled = np.zeros(size, int)
        self._returns, self._lengths = np.zeros(size), np.zeros(size, int)
        self._begin_trajectories(np.arange(size))
        self._full.clear()

    def collect(self, params: Params) -> tuple[Rollout, Ends]:
        """The next rollout, [T, B] as everywhere."""
        ends = Ends()
        while len(self._full) < self._vector.size:
            if self._stopped:
                raise CancelledError
            ends = self._step(params, ends)
        rows = [self._full.popleft() for _ in range(self._vector.size)]
        stacked: Rollout = jax.tree.map(lambda *x: np.stack(x), *rows)
        return _batch_first(stacked), ends

    def stop(self) -> None:
        """Whoever collects, in whatever thread, ends after its step."""
        self._stopped = True

    def close(self) -> None:
        self._vector.close()

    def _step(self, params: Params, ends: Ends) -> Ends:
        logits, memory = self._policy(params, self._memory, self._obs, self._first)
        logits = np.asarray(logits)
        action = (logits + self._rng.gumbel(size=logits.shape)).argmax(-1).astype(np.int32)  # softmax(logits)
        came = self._vector.step(action)
        ended = came.terminated | came.truncated
        lanes = np.flatnonzero(came.real)
        at = (lanes, self._filled[lanes])
        values = (*jax.tree.leaves(self._obs), self._first, action, came.reward, np.float32(1) - ended, logits)
        for ring, x in zip(self._rows, values, strict=True):
            ring[at] = x[lanes]
        self._note_cuts(np.flatnonzero(came.truncated & came.real), came.final_obs, memory)
        self._filled[lanes] += 1
        self._obs, self._first, self._memory = came.obs, came.first, memory
        self._finish(np.flatnonzero(self._filled == self._length))
        return self._count(came, ended, ends)

    def _finish(self, lanes: np.ndarray) -> None:
        """Takes full trajectories out, with the row that they bootstrap from."""
        for ring, x in zip(jax.tree.leaves(self._open.obs), jax.tree.leaves(self._obs), strict=True):
            ring[lanes, self._length] = x[lanes]
        self._open.first[lanes, self._length] = self._first[lanes]
        for lane in lanes:
            self._full.append(jax.tree.map(lambda x, lane=lane: x[lane].copy(), self._open))
        self._begin_trajectories(lanes)

    def _note_cuts(self, lanes: np.ndarray, final_obs: Observation, memory: Memory) -> None:
        """What a clock ended; a trajectory with more of them than slots keeps the first."""
        cuts = self._open.cuts
        if not cuts:
            return
        for lane in lanes:
            for slot in np.flatnonzero(cuts.at[lane] == self._length)[:1]:
                cuts.at[lane, slot] = self._filled[lane]
                kept, new = jax.tree.leaves((cuts.obs, cuts.memory)), jax.tree.leaves((final_obs, memory))
                for ring, x in zip(kept, new, strict=True):
                    ring[lane, slot] = x[lane]

    def _begin_trajectories(self, lanes: np.ndarray) -> None:
        self._filled[lanes] = 0
        if self._open.cuts:
            self._open.cuts.at[lanes] = self._length
        for ring, x in zip(jax.tree.leaves(self._open.memory), jax.tree.leaves(self._memory), strict=True):
            ring[lanes] = np.asarray(x)[lanes]

    def _count(self, came: HostStep, ended: np.ndarray, ends: Ends) -> Ends:
        self._returns += np.where(came.real, came.reward, 0)
        self._lengths += came.real
        if not ended.any():
            return ends
        ends = Ends(
            episodes=ends.episodes + int(ended.sum()),
            return_sum=ends.return_sum + float(self._returns[ended].sum()),
            length_sum=ends.length_sum + int(self._lengths[ended].sum()),
        )
        self._returns[ended], self._lengths[ended] = 0, 0
        return ends


def _batch_first(rollout: Rollout) -> Rollout:
    """[T, B, ...] <-> [B, T, ...], as views."""
    swapped = jax.tree.map(lambda x: np.swapaxes(x, 0, 1), rollout._replace(memory=()))
    return swapped._replace(memory=rollout.memory)
