"""Craftax-Classic: ends and names, shown on a stand-in; the library itself is in test_adapters."""

import sys
from enum import Enum
from types import ModuleType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import pytest

from discorl import envs
from discorl.errors import DiscorlError


class Params(NamedTuple):
    max_timesteps: int = 4

    def replace(self, **changes: Any) -> "Params":
        return self._replace(**changes)


class State(NamedTuple):
    health: Any
    timestep: Any


class World:
    """Action 1 costs one of two lives; a clock ends everything after 4 steps. Types wander as the library's do."""

    default_params, num_actions = Params(), 2

    def reset_env(self, key: Any, params: Params) -> tuple[Any, State]:
        state = State(2, 0)
        return self.get_obs(state), state

    def step_env(self, key: Any, state: State, action: Any, params: Params) -> tuple:
        state = State(state.health - action, state.timestep + 1)
        return self.get_obs(state), state, action * 2, self.is_terminal(state, params), {}

    def get_obs(self, state: State) -> Any:
        return jnp.zeros(2 * 3 * 5 + 1).at[-1].set(jnp.float32(state.health))

    def is_terminal(self, state: State, params: Params) -> Any:
        return (state.timestep >= params.max_timesteps) | (state.health <= 0)


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> None:
    def make(name: str, auto_reset: bool) -> World:
        assert name == "Craftax-Classic-Symbolic-v1" and not auto_reset
        return World()

    modules = {
        name: ModuleType(name) for name in ("craftax", "craftax.craftax_env", "craftax.craftax_classic.constants")
    }
    vars(modules["craftax.craftax_env"])["make_craftax_env_from_name"] = make
    vars(modules["craftax.craftax_classic.constants"]).update(
        OBS_DIM=(2, 3), BlockType=Enum("BlockType", "GRASS"), Action=Enum("Action", ["NOOP", "DO"])
    )
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)


@pytest.mark.usefixtures("library")
def test_death_and_the_clock_are_different_ends() -> None:
    env = envs.make("craftax:classic")
    assert isinstance(env, envs.Environment)
    envs.check(env, steps=5, max_steps=4)
    assert (env.spec.action_names, env.spec.time_limit, env.spec.costly_reset) == (("noop", "do"), 4, True)

    def last_of(actions: list[int]) -> Any:
        state, came = env.reset(jax.random.key(0))[0], None
        for action in actions:
            state, came = env.step(jax.random.key(0), state, jnp.int32(action))
        return came

    dead, both, stopped = last_of([1, 1]), last_of([1, 0, 0, 1]), last_of([0, 0, 1, 0])
    assert (bool(dead.terminated), bool(dead.truncated), float(dead.reward)) == (True, False, 2.0)
    assert (bool(both.terminated), bool(both.truncated)) == (True, False)
    assert (bool(stopped.terminated), bool(stopped.truncated)) == (False, True)


def test_wrong_names_and_a_missing_library(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DiscorlError, match="unknown environment 'craftax:clasic'; did you mean 'classic'"):
        envs.make("craftax:clasic")
    for module in ("craftax", "craftax.craftax_env"):  # both: it may have been imported before
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(DiscorlError, match=r"needs the library craftax, but .* pip install 'discorl\[craftax\]'"):
        envs.make("craftax:classic")
