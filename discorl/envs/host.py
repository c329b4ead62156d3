"""Environments that Python steps: many side by side, in NumPy. The contract, and the check of everything they say."""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import numpy as np

from discorl.envs.base import EnvSpec
from discorl.errors import DiscorlError
from discorl.types import Observation


class HostStep(NamedTuple):
    """The consequences of one action in each of B environments, as NumPy arrays.

    `real` is False where no action was taken because the step only began a new episode: some vectors of environments
    spend a step on that. Such a step is no experience and is left out.
    """

    obs: Observation  # [B, ...] what the next action will be based on
    first: np.ndarray  # [B] obs starts an episode
    reward: np.ndarray  # [B] float32
    terminated: np.ndarray  # [B] the task ended: nothing comes after
    truncated: np.ndarray  # [B] a clock ended it: something would have come after
    final_obs: Observation  # [B, ...] what the action led to, before any reset
    real: np.ndarray  # [B]


@runtime_checkable
class HostVector(Protocol):
    """Environments stepped together. A lane whose episode ended begins the next one by itself."""

    @property
    def size(self) -> int: ...

    def reset(self, seed: int) -> Observation: ...

    def step(self, action: np.ndarray) -> HostStep: ...

    def render(self) -> np.ndarray | None:
        """The first environment as an RGB picture; None if it does not draw itself."""
        ...

    def close(self) -> None: ...


class HostEnvironment(NamedTuple):
    """How to make vectors of an environment that Python steps. Training makes some, evaluation makes its own."""

    spec: EnvSpec
    make: Callable[[int, bool], HostVector]  # how many, and whether they will be shown
    size: int | None = None  # if somebody gave a vector that is made already, its size; there is only that one

    def open(self, size: int, render: bool = False) -> HostVector:
        """A vector whose every word is checked."""
        return Guarded(self.spec, _quoting(f"making environment {self.spec.name!r}", self.make, size, render))


class Guarded:
    """A vector of environments, trusted with nothing: what it does wrong is said in one sentence."""

    def __init__(self, spec: EnvSpec, vector: HostVector) -> None:
        self._vector = vector
        self._where = f"environment {spec.name!r}"
        self._wanted, self._structure = jax.tree.flatten(spec.observation)

    @property
    def size(self) -> int:
        return self._vector.size

    def reset(self, seed: int) -> Observation:
        obs = _quoting(f"{self._where}: reset", self._vector.reset, seed)
        self._check_obs(obs, "reset")
        return obs

    def step(self, action: np.ndarray) -> HostStep:
        came = _quoting(f"{self._where}: step", self._vector.step, action)
        if not np.isfinite(came.reward).all():
            lane = int(np.flatnonzero(~np.isfinite(came.reward))[0])
            raise DiscorlError(
                f"{self._where}: the reward must be a finite number, but it was {came.reward[lane]} after action "
                f"{int(action[lane])}; find out where it comes from, or wrap the environment so that it cannot"
            )
        self._check_obs(came.obs, "step")
        return came

    def render(self) -> np.ndarray | None:
        return _quoting(f"{self._where}: render", self._vector.render)

    def close(self) -> None:
        self._vector.close()

    def _check_obs(self, obs: Observation, when: str) -> None:
        leaves, structure = jax.tree.flatten(obs)
        if structure != self._structure:
            raise DiscorlError(
                f"{self._where}: the observation of {when} has the structure {structure}, but its space says "
                f"{self._structure}"
            )
        for x, like in zip(leaves, self._wanted, strict=True):
            if x.shape != (self.size, *like.shape) or x.dtype != like.dtype:
                raise DiscorlError(
                    f"{self._where}: the observation of {when} is {x.dtype}{list(x.shape[1:])}, but its space says "
                    f"{like.dtype}{list(like.shape)}; observations may not change their shape"
                )
            if x.dtype.kind == "f" and not np.isfinite(x).all():
                raise DiscorlError(f"{self._where}: observations must be finite, but one of {when} was not")


def _quoting(what: str, function: Callable[..., Any], *args: Any) -> Any:
    """Whatever somebody's code raises, as one sentence that says where."""
    try:
        return function(*args)
    except DiscorlError:
        raise
    except Exception as error:
        first_line = (str(error).splitlines() or [""])[0]
        raise DiscorlError(f"{what} raised {type(error).__name__}: {first_line}") from error
