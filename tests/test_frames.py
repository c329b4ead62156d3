"""Stacked frames are stored once and come back as they were."""

import jax
import numpy as np
import pytest

from discorl import networks
from discorl.envs.base import EnvSpec
from discorl.host_acting import example_rollout
from discorl.replay import HostReplay, host_shapes
from discorl.types import Cuts, Needs, Rollout

SIDE, STACK, T = 6, 4, 5


class Camera:
    """Environments whose observation is the last frames; a reset begins the stack anew, in one of two ways.

    All ends are by a clock; up to two in each trajectory keep the stack that they led to.
    """

    def __init__(self, lanes: int, seed: int, *, ends: float, padding: str, colours: int = 1, dtype: type = np.uint8):
        self.rng, self.ends, self.padding = np.random.default_rng(seed), ends, padding
        self.colours, self.dtype = colours, dtype
        self.stacks = np.stack([self.begin() for _ in range(lanes)])

    def frame(self) -> np.ndarray:
        return self.rng.integers(1, 4, (SIDE, SIDE, self.colours)).astype(self.dtype)  # frames have a lot in common

    def begin(self) -> np.ndarray:
        frame = self.frame()
        old = frame if self.padding == "repeat" else np.zeros_like(frame)
        return np.concatenate([old] * (STACK - 1) + [frame], -1)

    def rollout(self) -> Rollout:
        seen, lanes = [self.stacks.copy()], len(self.stacks)
        cuts = Cuts(np.full((2, lanes), T, np.int32), np.zeros((2, *self.stacks.shape), self.dtype), ())
        for t in range(T):
            for lane in range(lanes):
                after = np.concatenate([self.stacks[lane][..., self.colours :], self.frame()], -1)
                self.stacks[lane] = after
                if self.rng.random() < self.ends:
                    self.stacks[lane] = self.begin()
                    for slot in np.flatnonzero(cuts.at[:, lane] == T)[:1]:
                        cuts.at[slot, lane], cuts.obs[slot, lane] = t, after
            seen.append(self.stacks.copy())
        zeros = np.zeros((T, lanes), np.float32)
        first = np.zeros((T + 1, lanes), bool)
        return Rollout(np.stack(seen), first, zeros.astype(np.int32), zeros, zeros, zeros[..., None], (), cuts)


def ends(rollout: Rollout) -> tuple[np.ndarray, np.ndarray]:
    """Where clocks rang, and what was seen then."""
    assert isinstance(rollout.cuts, Cuts)
    return np.asarray(rollout.cuts.at), rollout.cuts.obs


@pytest.mark.parametrize(
    ("padding", "colours", "dtype"),
    [("repeat", 1, np.uint8), ("zeros", 1, np.uint8), ("repeat", 3, np.uint8), ("zeros", 2, np.float32)],
)
def test_samples_are_those_of_a_replay_that_stores_everything(padding: str, colours: int, dtype: type) -> None:
    own = {"ends": 0.15, "padding": padding, "colours": colours, "dtype": dtype}
    groups = [Camera(3, seed, **own) for seed in range(2)]  # which take turns
    example = groups[0].rollout()
    once, plain = HostReplay(example, 8, STACK), HostReplay(example, 8)
    for turn in range(12):  # the ring is written over several times
        for group in groups:
            rollout = group.rollout()
            once.add(rollout)
            plain.add(rollout)
            assert int(once.state.size) == int(plain.state.size)
        got, expected = (replay.sample(np.random.default_rng(turn), 6, 2) for replay in (once, plain))
        np.testing.assert_array_equal(got.obs, expected.obs)
        at, after = ends(expected)
        np.testing.assert_array_equal(ends(got)[0], at)
        np.testing.assert_array_equal(ends(got)[1][at < T], after[at < T])


def test_a_frame_lies_in_memory_once() -> None:
    camera = Camera(1, 0, ends=0.2, padding="repeat")
    replay = HostReplay(camera.rollout(), 30, STACK)
    frames = set()
    for _ in range(20):
        rollout = camera.rollout()
        replay.add(rollout)
        at, after = ends(rollout)
        stacks = [*rollout.obs[:, 0], *after[at < T]]
        frames |= {stack[..., s].tobytes() for stack in stacks for s in range(STACK)}
    assert int(replay.state.frames.total) == len(frames)


def test_frames_that_are_gone_take_their_trajectories_with_them() -> None:
    camera = Camera(2, 0, ends=1.0, padding="zeros")
    replay = HostReplay(camera.rollout(), 200, STACK)  # room for one frame per step, but every stack begins anew
    added = []
    for _ in range(150):
        rollout = camera.rollout()
        replay.add(rollout)
        added += list(np.swapaxes(rollout.obs, 0, 1))
    size = int(replay.state.size)
    assert 0 < size < 200
    known = {trajectory.tobytes() for trajectory in added[-size:]}
    sampled = replay.sample(np.random.default_rng(0), 300).obs
    assert {np.ascontiguousarray(one).tobytes() for one in np.swapaxes(sampled, 0, 1)} <= known


@pytest.mark.parametrize("length", [20, 28])
def test_a_stored_step_takes_little_more_than_its_frame(length: int) -> None:
    """As training on Atari holds it: with all 18 actions, and room for an end by the clock in each trajectory."""
    spec = EnvSpec("atari", 18, jax.ShapeDtypeStruct((84, 84, 4), np.uint8), stack=4, time_limit=27_000)
    capacity, network = 1024, networks.mlp(spec, Needs(), hidden=(8,))
    held = jax.tree.leaves(host_shapes(example_rollout(network, spec, length, 1, 1), capacity, spec.stack))
    per_step = sum(leaf.size * leaf.dtype.itemsize for leaf in held) / (capacity * length)
    assert per_step <= 1.1 * 84 * 84 + 200


def test_a_restored_replay_goes_on() -> None:
    camera = Camera(2, 3, ends=0.1, padding="repeat")
    first = HostReplay(camera.rollout(), 6, STACK)
    for _ in range(4):
        first.add(camera.rollout())
    second = HostReplay(camera.rollout(), 6, STACK)
    second.restore(jax.tree.map(np.copy, first.state))
    rollout = camera.rollout()
    for replay in (first, second):
        replay.add(rollout)
    got, expected = (replay.sample(np.random.default_rng(0), 8) for replay in (second, first))
    np.testing.assert_array_equal(got.obs, expected.obs)
