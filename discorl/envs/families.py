"""Families of environments: the same shapes for every agent, another task for every lifetime.

A task is data, a NamedTuple of arrays, and may be traced: `vmap` over keys gives each agent of a population its own.

    env = family.make(family.draw(key))

Whatever is expensive (walls, tables) is made by `draw`, once per lifetime; a batch computes a reset at every step.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from discorl.envs.base import Environment, EnvSpec, EnvState
from discorl.types import Key

Task = Any  # a NamedTuple of arrays
Span = tuple[int, int]  # least and greatest, both included
Range = tuple[float, float]


class Family(NamedTuple):
    """Tasks of one kind."""

    name: str
    spec: EnvSpec  # the same for every task
    draw: Callable[[Key], Task]
    make: Callable[[Task], Environment]


# Drawing: from numbers u, uniform in [0, 1), so that a family needs one call of the generator -------------------------


def whole(u: Float[Array, "*n"], span: Span) -> Int[Array, "*n"]:
    """A whole number of the span, each equally likely."""
    low, high = span
    # float32 can round u · n up to n.
    return jnp.minimum(low + jnp.floor(u * (high - low + 1)), high).astype(jnp.int32)


def real(u: Float[Array, "*n"], limits: Range) -> Float[Array, "*n"]:
    low, high = limits
    return (low + u * (high - low)).astype(jnp.float32)


TaskOf = TypeVar("TaskOf", bound=tuple)


def drawn(task: type[TaskOf], ranges: Any, key: Key) -> TaskOf:
    """A task whose every number is drawn from the range of its name: spans of integers, ranges of floats."""
    limits = vars(ranges)
    u = jax.random.uniform(key, (len(limits),))

    def one(u: Array, span: Any) -> Array:
        return whole(u, span) if isinstance(span[0], int) else real(u, span)

    return task(**{name: one(u[i], span) for i, (name, span) in enumerate(limits.items())})


def magnitude(u: Float[Array, "*n"], limits: Range) -> Float[Array, "*n"]:
    """Uniform in its logarithm: 0.1 to 1 is as likely as 1 to 10."""
    low, high = limits
    return (low * jnp.power(jnp.float32(high / low), u)).astype(jnp.float32)


def below(u: Float[Array, ""], count: Int[Array, ""]) -> Int[Array, ""]:
    """A whole number of 0 … count - 1, where the count is part of the task."""
    return jnp.minimum((u * count.astype(jnp.float32)).astype(jnp.int32), count - 1)


def coarse(key: Key) -> Float[Array, "4"]:
    """Four numbers in [0, 1), multiples of 1/256, of one random word: each further word takes longer to compile."""
    word = jax.random.bits(key, dtype=jnp.uint32)
    return ((word >> jnp.arange(0, 32, 8, dtype=jnp.uint32)) & jnp.uint32(255)).astype(jnp.float32) / 256


def pick(table: Array, index: Int[Array, ""]) -> Array:
    """`table[index]` of a small table, compared and summed: many small gathers in a batch are slow."""
    return jnp.sum(jnp.where(jnp.arange(table.shape[0]) == index, table, jnp.zeros((), table.dtype)), dtype=table.dtype)


# Made of another family -----------------------------------------------------------------------------------------------


class Rescaled(NamedTuple):
    task: Task
    scale: Float[Array, ""]


def rescaled(family: Family, limits: Range) -> Family:
    """The same tasks, with rewards of any magnitude within the limits; one scale per lifetime."""

    def draw(key: Key) -> Rescaled:
        key_task, key_scale = jax.random.split(key)
        return Rescaled(task=family.draw(key_task), scale=magnitude(jax.random.uniform(key_scale), limits))

    def make(task: Rescaled) -> Environment:
        env = family.make(task.task)

        def step(key: Key, state: EnvState, action: Array) -> Any:
            state, timestep = env.step(key, state, action)
            return state, timestep._replace(reward=timestep.reward * task.scale)

        return env._replace(step=step)

    return family._replace(draw=draw, make=make)


def single(env: Environment) -> Family:
    """A family of one task, which has nothing to vary."""
    return Family(name=env.spec.name, spec=env.spec, draw=lambda key: (), make=lambda task: env)
