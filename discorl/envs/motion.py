"""Motion along a line, with constants of its own in every lifetime: pump up a spring, hold a place."""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from discorl.envs.base import Environment, EnvSpec, TimeStep
from discorl.envs.families import Family, Range, Span, drawn, real
from discorl.types import Key

MOTIONS = ("left", "coast", "right")


class MotionState(NamedTuple):
    place: Float[Array, ""]
    speed: Float[Array, ""]  # per step
    target: Float[Array, ""]
    clock: Int[Array, ""]


# Pumping --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PumpRanges:
    pace: Range = (0.15, 0.4)  # of the free swing, in radians per step
    push: Range = (0.08, 0.3)  # how far the push alone would hold the spring from its rest; the goal is at 1
    drag: Range = (0.0, 0.03)
    start: Range = (0.4, 0.9)  # place and speed begin at most so far out: some swings get there whatever one does
    limit: Span = (40, 120)


class PumpTask(NamedTuple):
    pace: Float[Array, ""]
    push: Float[Array, ""]
    drag: Float[Array, ""]
    start: Float[Array, ""]
    limit: Int[Array, ""]


def pump(name: str, ranges: PumpRanges = PumpRanges()) -> Family:
    """A weight on a spring must swing out as far as 1, on either side; pushing one way is not enough. -1 per step."""
    spec = _spec(name, 2)

    def draw(key: Key) -> PumpTask:
        return drawn(PumpTask, ranges, key)

    def make(task: PumpTask) -> Environment:
        def seen(state: MotionState) -> Float[Array, "2"]:
            return jnp.stack([state.place, state.speed / task.pace])

        def reset(key: Key) -> tuple[MotionState, Array]:
            u = real(jax.random.uniform(key, (2,)), (-1.0, 1.0)) * task.start
            state = MotionState(u[0], u[1] * task.pace, jnp.float32(1), jnp.zeros((), jnp.int32))
            return state, seen(state)

        def step(key: Key, state: MotionState, action: Int[Array, ""]) -> tuple[MotionState, TimeStep]:
            del key
            force = task.pace**2 * (task.push * (action - 1).astype(jnp.float32) - state.place)
            after = _moved(state, force - task.drag * state.speed)
            out = jnp.abs(after.place) >= 1
            return after, _timestep(after, seen(after), jnp.float32(-1), out, task.limit)

        return Environment(spec=spec, reset=reset, step=step, render=_drawn)

    return Family(name=name, spec=spec, draw=draw, make=make)


# Hovering -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class HoverRanges:
    thrust: Range = (0.03, 0.12)
    pull: Range = (-0.6, 0.6)  # a constant pull, as a share of the thrust
    drag: Range = (0.0, 0.2)
    gusts: Range = (0.0, 0.5)  # as a share of the thrust
    limit: Span = (30, 80)


class HoverTask(NamedTuple):
    thrust: Float[Array, ""]
    pull: Float[Array, ""]
    drag: Float[Array, ""]
    gusts: Float[Array, ""]
    limit: Int[Array, ""]


def hover(name: str, ranges: HoverRanges = HoverRanges()) -> Family:
    """Come to a place and stay there, against a pull and gusts. A step costs a tenth of the distance, at most 0.1."""
    spec = _spec(name, 3)

    def draw(key: Key) -> HoverTask:
        return drawn(HoverTask, ranges, key)

    def make(task: HoverTask) -> Environment:
        def seen(state: MotionState) -> Float[Array, "3"]:
            return jnp.stack([state.place, state.speed / task.thrust / 4, state.target])

        def reset(key: Key) -> tuple[MotionState, Array]:
            u = real(jax.random.uniform(key, (2,)), (-1.0, 1.0))
            state = MotionState(u[0], jnp.float32(0), u[1], jnp.zeros((), jnp.int32))
            return state, seen(state)

        def step(key: Key, state: MotionState, action: Int[Array, ""]) -> tuple[MotionState, TimeStep]:
            gust = task.gusts * real(jax.random.uniform(key), (-1.0, 1.0))
            force = task.thrust * ((action - 1).astype(jnp.float32) + task.pull + gust)
            after = _moved(state, force - task.drag * state.speed)
            inside = jnp.clip(after.place, -2.0, 2.0)
            after = after._replace(place=inside, speed=jnp.where(inside == after.place, after.speed, jnp.float32(0)))
            cost = 0.1 * jnp.minimum(jnp.abs(after.place - after.target), 1)
            return after, _timestep(after, seen(after), -cost, jnp.zeros((), bool), task.limit)

        return Environment(spec=spec, reset=reset, step=step, render=_drawn)

    return Family(name=name, spec=spec, draw=draw, make=make)


# Shared ---------------------------------------------------------------------------------------------------------------


def _spec(name: str, size: int) -> EnvSpec:
    return EnvSpec(name, len(MOTIONS), jax.ShapeDtypeStruct((size,), jnp.float32), action_names=MOTIONS)


def _moved(state: MotionState, force: Float[Array, ""]) -> MotionState:
    """The speed first, then the place: a free swing neither grows nor fades."""
    speed = state.speed + force
    return state._replace(place=state.place + speed, speed=speed, clock=state.clock + 1)


def _timestep(state: MotionState, seen: Array, reward: Array, terminated: Array, limit: Int[Array, ""]) -> TimeStep:
    return TimeStep(seen, reward, terminated, truncated=(state.clock >= limit) & ~terminated)


def _drawn(state: MotionState) -> str:
    def column(x: Array) -> int:
        return round((float(x) + 2) * 8)

    line = ["."] * 33
    line[column(state.target)] = "o"
    line[column(state.place)] = "A"
    return "".join(line)
