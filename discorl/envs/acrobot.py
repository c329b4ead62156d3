"""Acrobot: two links hang from a hinge, only the joint between them is driven, and the tip must swing up high.

With the standard constants the equations are those of Gymnasium's Acrobot-v1, after Sutton & Barto 1998, example 11.3.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from discorl.envs.base import Environment, EnvSpec, TimeStep
from discorl.envs.families import Family, Range, Span, real, whole
from discorl.types import Key

DT = 0.2
SPINS = (4 * math.pi, 9 * math.pi)  # no link spins faster


@dataclass(frozen=True)
class AcrobotRanges:
    length: Range = (0.8, 1.2)  # of the upper link; the lower one has length 1
    mass: Range = (0.7, 1.3)  # of each link
    torque: Range = (1.0, 3.0)
    limit: Span = (200, 400)


class AcrobotTask(NamedTuple):
    length: Float[Array, ""]
    upper: Float[Array, ""]  # mass
    lower: Float[Array, ""]  # mass
    torque: Float[Array, ""]
    limit: Int[Array, ""]


class AcrobotState(NamedTuple):
    x: Float[Array, "4"]  # angle of the upper link (0 hangs), of the lower one relative to it, and their speeds
    clock: Int[Array, ""]


def standard_acrobot() -> AcrobotTask:
    return AcrobotTask(*map(jnp.float32, (1.0, 1.0, 1.0, 1.0)), limit=jnp.int32(500))


def acrobot(name: str, ranges: AcrobotRanges = AcrobotRanges()) -> Family:
    """Reward -1 per step until the tip is one upper link above the hinge. Speeds are seen as a share of the fastest."""
    spec = EnvSpec(
        name=name,
        num_actions=3,
        observation=jax.ShapeDtypeStruct((6,), jnp.float32),
        action_names=("-", "0", "+"),
    )

    def draw(key: Key) -> AcrobotTask:
        u = jax.random.uniform(key, (5,))
        return AcrobotTask(
            length=real(u[0], ranges.length),
            upper=real(u[1], ranges.mass),
            lower=real(u[2], ranges.mass),
            torque=real(u[3], ranges.torque),
            limit=whole(u[4], ranges.limit),
        )

    def make(task: AcrobotTask) -> Environment:
        def reset(key: Key) -> tuple[AcrobotState, Array]:
            x = real(jax.random.uniform(key, (4,)), (-0.1, 0.1))
            return AcrobotState(x=x, clock=jnp.zeros((), jnp.int32)), seen(x)

        def step(key: Key, state: AcrobotState, action: Int[Array, ""]) -> tuple[AcrobotState, TimeStep]:
            del key
            torque = task.torque * (action - 1).astype(jnp.float32)
            x = bounded(runge_kutta(task, state.x, torque))
            up = -task.length * jnp.cos(x[0]) - jnp.cos(x[0] + x[1]) > task.length
            after = AcrobotState(x=x, clock=state.clock + 1)
            return after, TimeStep(
                obs=seen(x),
                reward=jnp.where(up, jnp.float32(0), jnp.float32(-1)),
                terminated=up,
                truncated=(after.clock >= task.limit) & ~up,
            )

        def render(state: AcrobotState) -> str:
            a, b, length = float(state.x[0]), float(state.x[0] + state.x[1]), float(task.length)
            joint = (length * math.cos(a), length * math.sin(a))
            tip = (joint[0] + math.cos(b), joint[1] + math.sin(b))
            marks = {(round(4 + 2 * y), round(8 + 4 * x)): mark for (y, x), mark in ((tip, "o"), (joint, "*"))}
            marks[(4, 8)] = "+"
            return "\n".join("".join(marks.get((i, j), ".") for j in range(-1, 18)) for i in range(-1, 10))

        return Environment(spec=spec, reset=reset, step=step, render=render)

    return Family(name=name, spec=spec, draw=draw, make=make)


def seen(x: Float[Array, "4"]) -> Float[Array, "6"]:
    angles, spins = x[:2], x[2:] / jnp.asarray(SPINS, jnp.float32)
    return jnp.concatenate([jnp.stack([jnp.cos(angles), jnp.sin(angles)], axis=-1).reshape(-1), spins])


def bounded(x: Float[Array, "4"]) -> Float[Array, "4"]:
    angles = jnp.mod(x[:2] + math.pi, 2 * math.pi) - math.pi
    fastest = jnp.asarray(SPINS, jnp.float32)
    return jnp.concatenate([angles, jnp.clip(x[2:], -fastest, fastest)])


def runge_kutta(task: AcrobotTask, x: Float[Array, "4"], torque: Float[Array, ""]) -> Float[Array, "4"]:
    """One step of the classical method of fourth order."""
    a = slope(task, x, torque)
    b = slope(task, x + DT / 2 * a, torque)
    c = slope(task, x + DT / 2 * b, torque)
    d = slope(task, x + DT * c, torque)
    return x + DT / 6 * (a + 2 * b + 2 * c + d)


def slope(task: AcrobotTask, x: Float[Array, "4"], torque: Float[Array, ""]) -> Float[Array, "4"]:
    """How fast angles and speeds change. Centres of mass lie in the middle of the links, moments of inertia are 1."""
    angle, bend, spin, bend_spin = x
    gravity, centre = 9.8, 0.5
    middle = task.length / 2
    swing = task.lower * task.length * centre
    d1 = task.upper * middle**2 + task.lower * (task.length**2 + centre**2) + 2 * swing * jnp.cos(bend) + 2
    d2 = task.lower * centre**2 + swing * jnp.cos(bend) + 1
    low = task.lower * centre * gravity * jnp.sin(angle + bend)  # cos(· - π/2) = sin
    high = (task.upper * middle + task.lower * task.length) * gravity * jnp.sin(angle)
    drift = low + high - swing * jnp.sin(bend) * (bend_spin**2 + 2 * bend_spin * spin)
    bending = torque + d2 / d1 * drift - swing * spin**2 * jnp.sin(bend) - low
    bend_twist = bending / (task.lower * centre**2 + 1 - d2**2 / d1)
    twist = -(d2 * bend_twist + drift) / d1
    return jnp.stack([spin, bend_spin, twist, bend_twist])
