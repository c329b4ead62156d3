"""Environments of dm_env: their steps are theirs, their ends are understood, their randomness is one per lane."""

import sys
from typing import Any

import numpy as np
import pytest

from discorl import envs
from discorl.errors import DiscorlError

dm_env = pytest.importorskip("dm_env", reason="dm_env is not installed: pip install 'discorl[dm-env]'")
specs = dm_env.specs


class Walk(dm_env.Environment):
    """A random walk pushed by actions 3, 4 and 5: over beyond ±4, stopped by a clock after 7 steps."""

    choice: Any = specs.BoundedArray((), np.int32, minimum=3, maximum=5)

    def __init__(self, seed: int = 1) -> None:
        self.rng: Any = np.random.default_rng(seed)
        self.t, self.x = 0, 0.0

    def action_spec(self) -> Any:
        return self.choice

    def observation_spec(self) -> Any:
        return {"x": specs.Array((1,), np.float64), "t": specs.DiscreteArray(8)}

    def seen(self) -> Any:
        return {"x": np.array([self.x]), "t": self.t}

    def reset(self) -> Any:
        self.t, self.x = 0, self.rng.normal()
        return dm_env.restart(self.seen())

    def step(self, action: Any) -> Any:
        self.choice.validate(action)
        assert isinstance({action: 0}, dict)  # people look actions up
        self.t, self.x = self.t + 1, self.x + int(action) - 4 + self.rng.normal()
        if abs(self.x) > 4:
            return dm_env.termination(1.0, self.seen())
        return dm_env.truncation(-1.0, self.seen()) if self.t == 7 else dm_env.transition(0.5, self.seen())


def host(given: Any) -> envs.HostEnvironment:
    env = envs.as_environment(given)
    assert isinstance(env, envs.HostEnvironment)
    return env


def test_its_own_steps_with_ends_kept_apart() -> None:
    env, lanes, steps = host(Walk), 3, 60
    assert (env.spec.name, env.spec.num_actions, env.spec.time_limit) == ("Walk", 3, 0)
    assert (env.spec.observation["x"].dtype, env.spec.observation["t"].shape) == (np.float32, (8,))
    vector, seeds = env.open(lanes), np.random.SeedSequence(5).generate_state(lanes) >> 1
    obs = vector.reset(5)
    theirs = [Walk(int(seed)) for seed in seeds]
    starts = [one.reset() for one in theirs]
    np.testing.assert_allclose(obs["x"], [step.observation["x"] for step in starts], rtol=1e-6)
    ends = np.zeros(2, int)
    for action in np.random.default_rng(0).integers(3, size=(steps, lanes)):
        came = vector.step(action)
        for i, one in enumerate(theirs):
            step = one.step(np.int32(3 + action[i]))
            assert came.reward[i] == step.reward
            assert came.terminated[i] == (step.last() and step.discount == 0)
            assert came.truncated[i] == (step.last() and step.discount == 1)
            assert came.first[i] == step.last()
            np.testing.assert_allclose(came.final_obs["x"][i], step.observation["x"], rtol=1e-6)
            assert came.final_obs["t"][i].argmax() == step.observation["t"]
            now = one.reset() if step.last() else step
            np.testing.assert_allclose(came.obs["x"][i], now.observation["x"], rtol=1e-6)
        ends += came.terminated.sum(), came.truncated.sum()
    assert (ends > 2).all()


@pytest.mark.parametrize(
    "given", [Walk, Walk(), lambda: Walk(np.random.default_rng())], ids=["class", "object", "maker"]
)
def test_lanes_live_lives_of_their_own(given: Any) -> None:
    first = host(given).open(4).reset(0)["x"]
    assert len(np.unique(first)) == 4
    if not hasattr(given, "__code__"):  # whoever gives no place for a seed cannot be repeated
        np.testing.assert_array_equal(first, host(given).open(4).reset(0)["x"])
        assert (first != host(given).open(4).reset(1)["x"]).all()


def test_legacy_generators_inside_of_objects_are_seeded_too() -> None:
    env = Walk()
    env.rng = np.random.RandomState(0)
    assert len(np.unique(host(env).open(4).reset(0)["x"])) == 4


def test_several_small_choices_are_one() -> None:
    class Pair(Walk):
        choice = specs.BoundedArray((2,), np.int64, minimum=[0, 1], maximum=[1, 3])

        def step(self, action: Any) -> Any:
            self.choice.validate(action)
            return dm_env.transition(float(10 * action[0] + action[1]), self.seen())

    vector = host(Pair).open(6)
    vector.reset(0)
    np.testing.assert_array_equal(vector.step(np.arange(6)).reward, [1, 2, 3, 11, 12, 13])


def discounted(discount: float, last: bool) -> type[Walk]:
    class Discounted(Walk):
        def step(self, action: Any) -> Any:
            kind = dm_env.StepType.LAST if last else dm_env.StepType.MID
            return dm_env.TimeStep(kind, 0.0, discount, self.seen())

    return Discounted


@pytest.mark.parametrize("discount, last", [(0.5, False), (0.0, False), (0.9, True)])
def test_a_second_discount_is_refused(discount: float, last: bool) -> None:
    vector = host(discounted(discount, last)).open(1)
    vector.reset(0)
    where = "at the end" if last else "in the middle"
    with pytest.raises(DiscorlError, match=f"'Discounted' gave the discount {discount} {where} of an episode, but"):
        vector.step(np.zeros(1, int))


@pytest.mark.parametrize(
    "choice, message",
    [
        (
            specs.BoundedArray((2,), np.float32, -1, 1),
            "'Walk' has a continuous action space (BoundedArray of shape (2,))",
        ),
        (specs.Array((), np.int32), "'Walk' has an action space of unknown kind (Array)"),
        ({"arm": specs.DiscreteArray(2)}, "'Walk' has a composite action space"),
    ],
)
def test_actions_that_are_no_choice_are_refused(choice: Any, message: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(Walk, "choice", choice)
    with pytest.raises(DiscorlError) as caught:
        envs.as_environment(Walk)
    assert message in str(caught.value)


def test_texts_are_no_observations(monkeypatch: Any) -> None:
    monkeypatch.setattr(Walk, "observation_spec", lambda self: specs.StringArray(()))
    with pytest.raises(DiscorlError, match="no network here can see"):
        envs.as_environment(Walk)


def test_a_module_that_misses_the_library_is_told_the_extra(tmp_path: Any, monkeypatch: Any) -> None:
    (tmp_path / "walk_without_library.py").write_text("import dm_env\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "dm_env", None)
    with pytest.raises(
        DiscorlError,
        match=r"importing 'walk_without_library' raised .*; install it with: pip install 'discorl\[dm-env\]",
    ):
        envs.make("walk_without_library:Walk")
