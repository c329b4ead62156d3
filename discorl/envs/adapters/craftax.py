"""Craftax-Classic: Crafter's game as one compiled program, seen in symbols. Matthews et al. 2024
(https://arxiv.org/abs/2402.16801).
"""

import math
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from discorl.envs.adapters.libraries import library
from discorl.envs.adapters.pure import RawStep, pure_environment
from discorl.envs.base import Environment
from discorl.errors import DiscorlError, near_matches
from discorl.types import Key

IDS = {"classic": "Craftax-Classic-Symbolic-v1"}
NEVER = 2**31 - 1


def from_name(name: str) -> Environment:
    full = f"craftax:{name}"
    if name not in IDS:
        raise DiscorlError(f"unknown environment {full!r}; {near_matches(name, IDS)}")
    owner = f"environment {full!r}"
    world = library("craftax.craftax_env", "craftax", owner).make_craftax_env_from_name(IDS[name], auto_reset=False)
    constants = library("craftax.craftax_classic.constants", "craftax", owner)
    params = world.default_params
    endless = params.replace(max_timesteps=NEVER)

    def reset(key: Key) -> tuple[Any, Any]:
        obs, state = world.reset_env(key, params)
        return state, obs

    def step(key: Key, state: Any, action: jax.Array) -> tuple[Any, RawStep]:
        obs, state, reward, over, _ = world.step_env(key, state, action, params)
        dead = world.is_terminal(state, endless)
        return state, RawStep(obs, reward, over & dead, over & ~dead)

    def shown(state: Any) -> Any:
        """What is around the player, creatures above the ground; then the inventory and how the player is."""
        obs, window = world.get_obs(state), constants.OBS_DIM
        kinds = len(constants.BlockType) + 4
        ground, rest = jnp.split(obs, [math.prod(window) * kinds])
        return ground.reshape(*window, kinds)[..., ::-1], rest

    limit = int(params.max_timesteps)
    env = pure_environment(full, int(world.num_actions), reset, step, shown, time_limit=limit)
    names = tuple(action.name.lower() for action in constants.Action)
    return env._replace(spec=replace(env.spec, action_names=names, costly_reset=True))
