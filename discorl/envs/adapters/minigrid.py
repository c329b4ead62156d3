"""XLand-MiniGrid: grid worlds seen through a small window.

A cell of the window is a kind of tile and a colour, two numbers without order; agents here see them one-hot.
"""

from typing import Any

import jax
import jax.numpy as jnp

from discorl.envs.adapters.libraries import library
from discorl.envs.adapters.pure import RawStep, pure_environment
from discorl.envs.base import Environment
from discorl.errors import DiscorlError, near_matches
from discorl.types import Key


def from_id(name: str) -> Environment:
    full = f"xminigrid:{name}"
    xminigrid = library("xminigrid", "xminigrid", f"environment {full!r}")
    constants = library("xminigrid.core.constants", "xminigrid", f"environment {full!r}")
    known = xminigrid.registered_environments()
    if name not in known:
        raise DiscorlError(f"unknown environment {full!r}; {near_matches(name, known)}")
    world, params = xminigrid.make(name)

    def seen(timestep: Any) -> jax.Array:
        tiles, colours = timestep.observation[..., 0], timestep.observation[..., 1]
        planes = [
            numbers[..., None] == jnp.arange(count, dtype=numbers.dtype)
            for numbers, count in ((tiles, constants.NUM_TILES), (colours, constants.NUM_COLORS))
        ]
        return jnp.concatenate(planes, axis=-1)

    def reset(key: Key) -> tuple[Any, Any]:
        timestep = world.reset(params, key)
        return timestep, seen(timestep)

    def step(key: Key, timestep: Any, action: jax.Array) -> tuple[Any, RawStep]:
        del key  # after the reset nothing is left to chance
        timestep = world.step(params, timestep, action)
        over, goal_reached = timestep.last(), timestep.discount == 0
        return timestep, RawStep(seen(timestep), timestep.reward, over & goal_reached, over & ~goal_reached)

    def shown(timestep: Any) -> Any:
        return seen(timestep)[..., 2 : constants.NUM_TILES]  # kinds of tiles, emptiness and floor aside

    limit = int(params.max_steps or 0)
    return pure_environment(full, world.num_actions(params), reset, step, shown, time_limit=limit)
