"""Spaces of other libraries, recognised by what they have: nothing is imported here to look at them."""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from discorl.errors import DiscorlError
from discorl.types import Observation

MAX_COMBINATIONS = 256  # a multi-dimensional choice of so many combinations at most becomes one choice
MAX_ONE_HOT = 4096
NARROW = {"float64": "float32", "int64": "int32", "uint64": "uint32", "float16": "float32"}  # to JAX's own types


# Actions --------------------------------------------------------------------------------------------------------------


class Actions(NamedTuple):
    """A choice of one of `total` numbers from 0, and what the environment is given for it."""

    total: int
    names: tuple[str, ...]
    decode: Callable[[np.ndarray], np.ndarray]  # [B] -> [B, ...]


def flat_actions(space: Any, owner: str) -> Actions:
    """One choice out of a discrete space, or out of all combinations of a multi-dimensional one if they are few."""
    sizes = _sizes(space)
    if sizes is None:
        count, start = require_discrete(space, owner), int(getattr(space, "start", 0))
        return Actions(count, (), lambda action: action + start)
    count = math.prod(sizes.ravel().tolist())
    if count > MAX_COMBINATIONS:
        raise DiscorlError(
            f"{owner} has {_kind(space)}, which makes {count} combinations, and at most {MAX_COMBINATIONS} can be one "
            "choice: wrap it so that its action space is Discrete"
        )
    start = np.broadcast_to(np.asarray(getattr(space, "start", 0)), sizes.shape)
    table = np.array(list(itertools.product(*(range(n) for n in sizes.ravel())))).reshape(-1, *sizes.shape) + start
    table = table.astype(getattr(space, "dtype", None) or np.int64)
    return Actions(count, tuple(",".join(map(str, row.ravel())) for row in table), lambda action: table[action])


def require_discrete(space: Any, owner: str) -> int:
    """The number of actions of a discrete space; any other kind is refused in one sentence about `owner`.

    A Gymnasium space may number its actions from `space.start`; ours start at 0, so an adapter adds it.
    """
    kind = _kind(space)
    if kind is not None:
        raise DiscorlError(
            f"{owner} has {kind}, but update rules choose one of a fixed number of actions: "
            "wrap it so that its action space is Discrete"
        )
    if int(space.n) < 1:
        raise DiscorlError(f"{owner} has a discrete action space of {int(space.n)} actions, it needs at least 1")
    return int(space.n)


def _sizes(space: Any) -> np.ndarray | None:
    """How many choices there are in each dimension of MultiDiscrete or MultiBinary; None of any other space."""
    if hasattr(space, "nvec"):
        return np.asarray(space.nvec)
    if hasattr(space, "n") and tuple(getattr(space, "shape", None) or ()) != ():
        return np.full(space.shape, 2)
    return None


def _kind(space: Any) -> str | None:
    """What is wrong with a space, in words; None if it is discrete."""
    name = type(space).__name__
    if hasattr(space, "nvec"):
        return f"a multi-dimensional action space ({name} of sizes {np.asarray(space.nvec).tolist()})"
    if hasattr(space, "low") and hasattr(space, "high"):
        shape = np.shape(space.low)
        if np.issubdtype(np.asarray(space.low).dtype, np.integer):
            return f"a multi-dimensional action space ({name} of shape {shape})"
        return f"a continuous action space ({name} of shape {shape})"
    if hasattr(space, "spaces"):
        return f"a composite action space ({name})"
    if not hasattr(space, "n"):
        return f"an action space of unknown kind ({name})"
    # MultiBinary has `n` too, but a choice of one number has no axes.
    if np.ndim(space.n) > 0 or tuple(getattr(space, "shape", None) or ()) != ():
        return f"a multi-dimensional action space ({name} of {np.asarray(space.n).tolist()})"
    return None


# Observations ---------------------------------------------------------------------------------------------------------


class Observations(NamedTuple):
    """What an agent sees of a space: arrays as they are, in JAX's types; one of n as a one-hot vector of booleans."""

    spec: Any  # tree of jax.ShapeDtypeStruct
    batched: Callable[[Any], Observation]  # from a batch, as vectors of environments give it
    stacked: Callable[[Sequence[Any]], Observation]  # from one observation per environment


def observations(space: Any, owner: str) -> Observations:
    if hasattr(space, "spaces"):
        return _composite(space.spaces, owner)
    if hasattr(space, "n") and not hasattr(space, "nvec") and tuple(getattr(space, "shape", None) or ()) == ():
        return _one_hot(int(space.n), int(getattr(space, "start", 0)), owner)
    shape, dtype = getattr(space, "shape", None), getattr(space, "dtype", None)
    if shape is None or dtype is None or np.dtype(dtype).kind not in "biuf":
        raise DiscorlError(
            f"{owner} has observations of a kind that no network here can see ({type(space).__name__}): "
            "wrap it so that its observation space is a Box, Discrete, or a Dict or Tuple of them"
        )
    shape = tuple(int(n) for n in shape)
    kept = np.dtype(NARROW.get(np.dtype(dtype).name, dtype))

    def batched(given: Any) -> np.ndarray:
        return np.array(given, kept)  # a copy: environments reuse their buffers

    def stacked(given: Sequence[Any]) -> np.ndarray:
        try:
            rows = np.array(given, kept)
        except ValueError:  # they are not alike
            rows = np.zeros(0)
        if rows.shape != (len(given), *shape):
            odd = next((x for x in map(np.shape, given) if x != shape), None)
            raise DiscorlError(
                f"{owner} gave an observation of shape {odd}, but its observation space says {shape}: "
                "the shape may not change"
            )
        return rows

    return Observations(jax.ShapeDtypeStruct(shape, kept), batched, stacked)


def _one_hot(count: int, start: int, owner: str) -> Observations:
    if count > MAX_ONE_HOT:
        raise DiscorlError(f"{owner} has {count} different observations, and at most {MAX_ONE_HOT} can be one-hot")

    def batched(given: Any) -> np.ndarray:
        return (np.asarray(given).reshape(-1, 1) - start) == np.arange(count)

    return Observations(jax.ShapeDtypeStruct((count,), np.dtype(bool)), batched, batched)


def _composite(spaces: Any, owner: str) -> Observations:
    """Of Dict and Tuple spaces."""
    names = list(spaces) if hasattr(spaces, "keys") else list(range(len(spaces)))
    parts = {name: observations(spaces[name], owner) for name in names}
    tree = dict if hasattr(spaces, "keys") else lambda entries: tuple(entries.values())
    return Observations(
        tree({name: part.spec for name, part in parts.items()}),
        lambda given: tree({name: part.batched(given[name]) for name, part in parts.items()}),
        lambda given: tree({name: part.stacked([x[name] for x in given]) for name, part in parts.items()}),
    )
