"""The ring against a plain list, on device and in host memory."""

from collections import deque

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import small

from discorl.errors import DiscorlError
from discorl.replay import HostReplay, add_rollout, init_replay, make_replay, sample_rollout
from discorl.types import Rollout

CAPACITY = 7


def marked(seed: int) -> Rollout:
    """A rollout with a recurrent memory, whose trajectories can be told apart by their rewards."""
    rollout = small.rollout(seed)
    return rollout._replace(memory=(rollout.reward[0, :, None] * 2,))


def columns(rollout: Rollout) -> set[bytes]:
    return {np.asarray(rollout.reward[:, b]).tobytes() for b in range(rollout.reward.shape[1])}


@pytest.mark.parametrize("added", [1, 2, 3, 5])
def test_the_ring_keeps_the_newest_trajectories(added: int) -> None:
    kept: deque[bytes] = deque(maxlen=CAPACITY)
    state = init_replay(marked(0), capacity=CAPACITY)
    add = jax.jit(add_rollout)
    for seed in range(added):
        state = add(state, marked(seed))
        for b in range(small.B):
            kept.append(np.asarray(marked(seed).reward[:, b]).tobytes())
    assert int(state.size) == len(kept)
    stored = {np.asarray(state.data.reward[i]).tobytes() for i in range(int(state.size))}
    assert stored == set(kept)


def test_samples_are_whole_trajectories_with_their_memory(key: jax.Array) -> None:
    state = add_rollout(init_replay(marked(0), capacity=CAPACITY), marked(0))
    got = sample_rollout(key, state, marked(0), batch=16, fresh_count=0)
    original = marked(0)
    for b in range(16):
        source = next(i for i in range(small.B) if (original.reward[:, i] == got.reward[:, b]).all())
        for a, x in zip(got[:6], original[:6], strict=True):  # all that has a time axis
            np.testing.assert_array_equal(a[:, b], x[:, source])
        np.testing.assert_array_equal(got.memory[0][b], original.memory[0][source])


def test_sampling_reaches_everything_and_nothing_else(key: jax.Array) -> None:
    state = add_rollout(init_replay(marked(0), capacity=CAPACITY), marked(0))
    got = sample_rollout(key, state, marked(0), batch=200, fresh_count=0)
    assert columns(got) == columns(marked(0))  # never the empty slots


def test_the_fresh_part_of_a_batch_is_the_newest_rollout(key: jax.Array) -> None:
    replay = make_replay(CAPACITY, batch=5, fresh_count=2)
    state = replay.add(replay.init(marked(0)), marked(0))
    fresh = marked(1)
    state = replay.add(state, fresh)
    got = replay.sample(key, state, fresh)
    np.testing.assert_array_equal(got.reward[:, 3:], fresh.reward[:, :2])
    np.testing.assert_array_equal(got.memory[0][3:], fresh.memory[0][:2])
    assert got.reward.shape == (small.T, 5)


def test_too_many_fresh_trajectories_are_refused() -> None:
    with pytest.raises(DiscorlError, match="batch of 4 trajectories cannot hold 5"):
        make_replay(CAPACITY, batch=4, fresh_count=5)


def test_only_what_learning_needs_is_stored() -> None:
    """Per step: the observation, a flag, an action, a reward, a discount and A logits. No y, no z, no q."""
    state = init_replay(small.rollout(), capacity=100)
    stored = sum(x.nbytes for x in jax.tree.leaves(state.data))
    per_step = 4 * small.OBS + 1 + 4 + 4 + 4 + 4 * small.A
    assert stored <= 100 * (small.T + 1) * per_step


def host_replay(added: int) -> HostReplay:
    replay = HostReplay(marked(0), CAPACITY)
    for seed in range(added):
        replay.add(jax.tree.map(np.asarray, marked(seed)))
    return replay


def test_host_memory_behaves_the_same() -> None:
    with pytest.raises(DiscorlError, match="empty"):
        host_replay(0).sample(np.random.default_rng(0), 1)
    replay = host_replay(3)
    device = init_replay(marked(0), capacity=CAPACITY)
    for seed in range(3):
        device = add_rollout(device, marked(seed))
    jax.tree.map(np.testing.assert_array_equal, replay.state, device)
    got = replay.sample(np.random.default_rng(0), 100)
    assert columns(got) == {np.asarray(r).tobytes() for r in device.data.reward}
    assert isinstance(got.reward, np.ndarray)
    np.testing.assert_array_equal(host_replay(3).sample(np.random.default_rng(0), 100).reward, got.reward)


def test_the_fresh_part_of_host_memory_is_the_newest_whole_trajectories() -> None:
    """3 x 4 trajectories in a ring of 7: the newest lie around its end."""
    got = host_replay(3).sample(np.random.default_rng(0), 6, fresh_count=small.B)
    np.testing.assert_array_equal(got.reward[:, 2:], marked(2).reward)
    np.testing.assert_array_equal(got.memory[0][2:], marked(2).memory[0])


def test_host_memory_is_restored_into_its_own_arrays() -> None:
    kept = jax.tree.map(np.copy, host_replay(2).state)
    replay = host_replay(3)
    replay.restore(kept)
    jax.tree.map(np.testing.assert_array_equal, replay.state, kept)
    replay.add(jax.tree.map(np.asarray, marked(2)))
    jax.tree.map(np.testing.assert_array_equal, replay.state, host_replay(3).state)


def test_host_memory_keeps_small_types() -> None:
    rollout = small.rollout()._replace(obs=jnp.zeros((small.T + 1, small.B, 4, 4), jnp.uint8))
    replay = HostReplay(rollout, CAPACITY)
    replay.add(jax.tree.map(np.asarray, rollout))
    assert replay.sample(np.random.default_rng(0), 2).obs.dtype == np.uint8
