"""How good trained agents are: whole episodes, and the spread over agents."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PyTree

from discorl import acting
from discorl.envs.base import Environment
from discorl.envs.host import HostEnvironment
from discorl.networks import AgentNetwork
from discorl.types import Key, Memory, Observation, Params

MAX_STEPS = 10_000  # episodes that last longer are cut: some environments never end
HOST_LANES = 16  # environments side by side where Python steps them
RESAMPLES = 10_000


class Episodes(NamedTuple):
    """Whole episodes of one policy; a leading axis of agents after `vmap`."""

    returns: Float[Array, " E"]
    finished: Bool[Array, " E"]  # False where MAX_STEPS cut the episode


class Spread(NamedTuple):
    """Mean over agents, a 95 % bootstrap interval of it, and the extremes."""

    mean: float
    low: float
    high: float
    worst: float
    best: float


class _Walk(NamedTuple):
    t: Array
    env_state: PyTree
    memory: Memory
    obs: Observation
    first: Bool[Array, " E"]
    returns: Float[Array, " E"]
    alive: Bool[Array, " E"]


def run_episodes(
    env: Environment, network: AgentNetwork, params: Params, key: Key, greedy: Bool[Array, ""], *, episodes: int
) -> Episodes:
    """Plays that many episodes side by side, each from its start to its end, so that short ones are not preferred.

    `greedy` takes the likeliest actions instead of drawing them; it is traced: one program does both.
    """
    key_reset, key_walk = jax.random.split(key)

    def step(walk: _Walk) -> _Walk:
        key_act, key_env = jax.random.split(jax.random.fold_in(key_walk, walk.t))
        acted = acting.act(network, params, walk.memory, walk.obs, walk.first, key_act)
        action = jnp.where(greedy, jnp.argmax(acted.logits, axis=-1).astype(acted.action.dtype), acted.action)
        env_state, after = jax.vmap(env.step)(jax.random.split(key_env, episodes), walk.env_state, action)
        return _Walk(
            t=walk.t + 1,
            env_state=env_state,
            memory=acted.memory,
            obs=after.obs,
            first=jnp.zeros_like(walk.first),
            returns=walk.returns + jnp.where(walk.alive, after.reward, 0.0),
            alive=walk.alive & ~(after.terminated | after.truncated),
        )

    env_state, obs = jax.vmap(env.reset)(jax.random.split(key_reset, episodes))
    start = _Walk(
        t=jnp.zeros((), jnp.int32),
        env_state=env_state,
        memory=network.memory(episodes),
        obs=obs,
        first=jnp.ones(episodes, bool),
        returns=jnp.zeros(episodes, jnp.float32),
        alive=jnp.ones(episodes, bool),
    )
    end = jax.lax.while_loop(lambda walk: walk.alive.any() & (walk.t < MAX_STEPS), step, start)
    return Episodes(returns=end.returns, finished=~end.alive)


def run_host_episodes(
    env: HostEnvironment, network: AgentNetwork, params: Params, key: Key, greedy: bool, *, episodes: int
) -> Episodes:
    """The same where Python steps: every lane plays equally many episodes, so that short ones are not preferred."""
    lanes = env.size or min(episodes, HOST_LANES)
    each = -(-episodes // lanes)
    key_reset, key_walk = jax.random.split(key)

    @jax.jit
    def policy(params: Params, memory: Memory, obs: Observation, first: Array, t: Array) -> acting.Acted:
        return acting.act(network, params, memory, obs, first, jax.random.fold_in(key_walk, t), greedy=greedy)

    returns, count = np.zeros((lanes, each)), np.zeros(lanes, int)
    vector = env.open(lanes)
    try:
        obs, first = vector.reset(int(jax.random.bits(key_reset)) >> 1), np.ones(lanes, bool)
        memory = network.memory(lanes)
        for t in range(MAX_STEPS * each):
            acted = policy(params, memory, obs, first, np.int32(t))
            came = vector.step(np.asarray(acted.action))
            playing = came.real & (count < each)
            returns[playing, count[playing]] += came.reward[playing]
            count += playing & (came.terminated | came.truncated)
            if (count == each).all():
                break
            obs, first, memory = came.obs, came.first, acted.memory
    finally:
        vector.close()
    rows: tuple[Any, Any] = returns, np.arange(each) < count[:, None]
    return Episodes(*(x.ravel()[:episodes] for x in rows))


def spread(values: np.ndarray) -> Spread:
    """Of one number per agent. Percentile bootstrap of the mean with a fixed seed: the same numbers every time."""
    values = np.asarray(values, np.float64)
    picks = np.random.default_rng(0).integers(0, len(values), (RESAMPLES, len(values)))
    low, high = np.percentile(values[picks].mean(axis=1), [2.5, 97.5])
    return Spread(float(values.mean()), float(low), float(high), float(values.min()), float(values.max()))
