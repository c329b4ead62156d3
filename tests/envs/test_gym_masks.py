"""Legal actions that an environment tells in its info reach the agent, and only they are taken."""

from types import SimpleNamespace
from typing import Any

import host_worlds as worlds
import numpy as np
import pytest

import discorl
from discorl import envs


class Picky(worlds.Counter):
    """Only one of three actions is legal, told in info; any other raises. Nothing is told after the end."""

    action_space: Any = SimpleNamespace(n=3)

    def legal(self) -> np.ndarray:
        return np.arange(3, dtype=np.int8) == (self.episode + self.t) % 3

    def reset(self, **options: Any) -> tuple[Any, dict]:
        obs, _ = super().reset(**options)
        return obs, {"action_mask": self.legal()}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        assert self.legal()[action], "an illegal action was taken"
        obs, reward, terminated, truncated, _ = super().step(action)
        return obs, reward, terminated, truncated, {} if terminated or truncated else {"action_mask": self.legal()}


class Entries(Picky):
    """The same, where what is seen has names already."""

    observation_space: Any = SimpleNamespace(spaces={"place": worlds.BOX})

    def seen(self) -> Any:
        return {"place": super().seen()}


@pytest.mark.parametrize("world, rest", [(Picky, "observation"), (Entries, "place")])
def test_masks_of_an_info_are_seen(world: type, rest: str) -> None:
    env = envs.as_environment(world)
    assert isinstance(env, envs.HostEnvironment)
    assert {name: entry.shape for name, entry in env.spec.observation.items()} == {rest: (2,), "action_mask": (3,)}
    vector = env.open(2)
    obs = vector.reset(0)
    for _ in range(9):
        episode, t = obs[rest].T
        np.testing.assert_array_equal(obs["action_mask"].argmax(axis=1), (episode + t) % 3)
        assert (obs["action_mask"].sum(axis=1) == 1).all()
        came = vector.step(obs["action_mask"].argmax(axis=1))
        ended = came.terminated | came.truncated
        assert came.final_obs["action_mask"][ended].all()  # nothing was told
        obs = came.obs
    assert obs[rest][:, 0].min() > 0


def test_only_legal_actions_are_taken_in_training() -> None:
    result = discorl.train(Picky, "actor_critic", updates=3, envs=2, batch=4, rollout=5)
    assert result.updates == 3


@pytest.mark.parametrize(
    "told", [{}, {"action_mask": np.ones(2)}, {"action_mask": None}], ids=["nothing", "another number", "None"]
)
def test_other_infos_change_nothing(told: dict) -> None:
    class Other(worlds.Counter):
        action_space: Any = SimpleNamespace(n=3)

        def reset(self, **options: Any) -> tuple[Any, dict]:
            return super().reset(**options)[0], told

    assert envs.as_environment(Other).spec.observation.shape == (2,)


@pytest.mark.parametrize("mode", ["NEXT_STEP", "SAME_STEP", "DISABLED"])
@pytest.mark.parametrize("world, rest", [(Picky, "observation"), (Entries, "place")])
def test_masks_of_a_vectors_info_are_seen(mode: str, world: type, rest: str) -> None:
    gymnasium = pytest.importorskip("gymnasium", reason="Gymnasium is not installed: pip install 'discorl[gym]'")
    box = gymnasium.spaces.Box(0, 100, (2,), np.float64)

    class Registered(world, gymnasium.Env):
        action_space = gymnasium.spaces.Discrete(3)
        observation_space = box if rest == "observation" else gymnasium.spaces.Dict({rest: box})

    kind = gymnasium.vector.AutoresetMode[mode]
    env = envs.as_environment(gymnasium.vector.SyncVectorEnv([Registered] * 2, autoreset_mode=kind))
    assert isinstance(env, envs.HostEnvironment)
    vector = env.open(2)
    obs, ends = vector.reset(0), 0
    for _ in range(14):
        came = vector.step(obs["action_mask"].argmax(axis=1))  # an illegal action raises
        ended = came.terminated | came.truncated
        ends += ended.sum()
        assert came.final_obs["action_mask"][ended].all()
        obs = came.obs
        legal = (obs[rest].sum(axis=1) % 3).astype(int)
        acts = ~(ended & (mode == "NEXT_STEP"))  # there the next step only resets
        np.testing.assert_array_equal(obs["action_mask"][acts], (legal[:, None] == np.arange(3))[acts])
    assert ends > 4
