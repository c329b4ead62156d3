"""Procgen and the rest of envpool: names, levels, seeds, images; against a small stand-in, and itself where it is."""

import sys
from collections.abc import Iterator
from typing import Any

import fake_envpool
import numpy as np
import pytest

from discorl import envs
from discorl.errors import DiscorlError


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setitem(sys.modules, "envpool", fake_envpool)
    yield fake_envpool
    fake_envpool.MADE.clear()
    fake_envpool.BROKEN.clear()


def host(name: str) -> envs.HostEnvironment:
    env = envs.make(name)
    assert isinstance(env, envs.HostEnvironment)
    return env


@pytest.mark.parametrize(
    "name, task, levels, start",
    [
        ("procgen:maze", "MazeEasy-v0", 0, 0),
        ("procgen:maze/hard", "MazeHard-v0", 0, 0),
        ("procgen:maze/memory/200", "MazeMemory-v0", 200, 0),
        ("procgen:bossfight/hard/500-699", "BossfightHard-v0", 200, 500),
    ],
)
def test_names_of_procgen(fake: Any, name: str, task: str, levels: int, start: int) -> None:
    spec = host(name).spec
    assert (spec.name, spec.num_actions, spec.time_limit) == (name, 15, 3)
    assert (spec.observation.shape, spec.observation.dtype) == ((64, 64, 3), np.uint8)
    assert (fake.MADE[-1].task, fake.MADE[-1].options) == (task, {"num_levels": levels, "start_level": start})
    assert fake.MADE[-1].closed


@pytest.mark.parametrize(
    "name, message",
    [
        ("procgen:mase", "unknown environment 'procgen:mase'; did you mean 'maze'"),
        ("procgen:maze/extreme", "maze comes as easy, hard, memory, not as 'extreme'; write procgen:GAME, then /easy"),
        ("procgen:maze/200", "not as '200'; write procgen:GAME, then /easy"),
        ("procgen:maze/easy/many", "'procgen:maze/easy/many' does not say which levels; write"),
        ("procgen:maze/easy/0", "'procgen:maze/easy/0' does not say which levels; write"),
        ("procgen:maze/easy/1/2", "'procgen:maze/easy/1/2' does not say which levels; write"),
        ("procgen:maze/easy/9-3", "'procgen:maze/easy/9-3' asks for no levels: they count up"),
        ("procgen:maze/easy/4000000000", "asks for no levels"),
        ("envpool:CartPol-v1", "unknown environment 'envpool:CartPol-v1'; did you mean 'CartPole-v1'"),
        ("envpool:zzz", "unknown environment 'envpool:zzz'; `python -c"),
    ],
)
def test_names_that_will_not_do(fake: Any, name: str, message: str) -> None:
    with pytest.raises(DiscorlError) as caught:
        envs.make(name)
    assert message in str(caught.value)


def test_a_step_that_only_begins_a_level_is_no_experience(fake: Any) -> None:
    vector = host("procgen:maze/easy/50").open(4)
    obs = vector.reset(3)
    levels = obs[:, 0, 0, 0].copy()
    assert len(set(levels)) > 1 and levels.max() < 50
    steps = [vector.step(np.full(4, t)) for t in range(1, 4)]
    for t, came in enumerate(steps, 1):
        assert (came.reward == t).all() and came.real.all() and not came.first.any()
    came = steps[-1]
    np.testing.assert_array_equal(came.terminated, [True, False] * 2)
    np.testing.assert_array_equal(came.truncated, [False, True] * 2)
    np.testing.assert_array_equal(came.final_obs[:, 5, 5, 2], levels + 3)  # a copy: the pool writes over its own
    begun = vector.step(np.full(4, 7))
    assert begun.first.all() and not begun.real.any() and not begun.reward.any()
    np.testing.assert_array_equal(came.final_obs[:, 5, 5, 2], levels + 3)
    drawn = vector.render()
    np.testing.assert_array_equal(drawn, begun.obs[0])


def test_a_seed_makes_a_new_pool(fake: Any) -> None:
    vector = host("procgen:maze").open(3)
    first, other, again = (vector.reset(seed)[:, 0, 0, 0] for seed in (0, 1, 0))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
    assert [pool.closed for pool in fake.MADE] == [True, True, True, False]


@pytest.mark.parametrize(
    "said",
    [
        "EnvPool Procgen requires the system Qt 5 runtime on Linux. Install",
        "libQt5Core.so.5: cannot open shared object",
    ],
)
def test_a_missing_qt_is_named_by_its_packages(fake: Any, said: str) -> None:
    fake.BROKEN.append(said)
    with pytest.raises(DiscorlError) as caught:
        envs.make("procgen:maze")
    assert str(caught.value) == (
        "environment 'procgen:maze' needs the library Qt 5 of the system; on Debian and Ubuntu: "
        "apt install libqt5gui5 libqt5core5a"
    )


def test_a_missing_envpool_is_named_with_its_extra(monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "envpool", None)
    with pytest.raises(
        DiscorlError, match=r"envpool is not installed; install it with: pip install 'discorl\[procgen\]'"
    ):
        envs.make("procgen:coinrun")


@pytest.mark.filterwarnings("ignore")  # of its own
@pytest.mark.parametrize(
    "name, task, options",
    [
        ("procgen:bossfight/easy/3-7", "BossfightEasy-v0", {"channel_first": True, "num_levels": 5, "start_level": 3}),
        ("envpool:CartPole-v1", "CartPole-v1", {}),
    ],
)
def test_envpool_itself(name: str, task: str, options: dict) -> None:
    envpool = pytest.importorskip("envpool", reason="envpool is not installed: pip install 'discorl[procgen]'")
    try:
        theirs = envpool.make(task, "gymnasium", num_envs=3, seed=11, **options)
    except ImportError as error:
        pytest.skip(f"envpool is there, but {error}")
    env = host(name)
    vector = env.open(3)
    images = name.startswith("procgen")
    np.testing.assert_array_equal(vector.reset(11), np.moveaxis(theirs.reset()[0], 1, -1 if images else 1))
    resets = np.zeros(3, bool)
    seen_ends = 0
    for action in np.random.default_rng(0).integers(env.spec.num_actions, size=(120, 3)):
        obs, reward, terminated, truncated, _ = theirs.step(action)
        came = vector.step(action)
        np.testing.assert_array_equal(came.obs, np.moveaxis(obs, 1, -1) if images else obs)
        np.testing.assert_array_equal(came.reward, reward)
        np.testing.assert_array_equal(came.terminated, terminated)
        np.testing.assert_array_equal(came.truncated, truncated)
        np.testing.assert_array_equal(came.real, ~resets)
        np.testing.assert_array_equal(came.first, resets)
        resets = terminated | truncated
        seen_ends += resets.sum()
    assert seen_ends > 0
