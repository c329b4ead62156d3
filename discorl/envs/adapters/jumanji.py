"""Jumanji: puzzles, packing, routing. An observation is a dict of what the library shows, two things aside.

A mask of legal actions stays where it has one flag for every choice, and keeps the policy from the forbidden ones. The
number of steps is shown as a share of the time limit where there is one, because thousands would drown the rest.
"""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from discorl.envs.adapters.dm_env import action_space
from discorl.envs.adapters.libraries import library
from discorl.envs.adapters.pure import RawStep, pure_environment
from discorl.envs.base import ACTION_MASK, Environment
from discorl.envs.spaces import flat_actions
from discorl.errors import DiscorlError, near_matches
from discorl.types import Key

STEPS = "step_count"


def from_id(name: str) -> Environment:
    full = f"jumanji:{name}"
    owner = f"environment {full!r}"
    jumanji = library("jumanji", "jumanji", owner)
    known = list(jumanji.registered_environments())
    if name not in known:
        raise DiscorlError(f"unknown environment {full!r}; {near_matches(name, known)}")
    try:
        world = jumanji.make(name)
    except Exception as error:  # some want to download their levels
        first_line = (str(error).splitlines() or [""])[0]
        raise DiscorlError(f"jumanji does not make {full!r}: {type(error).__name__}: {first_line}") from error
    if world.reward_spec.shape != ():
        raise DiscorlError(
            f"{owner} gives {world.reward_spec.shape[0]} rewards, one to each of its agents, but an agent here is alone"
        )
    actions = flat_actions(action_space(world.action_spec), owner)
    table = np.asarray(actions.decode(np.arange(actions.total)), np.int32)
    limit = int(getattr(world, "time_limit", None) or 0)

    def seen(obs: Any) -> Any:
        shown, mask = _shown(obs, limit), getattr(obs, ACTION_MASK, None)
        if mask is None or mask.size != actions.total:
            return shown
        entries = shown if isinstance(shown, dict) else {"seen": shown}
        return entries | {ACTION_MASK: mask.astype(jnp.bool_).reshape(-1)}  # choices count up from the last part

    def reset(key: Key) -> tuple[Any, Any]:
        state, timestep = world.reset(key)
        obs = seen(timestep.observation)
        return (state, obs), obs

    def step(key: Key, state: Any, action: jax.Array) -> tuple[Any, RawStep]:
        del key  # it lies in the state
        state, timestep = world.step(state[0], jnp.asarray(table)[action])
        obs, over, going_on = seen(timestep.observation), timestep.last(), timestep.discount > 0
        return (state, obs), RawStep(obs, timestep.reward, over & ~going_on, over & going_on)

    env = pure_environment(full, actions.total, reset, step, lambda state: state[1], time_limit=limit)
    return env._replace(spec=replace(env.spec, action_names=actions.names))


def _shown(obs: Any, limit: int) -> Any:
    """The library's records as dicts by name; the only entry of a dict stands for itself."""
    fields = getattr(obs, "_fields", None) or list(getattr(obs, "__dataclass_fields__", ()))
    if not fields:
        return obs
    shown = {name: _shown(getattr(obs, name), limit) for name in fields if name != ACTION_MASK}
    if STEPS in shown and limit:
        shown[STEPS] = jnp.asarray(shown[STEPS]).astype(jnp.float32) / limit
    return shown if len(shown) != 1 else next(iter(shown.values()))
