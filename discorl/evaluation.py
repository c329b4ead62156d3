"""How good trained agents are: whole episodes, and what they tell about the mean."""

import itertools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from discorl import acting
from discorl.envs.base import Environment, EnvSpec
from discorl.envs.host import HostEnvironment
from discorl.networks import AgentNetwork
from discorl.types import Key, Memory, Observation, Params

MAX_STEPS = 10_000  # episodes that last longer are cut, unless a later clock is known: some environments never end
HOST_LANES = 16  # environments side by side where Python steps them
RESAMPLES = 10_000
DRAWN_AT_ONCE = 2**22  # random numbers of a bootstrap held in memory


class Episodes(NamedTuple):
    """Whole episodes of one policy; a leading axis of agents after `vmap`."""

    returns: Float[Array, " E"]
    finished: Bool[Array, " E"]  # False where the episode was cut, see `longest`
    lengths: Int[Array, " E"]


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
    lengths: Int[Array, " E"]
    alive: Bool[Array, " E"]


def longest(spec: EnvSpec) -> int:
    """Steps after which an episode is cut."""
    return max(MAX_STEPS, spec.time_limit)


def run_agents(
    env: Environment | HostEnvironment, network: AgentNetwork, params: Params, keys: Key, *, episodes: int
) -> tuple[Episodes, Episodes]:
    """So many episodes of every agent, greedily and drawing actions: `params` and `keys` have an axis of agents."""
    if isinstance(env, HostEnvironment):
        agents = [jax.tree.map(lambda x, i=i: x[i], params) for i in range(len(keys))]

        def play(greedy: bool) -> Episodes:
            each = [
                run_host_episodes(env, network, own, key, greedy, episodes=episodes)
                for own, key in zip(agents, keys, strict=True)
            ]
            return jax.tree.map(lambda *x: np.stack(x), *each)

        return play(True), play(False)

    def one(params: Params, key: Key, greedy: Array) -> Episodes:
        return run_episodes(env, network, params, key, greedy, episodes=episodes)

    program = jax.jit(jax.vmap(one, in_axes=(0, 0, None)))
    greedy, sampled = (jax.device_get(program(params, keys, jnp.asarray(choice))) for choice in (True, False))
    return greedy, sampled


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
            lengths=walk.lengths + walk.alive.astype(jnp.int32),
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
        lengths=jnp.zeros(episodes, jnp.int32),
        alive=jnp.ones(episodes, bool),
    )
    limit = longest(env.spec)
    end = jax.lax.while_loop(lambda walk: walk.alive.any() & (walk.t < limit), step, start)
    return Episodes(returns=end.returns, finished=~end.alive, lengths=end.lengths)


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

    returns, lengths = np.zeros((lanes, each)), np.zeros((lanes, each), int)
    finished, count, limit = np.zeros((lanes, each), bool), np.zeros(lanes, int), longest(env.spec)
    vector = env.open(lanes)
    try:
        obs, first = vector.reset(int(jax.random.bits(key_reset)) >> 1), np.ones(lanes, bool)
        memory = network.memory(lanes)
        for t in itertools.count():
            acted = policy(params, memory, obs, first, np.int32(t))
            came = vector.step(np.asarray(acted.action))
            lane = np.flatnonzero(came.real & (count < each))
            now = lane, count[lane]
            returns[now] += came.reward[lane]
            lengths[now] += 1
            finished[now] = (came.terminated | came.truncated)[lane]
            # nobody can make a lane begin anew: what comes after a cut counts as its next episode
            count[lane] += finished[now] | (lengths[now] == limit)
            if (count == each).all():
                break
            obs, first, memory = came.obs, came.first, acted.memory
    finally:
        vector.close()
    rows: tuple[Any, Any, Any] = returns, finished, lengths
    return Episodes(*(x.ravel()[:episodes] for x in rows))


def spread(values: np.ndarray) -> Spread:
    """Of one number per agent. Percentile bootstrap of the mean with a fixed seed: the same numbers every time."""
    values = np.asarray(values, np.float64)
    picks = np.random.default_rng(0).integers(0, len(values), (RESAMPLES, len(values)))
    low, high = np.percentile(values[picks].mean(axis=1), [2.5, 97.5])
    return Spread(float(values.mean()), float(low), float(high), float(values.min()), float(values.max()))


def interval(values: np.ndarray) -> tuple[float, float]:
    """95 % of the mean of `[agents, episodes]`, by a percentile bootstrap with a fixed seed.

    Agents are drawn anew, then episodes of each: of a single agent it tells how sure its own mean is, of several how
    sure that of training such agents is.
    """
    agents, episodes = values.shape
    rng, at_once = np.random.default_rng(0), max(1, DRAWN_AT_ONCE // values.size)
    means = []
    for done in range(0, RESAMPLES, at_once):
        count = min(at_once, RESAMPLES - done)
        who = rng.integers(0, agents, (count, agents, 1))
        which = rng.integers(0, episodes, (count, agents, episodes))
        means.append(values[who, which].mean(axis=(1, 2)))
    low, high = np.percentile(np.concatenate(means), [2.5, 97.5])
    return float(low), float(high)
