"""Families that share a shape, so that agents of all of them can be computed side by side.

One `vmap` over agents needs one shape of observations and one number of actions. Observations become vectors, padded
with zeros to the longest; the number of actions is each family's own, so only families with the same one go together.
Each agent's step computes the worlds of all families and keeps its own: for small worlds that is far cheaper than a
program, and a loop of small products, for every family.
"""

import math
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from discorl.envs.base import Environment, EnvSpec, EnvState, TimeStep
from discorl.envs.families import Family, Task
from discorl.errors import DiscorlError
from discorl.types import Key


class Together(NamedTuple):
    """Tasks of several families. Which family a task is of may be traced."""

    names: tuple[str, ...]
    spec: EnvSpec
    draw: Callable[[Key, Int[Array, ""]], Task]
    make: Callable[[Task], Environment]


class Chosen(NamedTuple):
    which: Int[Array, ""]
    tasks: tuple[Task, ...]  # one of every family; only one is lived in


def by_actions(families: Sequence[Family]) -> list[list[Family]]:
    """Families that can go together, in the order of their first."""
    groups: dict[int, list[Family]] = {}
    for family in families:
        groups.setdefault(family.spec.num_actions, []).append(family)
    return list(groups.values())


def together(families: Sequence[Family]) -> Together:
    names = tuple(family.name for family in families)
    if len(families) == 1:
        (only,) = families
        return Together(names, only.spec, lambda key, which: only.draw(key), only.make)
    actions = {family.spec.num_actions for family in families}
    if len(actions) > 1:
        raise DiscorlError(f"families with {sorted(actions)} actions cannot go together; group them first")
    length = max(_length(family) for family in families)
    spec = EnvSpec(", ".join(names), actions.pop(), jax.ShapeDtypeStruct((length,), jnp.float32))

    def draw(key: Key, which: Int[Array, ""]) -> Chosen:
        return Chosen(which=which, tasks=tuple(family.draw(key) for family in families))

    def make(task: Chosen) -> Environment:
        worlds = [family.make(one) for family, one in zip(families, task.tasks, strict=True)]

        def reset(key: Key) -> tuple[EnvState, Array]:
            states, seen = zip(*(world.reset(key) for world in worlds), strict=True)
            return states, _choose(task.which, [_padded(obs, length) for obs in seen])

        def step(key: Key, states: EnvState, action: Array) -> tuple[EnvState, TimeStep]:
            after, came = zip(
                *(world.step(key, state, action) for world, state in zip(worlds, states, strict=True)), strict=True
            )
            alike = [one._replace(obs=_padded(one.obs, length)) for one in came]
            return after, _choose(task.which, alike)

        return Environment(spec=spec, reset=reset, step=step, render=lambda state: "")

    return Together(names, spec, draw, make)


def _length(family: Family) -> int:
    leaves = jax.tree.leaves(family.spec.observation)
    if any(leaf.dtype != jnp.float32 for leaf in leaves):
        raise DiscorlError(f"{family.name} shows other numbers than float32 and cannot go together with others")
    return sum(math.prod(leaf.shape) for leaf in leaves)


def _padded(obs: Any, length: int) -> Float[Array, " N"]:
    vector = jnp.concatenate([x.reshape(-1) for x in jax.tree.leaves(obs)])
    return jnp.pad(vector, (0, length - vector.shape[0]))


def _choose(which: Int[Array, ""], options: Sequence[Any]) -> Any:
    """`options[which]` of trees: by comparison, as a gather of small things is slow in a batch."""

    def one(*leaves: Array) -> Array:
        numbered = list(enumerate(leaves))[1:]
        return reduce(lambda kept, new: jnp.where(which == new[0], new[1], kept), numbered, leaves[0])

    return jax.tree.map(one, *options)
