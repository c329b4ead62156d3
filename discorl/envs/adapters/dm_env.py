"""dm_env: environments given as objects, classes or functions, recognised by what they have; nothing is imported.

An end with discount 0 is a termination, one with discount 1 a truncation. Any other discount, and any but 1 within an
episode, is refused: the discount of the future belongs to the update rule here, and there is no place for a second.
"""

import copy
import inspect
import random
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from discorl.envs.adapters.gym import Separate
from discorl.envs.base import EnvSpec
from discorl.envs.host import HostEnvironment
from discorl.envs.spaces import flat_actions, observations
from discorl.errors import DiscorlError

Make = Callable[[int], Any]  # from a seed


def looks_like(given: Any) -> bool:
    """Whether an object is an environment in dm_env's sense."""
    methods = ("reset", "step", "observation_spec", "action_spec")
    return all(callable(getattr(given, name, None)) for name in methods) and not isinstance(given, type)


def from_object(given: Any) -> HostEnvironment:
    """An environment that is copied as often as needed, each copy with a randomness of its own."""
    name = type(given).__name__

    def make(seed: int) -> Any:
        copies: dict[int, Any] = {}  # of everything inside
        try:
            made = copy.deepcopy(given, copies)
        except Exception as error:
            raise DiscorlError(
                f"environment {name!r} cannot be copied ({type(error).__name__}: {error}); give its class, or a "
                "function that makes one"
            ) from error
        _seed_generators(list(copies.values()), seed)
        return made

    return from_maker(make, name)


def seeded(make: Callable[..., Any]) -> Make:
    """A class or function, given the seed if it has a parameter of that name: dm_env has no other place for one."""
    try:
        takes_seed = "seed" in inspect.signature(make).parameters
    except (TypeError, ValueError):  # some callables do not say
        takes_seed = False
    return (lambda seed: make(seed=seed)) if takes_seed else (lambda seed: make())


def from_maker(make: Make, name: str) -> HostEnvironment:
    owner = f"environment {name!r}"
    example = make(0)
    try:
        chosen = example.action_spec()
        actions = flat_actions(action_space(chosen), owner)
        seen = observations(_observation_space(example.observation_spec()), owner)
    finally:
        close(example)
    spec = EnvSpec(name, actions.total, seen.spec, actions.names)
    one = partial(Single, make, np.dtype(chosen.dtype), owner)
    return HostEnvironment(spec, lambda size, render: Separate([one() for _ in range(size)], actions, seen))


class Single:
    """One environment in Gymnasium's manner. A seeded reset makes it anew, because only its making can take a seed."""

    def __init__(self, make: Make, action_dtype: np.dtype, owner: str) -> None:
        self._make, self._dtype, self._owner = make, action_dtype, owner
        self._env: Any = None

    def reset(self, seed: int | None = None) -> tuple[Any, dict]:
        if seed is not None:
            self.close()
            self._env = self._make(seed)
        return self._env.reset().observation, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        came = self._env.step(self._dtype.type(action))
        discount, last = np.asarray(came.discount, np.float32), bool(came.last())
        if discount != 1 and not (last and discount == 0):
            raise DiscorlError(
                f"{self._owner} gave the discount {came.discount} {'at the end' if last else 'in the middle'} of an "
                "episode, but it may only be 1, or 0 at the end: the update rule discounts the future, so wrap the "
                "environment to say 1"
            )
        return came.observation, float(came.reward), last and not discount, last and bool(discount), {}

    def close(self) -> None:
        if self._env is not None:
            close(self._env)


def close(env: Any) -> None:
    """As dm_env's base class has it, also for those who only look like it."""
    getattr(env, "close", lambda: None)()


def _seed_generators(things: list[Any], seed: int) -> None:
    """Of many objects, those that draw random numbers begin anew; otherwise all copies would live the same life."""
    generators = [x for x in things if isinstance(x, np.random.Generator | np.random.RandomState | random.Random)]
    for x, own in zip(generators, np.random.SeedSequence(seed).generate_state(len(generators)), strict=True):
        if isinstance(x, np.random.Generator):
            x.bit_generator.state = type(x.bit_generator)(int(own)).state
        else:
            x.seed(int(own))


# Specs as the spaces that are understood already --------------------------------------------------------------------


class BoundedArray(SimpleNamespace):
    """What `envs.spaces` asks of a space; the name is what people read in its refusals."""


def action_space(spec: Any) -> Any:
    """Of bounded integers one choice, or several; of whatever else, something to be refused by its name."""
    if isinstance(spec, dict | list | tuple):
        return SimpleNamespace(spaces=spec)
    if not hasattr(spec, "minimum"):
        return spec
    low, high = (np.broadcast_to(x, spec.shape) for x in (spec.minimum, spec.maximum))
    if np.dtype(spec.dtype).kind not in "iu":
        return BoundedArray(low=low, high=high)
    sizes = high.astype(np.int64) - low + 1
    if spec.shape == ():
        return BoundedArray(n=int(sizes), start=int(low))
    return BoundedArray(nvec=sizes, start=low, shape=spec.shape, dtype=np.dtype(spec.dtype))


def _observation_space(spec: Any) -> Any:
    if isinstance(spec, dict):
        return SimpleNamespace(spaces={name: _observation_space(x) for name, x in spec.items()})
    if isinstance(spec, list | tuple):
        return SimpleNamespace(spaces=[_observation_space(x) for x in spec])
    return SimpleNamespace(n=spec.num_values) if hasattr(spec, "num_values") else spec
