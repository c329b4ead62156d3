"""Stacked frames are stored once and come back as they were."""

import jax
import numpy as np
import pytest

from discorl.replay import HostReplay, host_shapes
from discorl.types import Rollout

SIDE, STACK, T = 6, 4, 5


class Camera:
    """Environments whose observation is the last frames; a reset begins the stack anew, in one of two ways."""

    def __init__(self, lanes: int, seed: int, *, ends: float, padding: str) -> None:
        self.rng, self.ends, self.padding = np.random.default_rng(seed), ends, padding
        self.stacks = np.stack([self.begin() for _ in range(lanes)])

    def frame(self) -> np.ndarray:
        return self.rng.integers(1, 255, (SIDE, SIDE), np.uint8)

    def begin(self) -> np.ndarray:
        frame = self.frame()
        old = frame if self.padding == "repeat" else np.zeros_like(frame)
        return np.stack([old] * (STACK - 1) + [frame], -1)

    def rollout(self) -> Rollout:
        seen = [self.stacks.copy()]
        for _ in range(T):
            for lane in range(len(self.stacks)):
                if self.rng.random() < self.ends:
                    self.stacks[lane] = self.begin()
                else:
                    self.stacks[lane] = np.concatenate([self.stacks[lane][..., 1:], self.frame()[..., None]], -1)
            seen.append(self.stacks.copy())
        lanes = len(self.stacks)
        zeros = np.zeros((T, lanes), np.float32)
        first = np.zeros((T + 1, lanes), bool)
        return Rollout(np.stack(seen), first, zeros.astype(np.int32), zeros, zeros, zeros[..., None], ())


@pytest.mark.parametrize("padding", ["repeat", "zeros"])
def test_samples_are_those_of_a_replay_that_stores_everything(padding: str) -> None:
    groups = [Camera(3, seed, ends=0.15, padding=padding) for seed in range(2)]  # which take turns
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


def test_a_stored_step_takes_little_more_than_its_frame() -> None:
    rows, capacity = 29, 1024
    shape = lambda *s, dtype=np.float32: jax.ShapeDtypeStruct(s, dtype)  # noqa: E731
    example = Rollout(
        obs=shape(rows, 1, 84, 84, 4, dtype=np.uint8),
        first=shape(rows, 1, dtype=np.bool_),
        action=shape(rows - 1, 1, dtype=np.int32),
        reward=shape(rows - 1, 1),
        discount=shape(rows - 1, 1),
        behaviour_logits=shape(rows - 1, 1, 18),
        memory=(),
    )
    held = jax.tree.leaves(host_shapes(example, capacity, 4))
    per_step = sum(leaf.size * leaf.dtype.itemsize for leaf in held) / (capacity * (rows - 1))
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
