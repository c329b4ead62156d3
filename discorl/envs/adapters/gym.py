"""Gymnasium: registered ids, environments and vectors of them given as objects. Objects need no import to be used."""

import copy
import re
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from discorl.envs.adapters.gym_masks import MaskShown, VectorMaskShown, lane, tells_masks, vector_tells_masks
from discorl.envs.adapters.libraries import library
from discorl.envs.base import EnvSpec
from discorl.envs.host import HostEnvironment, HostStep
from discorl.envs.spaces import Actions, Observations, flat_actions, observations
from discorl.errors import DiscorlError, near_matches
from discorl.types import Observation

ID = re.compile(r"(?:[\w.]+:)?(?:[\w-]+/)?[\w.-]+-v[0-9]+")  # module:namespace/Name-v0, as Gymnasium writes them
DRAWN = "rgb_array"


def from_id(name: str) -> HostEnvironment:
    """A registered environment; ids of ale-py are registered first, because it does not do so by itself."""
    gymnasium = library("gymnasium", "gym", f"environment {name!r}")
    if name.startswith("ALE/"):
        gymnasium.register_envs(library("ale_py", "atari", f"environment {name!r}"))

    def make(render: bool = False) -> Any:
        env = gymnasium.make(name)
        if not render or DRAWN not in env.metadata.get("render_modes", ()):
            return env
        env.close()
        return gymnasium.make(name, render_mode=DRAWN)

    try:
        return from_maker(make, name)
    except gymnasium.error.UnregisteredEnv:
        near = near_matches(name, gymnasium.registry)
        hint = near if near.startswith("did") else "`python -c 'import gymnasium; gymnasium.pprint_registry()'` lists"
        raise DiscorlError(
            f"unknown environment {name!r} to Gymnasium; {hint}, and write MODULE:{name} if a module registers it"
        ) from None
    except gymnasium.error.DependencyNotInstalled as error:
        raise DiscorlError(f"environment {name!r} needs something that is not installed: {error}") from error
    except gymnasium.error.Error as error:
        raise DiscorlError(f"Gymnasium does not make {name!r}: {error}") from error


def looks_like(given: Any) -> bool:
    """Whether an object is an environment or a vector of environments in Gymnasium's sense."""
    single = all(hasattr(given, name) for name in ("reset", "step", "observation_space", "action_space"))
    return single and not callable(given.action_space) and not isinstance(given, type)


def from_object(given: Any) -> HostEnvironment:
    """An environment is copied as often as needed; a vector of environments is used as it is."""
    if hasattr(given, "single_action_space"):
        return from_vector(given)
    name = _name(given)

    def make(render: bool = False) -> Any:
        del render  # how it shows itself was chosen when it was made
        try:
            return copy.deepcopy(given)
        except Exception as error:
            raise DiscorlError(
                f"environment {name!r} cannot be copied ({type(error).__name__}: {error}); give its class, or a "
                "function without arguments that makes one"
            ) from error

    return from_maker(make, name)


def from_maker(make: Callable[[bool], Any], name: str) -> HostEnvironment:
    """From a function that makes one environment, told whether it will be shown."""
    example = make(False)
    try:
        show = MaskShown if tells_masks(example) else lambda env: env
        actions, seen = _spaces(example.action_space, show(example).observation_space, name)
        spec = _spec(name, actions, seen, getattr(example, "spec", None))
    finally:
        example.close()

    def vector(size: int, render: bool) -> Separate:
        return Separate([show(make(render)) for _ in range(size)], actions, seen)

    return HostEnvironment(spec, vector)


def from_vector(vector: Any) -> HostEnvironment:
    """From a vector of environments that somebody made."""
    name = _name(vector)
    if vector_tells_masks(vector):
        vector = VectorMaskShown(vector)
    actions, seen = _spaces(vector.single_action_space, vector.single_observation_space, name)
    mode = (getattr(vector, "metadata", None) or {}).get("autoreset_mode")
    kinds = {"NextStep": NextStep, "SameStep": SameStep, "Disabled": Masked}
    kind = kinds.get(str(getattr(mode, "value", mode)))
    if kind is None:
        raise DiscorlError(
            f"the vector environment {name!r} does not say how it resets (metadata['autoreset_mode'] is {mode!r}): "
            f"set it to one of gymnasium.vector.AutoresetMode ({', '.join(kinds)})"
        )
    spec = _spec(name, actions, seen, getattr(vector, "spec", None))
    return HostEnvironment(spec, lambda size, render: kind(vector, actions, seen), size=int(vector.num_envs))


def _name(given: Any) -> str:
    registered = getattr(getattr(given, "spec", None), "id", None)
    return registered or type(getattr(given, "unwrapped", given)).__name__


def _spaces(action_space: Any, observation_space: Any, name: str) -> tuple[Actions, Observations]:
    owner = f"environment {name!r}"
    return flat_actions(action_space, owner), observations(observation_space, owner)


def _spec(name: str, actions: Actions, seen: Observations, registered: Any) -> EnvSpec:
    limit = getattr(registered, "max_episode_steps", None) or 0
    return EnvSpec(name, actions.total, seen.spec, actions.names, time_limit=int(limit))


class Separate:
    """Single environments in a row, each reset as soon as its episode ends."""

    def __init__(self, envs: Sequence[Any], actions: Actions, seen: Observations) -> None:
        self._envs, self._actions, self._seen = envs, actions, seen

    @property
    def size(self) -> int:
        return len(self._envs)

    def reset(self, seed: int) -> Observation:
        seeds = np.random.SeedSequence(seed).generate_state(self.size) >> 1
        return self._seen.stacked([env.reset(seed=int(s))[0] for env, s in zip(self._envs, seeds, strict=True)])

    def step(self, action: np.ndarray) -> HostStep:
        decoded = self._actions.decode(action)
        given = decoded.tolist() if decoded.ndim == 1 else decoded
        after, reward, *ends, _ = zip(*(env.step(a) for env, a in zip(self._envs, given, strict=True)), strict=True)
        final_obs = self._seen.stacked(after)
        terminated, truncated = (np.array(end, bool) for end in ends)
        first = terminated | truncated
        obs = final_obs
        if first.any():
            begun = [env.reset()[0] if new else x for env, new, x in zip(self._envs, first, after, strict=True)]
            obs = self._seen.stacked(begun)
        return HostStep(
            obs=obs,
            first=first,
            reward=np.array(reward, np.float32),
            terminated=terminated,
            truncated=truncated & ~terminated,
            final_obs=final_obs,
            real=np.ones(self.size, bool),
        )

    def render(self) -> np.ndarray | None:
        draws = getattr(self._envs[0], "render_mode", None) == DRAWN
        return self._envs[0].render() if draws else None

    def close(self) -> None:
        for env in self._envs:
            env.close()


class _Vector:
    """What the three kinds of Gymnasium's vectors share. They belong to whoever gave them: they are not closed."""

    def __init__(self, vector: Any, actions: Actions, seen: Observations) -> None:
        self._vector, self._actions, self._seen = vector, actions, seen
        self._ended = np.zeros(self.size, bool)

    @property
    def size(self) -> int:
        return int(self._vector.num_envs)

    def reset(self, seed: int | None) -> Observation:
        self._ended = np.zeros(self.size, bool)
        return self._seen.batched(self._vector.reset(seed=None if seed is None else int(seed))[0])

    def _step(self, action: np.ndarray) -> tuple[HostStep, dict[str, Any]]:
        """As if observations were final ones and nothing had been reset."""
        obs, reward, terminated, truncated, info = self._vector.step(self._actions.decode(action))
        terminated, truncated = np.array(terminated, bool), np.array(truncated, bool)
        seen = self._seen.batched(obs)
        step = HostStep(
            obs=seen,
            first=terminated | truncated,
            reward=np.array(reward, np.float32),
            terminated=terminated,
            truncated=truncated & ~terminated,
            final_obs=seen,
            real=np.ones(self.size, bool),
        )
        return step, info

    def render(self) -> np.ndarray | None:
        frames = self._vector.render() if getattr(self._vector, "render_mode", None) == DRAWN else None
        return frames[0] if frames else None

    def close(self) -> None:
        pass


class NextStep(_Vector):
    """After an end comes the final observation; the next step takes no action there, it only resets."""

    def step(self, action: np.ndarray) -> HostStep:
        came, _ = self._step(action)
        resetting, self._ended = self._ended, came.first
        return came._replace(first=resetting, real=~resetting)


class SameStep(_Vector):
    """The step that ends an episode resets it, and keeps the final observation aside."""

    def step(self, action: np.ndarray) -> HostStep:
        came, info = self._step(action)
        if not came.first.any():
            return came
        if "final_obs" not in info:
            raise DiscorlError("this vector environment resets in the same step but gives no info['final_obs']")
        ended = np.flatnonzero(came.first)
        final = self._seen.stacked([lane(info["final_obs"], int(i)) for i in ended])
        return came._replace(final_obs=_filled(came.obs, ended, final))


class Masked(_Vector):
    """Nothing is reset unless asked for, so it is asked for."""

    def step(self, action: np.ndarray) -> HostStep:
        came, _ = self._step(action)
        if not came.first.any():
            return came
        begun = self._seen.batched(self._vector.reset(options={"reset_mask": came.first.copy()})[0])
        ended = np.flatnonzero(came.first)
        return came._replace(obs=_filled(came.obs, ended, jax.tree.map(lambda x: x[ended], begun)))


def _filled(tree: Observation, at: np.ndarray, new: Observation) -> Observation:
    """A copy in which the rows `at` are `new`."""

    def fill(x: np.ndarray, rows: np.ndarray) -> np.ndarray:
        x = x.copy()
        x[at] = rows
        return x

    return jax.tree.map(fill, tree, new)
