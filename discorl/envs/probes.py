"""Probe environments: each adds one difficulty, so the first one that is not learnt says what is broken.

All have two actions and observe `[signal, clock]`: what the episode is about, and the steps taken so far. A learner
that fails `constant` probably has a wrong value loss; one that only fails `delayed` bootstraps wrongly; and so on.
`memory` is for recurrent agents, `clock` for how ends by a time limit are treated.
After Andy Jones, "Debugging RL, Without the Agonizing Pain" (https://andyljones.com/posts/rl-debugging.html).
"""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from discorl.envs.base import Environment, EnvSpec, TimeStep
from discorl.types import Key


class ProbeState(NamedTuple):
    signal: Float[Array, ""]
    clock: Int[Array, ""]


def constant() -> Environment:
    """One step, reward 1. Learn: the value of [1, 0] is 1, whatever the policy."""
    return _probe("constant", _one, lambda state, action: jnp.float32(1))


def observation() -> Environment:
    """One step, reward is the signal, -1 or 1. Learn: the value of [s, 0] is s, whatever the policy."""
    return _probe("observation", _coin, lambda state, action: state.signal)


def delayed() -> Environment:
    """Two steps, reward 0 and then 1. Learn: the value of [1, 1] is 1, that of [1, 0] is the discount factor."""
    return _probe("delayed", _one, lambda state, action: state.clock.astype(jnp.float32), length=2)


def action() -> Environment:
    """One step, reward 1 for action 1 and -1 for action 0. Learn: take action 1; the value of [1, 0] becomes 1."""
    return _probe("action", _one, lambda state, action: _sign(action == 1))


def both() -> Environment:
    """One step, reward 1 if the action tells the signal, else -1. Learn: 0 at [-1, 0], 1 at [1, 0]; values become 1."""
    return _probe("both", _coin, lambda state, action: _sign((action == 1) == (state.signal > 0)))


def memory(length: int = 3) -> Environment:
    """The signal shows at the first step only; at the last, reward 1 if the action tells it, else -1; 0 on the way.

    Learn: remember. Without a memory the average return is 0, whatever the policy.
    """

    def reward(state: ProbeState, action: Array) -> Array:
        return jnp.where(state.clock == length - 1, _sign((action == 1) == (state.signal > 0)), jnp.float32(0))

    return _probe("memory", _coin, reward, length=length, shown=1)


def clock() -> Environment:
    """Action 1 pays 2 and leaves for good; action 0 pays 0.5 and stays, but a clock ends the episode after each step.

    Learn: stay, if what a clock ends goes on (that is worth 0.5 / (1 - γ)); leave, if it counts as any other end.
    """
    base = _probe("clock", _one, lambda state, action: jnp.where(action == 1, jnp.float32(2), jnp.float32(0.5)))

    def step(key: Key, state: ProbeState, action: Int[Array, ""]) -> tuple[ProbeState, TimeStep]:
        _, timestep = base.step(key, state, action)
        _, same = base.reset(key)  # who stays sees what was there before: nothing but the clock ended
        return state, timestep._replace(obs=same, terminated=action == 1, truncated=action != 1)

    return base._replace(spec=replace(base.spec, time_limit=1), step=step)


def _probe(
    name: str,
    start: Callable[[Key], Array],
    reward: Callable[[ProbeState, Array], Array],
    length: int = 1,
    shown: int | None = None,
) -> Environment:
    """`shown` is the number of steps that the signal is seen for; always unless it is given."""

    def observe(state: ProbeState) -> Float[Array, "2"]:
        signal = state.signal if shown is None else jnp.where(state.clock < shown, state.signal, jnp.float32(0))
        return jnp.stack([signal, state.clock.astype(jnp.float32)])

    def reset(key: Key) -> tuple[ProbeState, Float[Array, "2"]]:
        state = ProbeState(signal=start(key), clock=jnp.zeros((), jnp.int32))
        return state, observe(state)

    def step(key: Key, state: ProbeState, action: Int[Array, ""]) -> tuple[ProbeState, TimeStep]:
        del key  # chance only chooses the signal
        after = state._replace(clock=state.clock + 1)
        return after, TimeStep(
            obs=observe(after),
            reward=reward(state, action),
            terminated=after.clock == length,
            truncated=jnp.zeros((), bool),
        )

    def render(state: ProbeState) -> str:
        return f"signal {float(state.signal):+.0f}, step {int(state.clock)} of {length}"

    spec = EnvSpec(name=f"probe/{name}", num_actions=2, observation=jax.ShapeDtypeStruct((2,), jnp.float32))
    return Environment(spec=spec, reset=reset, step=step, render=render)


def _one(key: Key) -> Float[Array, ""]:
    del key
    return jnp.ones((), jnp.float32)


def _coin(key: Key) -> Float[Array, ""]:
    return _sign(jax.random.bernoulli(key))


def _sign(positive: Array) -> Float[Array, ""]:
    return jnp.where(positive, jnp.float32(1), jnp.float32(-1))
