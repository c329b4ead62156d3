"""gymnax: classic control, bsuite, MinAtar and more. Its auto-reset is left out: ours keeps the final observation."""

from typing import Any

import jax

from discorl.envs.adapters.libraries import library
from discorl.envs.adapters.pure import RawStep, pure_environment
from discorl.envs.base import Environment
from discorl.envs.spaces import require_discrete
from discorl.errors import DiscorlError, near_matches
from discorl.types import Key


def from_id(name: str) -> Environment:
    full = f"gymnax:{name}"
    gymnax = library("gymnax", "gymnax", f"environment {full!r}")
    known = list(gymnax.registered_envs)
    if name not in known:
        raise DiscorlError(f"unknown environment {full!r}; {near_matches(name, known)}")
    world, params = gymnax.make(name)
    num_actions = require_discrete(world.action_space(params), f"environment {full!r}")

    def reset(key: Key) -> tuple[Any, Any]:
        obs, state = world.reset_env(key, params)
        return state, obs

    def step(key: Key, state: Any, action: jax.Array) -> tuple[Any, RawStep]:
        key_step, _ = jax.random.split(key)  # as gymnax does, so that both take the same steps
        obs, state, reward, terminated, _ = world.step_env(key_step, state, action, params)
        return state, RawStep(obs, reward, terminated, world.is_truncated(state, params))

    def seen(state: Any) -> Any:
        return world.observe(jax.random.key(0), state, None, params)

    limit = int(getattr(params, "max_steps_in_episode", 0))
    return pure_environment(full, num_actions, reset, step, seen, time_limit=limit)
