"""What the adapter makes of Jumanji's records, shown on a stand-in; the library itself is in test_adapters."""

import sys
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from discorl import envs, networks
from discorl.errors import DiscorlError


class Place(NamedTuple):
    row: Any
    column: Any


class Seen(NamedTuple):
    place: Place
    step_count: Any
    action_mask: Any


class Came(NamedTuple):
    observation: Seen
    reward: Any
    discount: Any
    over: Any

    def last(self) -> Any:
        return self.over


class Field:
    """Actions are pairs (2 × 3) that are added to a place; over in row 2, stopped by a clock after 5 steps."""

    time_limit = 5
    reward_spec: Any = SimpleNamespace(shape=())
    action_spec: Any = SimpleNamespace(shape=(2,), dtype=np.int32, minimum=np.zeros(2, int), maximum=np.array([1, 2]))

    def came(self, state: Any, reward: Any) -> tuple[Any, Came]:
        (row, column), t = state
        over = row >= 2
        obs = Seen(Place(row, column), t, jnp.ones((2, 3), bool).at[1, 0].set(row < 1))
        return state, Came(obs, reward, jnp.where(over, 0.0, 1.0), over | (t == self.time_limit))

    def reset(self, key: Any) -> tuple[Any, Came]:
        return self.came((jnp.array([0, 0]), jnp.array(0)), 0.0)

    def step(self, state: Any, action: Any) -> tuple[Any, Came]:
        return self.came((state[0] + action, state[1] + 1), action[1].astype(jnp.float32))


@pytest.fixture
def field(monkeypatch: pytest.MonkeyPatch) -> type[Field]:
    def make(name: str) -> Field:
        if name == "Lost-v0":
            raise OSError("no levels here\nand more")
        return Field()

    library = ModuleType("jumanji")
    vars(library).update(registered_environments=lambda: {"Field-v0", "Lost-v0"}, make=make)
    monkeypatch.setitem(sys.modules, "jumanji", library)
    return Field


@pytest.mark.usefixtures("field")
def test_records_become_dicts_with_a_mask_and_pairs_one_choice() -> None:
    env = envs.make("jumanji:Field-v0")
    assert isinstance(env, envs.Environment)
    envs.check(env, steps=8, max_steps=8)
    assert (env.spec.num_actions, env.spec.time_limit, env.spec.action_names[5]) == (6, 5, "1,2")
    assert set(env.spec.observation) == {"place", "step_count", "action_mask"}
    assert networks.has_mask(env.spec)
    state, obs = env.reset(jax.random.key(0))
    assert obs["step_count"].dtype == jnp.float32
    state, came = env.step(jax.random.key(0), state, jnp.int32(5))
    assert (int(came.obs["place"]["row"]), int(came.obs["place"]["column"]), float(came.reward)) == (1, 2, 2)
    np.testing.assert_allclose(came.obs["step_count"], 0.2)
    np.testing.assert_array_equal(came.obs["action_mask"], np.arange(6) != 3)  # the choice 1,0 is forbidden in row 1
    _, came = env.step(jax.random.key(0), state, jnp.int32(3))
    assert came.terminated and not came.truncated
    for _ in range(4):
        state, came = env.step(jax.random.key(0), state, jnp.int32(0))
    assert came.truncated and not came.terminated


def test_what_is_refused(field: type[Field], monkeypatch: pytest.MonkeyPatch) -> None:
    def refusal(name: str) -> str:
        with pytest.raises(DiscorlError) as caught:
            envs.make(name)
        return str(caught.value)

    assert "unknown environment 'jumanji:Fields-v0'; did you mean 'Field-v0'" in refusal("jumanji:Fields-v0")
    assert refusal("jumanji:Lost-v0") == "jumanji does not make 'jumanji:Lost-v0': OSError: no levels here"
    monkeypatch.setattr(field, "reward_spec", SimpleNamespace(shape=(3,)))
    assert "gives 3 rewards, one to each of its agents" in refusal("jumanji:Field-v0")
    monkeypatch.setitem(sys.modules, "jumanji", None)
    assert "install it with: pip install 'discorl[jumanji]'" in refusal("jumanji:Field-v0")
