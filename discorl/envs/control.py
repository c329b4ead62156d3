"""Small control tasks with constants of their own in every lifetime: cart-pole, reaching, mountain car, pendulum.

With the standard constants the equations are those of Gymnasium's CartPole-v1, MountainCar-v0 and Pendulum-v1
(https://gymnasium.farama.org/environments/classic_control/).
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from discorl.envs.base import Environment, EnvSpec, TimeStep
from discorl.envs.families import Family, Range, Span, drawn, real, whole
from discorl.types import Key

# Cart-pole ------------------------------------------------------------------------------------------------------------

TRACK, LEAN, CART_DT = 2.4, 12 * math.pi / 180, 0.02


@dataclass(frozen=True)
class CartPoleRanges:
    gravity: Range = (6.0, 15.0)
    cart: Range = (0.5, 2.0)
    pole: Range = (0.05, 0.3)
    half_length: Range = (0.3, 0.8)
    force: Range = (7.0, 15.0)
    limit: Span = (100, 300)


class CartPoleTask(NamedTuple):
    gravity: Float[Array, ""]
    cart: Float[Array, ""]  # mass
    pole: Float[Array, ""]  # mass
    half_length: Float[Array, ""]
    force: Float[Array, ""]
    limit: Int[Array, ""]


class ControlState(NamedTuple):
    x: Float[Array, " n"]  # positions and velocities
    clock: Int[Array, ""]


def standard_cart_pole() -> CartPoleTask:
    return CartPoleTask(*map(jnp.float32, (9.8, 1.0, 0.1, 0.5, 10.0)), limit=jnp.int32(500))


def cart_pole(name: str, ranges: CartPoleRanges = CartPoleRanges()) -> Family:
    """Reward 1 per step until the pole leans more than 12° or the cart leaves the track."""
    spec = _spec(name, 4, ("left", "right"))

    def draw(key: Key) -> CartPoleTask:
        return drawn(CartPoleTask, ranges, key)

    def make(task: CartPoleTask) -> Environment:
        def reset(key: Key) -> tuple[ControlState, Array]:
            return _started(real(jax.random.uniform(key, (4,)), (-0.05, 0.05)))

        def step(key: Key, state: ControlState, action: Int[Array, ""]) -> tuple[ControlState, TimeStep]:
            del key
            _, speed, angle, spin = state.x
            force = jnp.where(action == 1, task.force, -task.force)
            mass, sin, cos = task.cart + task.pole, jnp.sin(angle), jnp.cos(angle)
            push = (force + task.pole * task.half_length * spin**2 * sin) / mass
            inertia = task.half_length * (4 / 3 - task.pole * cos**2 / mass)
            twist = (task.gravity * sin - cos * push) / inertia
            thrust = push - task.pole * task.half_length * twist * cos / mass
            x = state.x + CART_DT * jnp.stack([speed, thrust, spin, twist])
            fallen = (jnp.abs(x[0]) > TRACK) | (jnp.abs(x[2]) > LEAN)
            return _stepped(x, x, state.clock, jnp.float32(1), fallen, task.limit)

        def render(state: ControlState) -> str:
            """The pole's tip over the cart, leaning exaggerated."""
            place = round((float(state.x[0]) / TRACK + 1) * 12)
            tip = place + round(float(state.x[2]) / LEAN * 4)
            line = [
                ("|" if abs(tip - place) < 1 else "/" if tip > place else "\\") if i == tip else " " for i in range(25)
            ]
            cart = "".join("=" if abs(i - place) < 2 else "_" for i in range(25))
            return "".join(line) + "\n" + cart

        return Environment(spec=spec, reset=reset, step=step, render=render)

    return Family(name=name, spec=spec, draw=draw, make=make)


# Reaching -------------------------------------------------------------------------------------------------------------

REACH_DT = 0.2


@dataclass(frozen=True)
class ReachRanges:
    thrust: Range = (0.4, 1.2)
    drag: Range = (0.2, 1.5)
    radius: Range = (0.2, 0.4)
    wind: Range = (-0.15, 0.15)  # a constant push along each axis
    limit: Span = (30, 60)


class ReachTask(NamedTuple):
    thrust: Float[Array, ""]
    drag: Float[Array, ""]
    radius: Float[Array, ""]
    wind: Float[Array, "2"]
    limit: Int[Array, ""]


def reach(name: str, ranges: ReachRanges = ReachRanges()) -> Family:
    """A point with momentum must come close to a place, drawn per episode. Costs its distance until then, then +1."""
    spec = _spec(name, 6, ("coast", "left", "right", "down", "up"))

    def draw(key: Key) -> ReachTask:
        u = jax.random.uniform(key, (6,))
        return ReachTask(
            thrust=real(u[0], ranges.thrust),
            drag=real(u[1], ranges.drag),
            radius=real(u[2], ranges.radius),
            wind=real(u[3:5], ranges.wind),
            limit=whole(u[5], ranges.limit),
        )

    def make(task: ReachTask) -> Environment:
        def reset(key: Key) -> tuple[ControlState, Array]:
            places = real(jax.random.uniform(key, (4,)), (-1.0, 1.0))
            return _started(jnp.concatenate([places[:2], jnp.zeros(2, jnp.float32), places[2:]]))

        def step(key: Key, state: ControlState, action: Int[Array, ""]) -> tuple[ControlState, TimeStep]:
            del key
            place, speed, target = state.x[:2], state.x[2:4], state.x[4:]
            pushes = jnp.stack([action == 1, action == 2, action == 3, action == 4]).astype(jnp.float32)
            push = task.thrust * (pushes[1::2] - pushes[::2]) + task.wind
            speed = speed + REACH_DT * (push - task.drag * speed)
            place = jnp.clip(place + REACH_DT * speed, -1.5, 1.5)
            distance = jnp.sqrt(jnp.sum((place - target) ** 2))
            near = distance < task.radius
            x = jnp.concatenate([place, speed, target])
            reward = jnp.where(near, jnp.float32(1), -0.1 * distance)
            return _stepped(x, x, state.clock, reward, near, task.limit)

        def render(state: ControlState) -> str:
            def cell(x: Array) -> tuple[int, int]:
                return round((1.5 - float(x[1])) * 4), round((float(x[0]) + 1.5) * 4)

            marks = {cell(state.x[4:]): "o", cell(state.x[:2]): "A"}
            return "\n".join("".join(marks.get((i, j), ".") for j in range(13)) for i in range(13))

        return Environment(spec=spec, reset=reset, step=step, render=render)

    return Family(name=name, spec=spec, draw=draw, make=make)


# Mountain car ---------------------------------------------------------------------------------------------------------

LEFT_END, START_END, SUMMIT, RIGHT_END, TOP_SPEED = -1.2, 0.4, 0.5, 0.6, 0.07


@dataclass(frozen=True)
class MountainCarRanges:
    force: Range = (0.0013, 0.0022)
    gravity: Range = (0.002, 0.003)
    spread: Range = (0.2, 0.9)  # an episode starts at most so far from the bottom of the valley
    speed: Range = (0.04, 0.07)  # and at most so fast: some starts lead to the summit whatever one does
    limit: Span = (200, 300)


class MountainCarTask(NamedTuple):
    force: Float[Array, ""]
    gravity: Float[Array, ""]
    spread: Float[Array, ""]
    speed: Float[Array, ""]
    limit: Int[Array, ""]


def standard_mountain_car() -> MountainCarTask:
    return MountainCarTask(*map(jnp.float32, (0.001, 0.0025, 0.1, 0.0)), limit=jnp.int32(200))


def mountain_car(name: str, ranges: MountainCarRanges = MountainCarRanges()) -> Family:
    """Reward -1 per step until the summit, which is out of reach without swinging first."""
    spec = _spec(name, 2, ("left", "coast", "right"))

    def draw(key: Key) -> MountainCarTask:
        return drawn(MountainCarTask, ranges, key)

    def make(task: MountainCarTask) -> Environment:
        scale = (1.0, TOP_SPEED)

        def reset(key: Key) -> tuple[ControlState, Array]:
            u = real(jax.random.uniform(key, (2,)), (-1.0, 1.0))
            place = jnp.clip(-0.5 + task.spread * u[0], LEFT_END, START_END)
            return _started(jnp.stack([place, task.speed * u[1]]), scale)

        def step(key: Key, state: ControlState, action: Int[Array, ""]) -> tuple[ControlState, TimeStep]:
            del key
            place, speed = state.x
            speed = speed + (action - 1).astype(jnp.float32) * task.force - jnp.cos(3 * place) * task.gravity
            speed = jnp.clip(speed, -TOP_SPEED, TOP_SPEED)
            place = jnp.clip(place + speed, LEFT_END, RIGHT_END)
            speed = jnp.where((place == LEFT_END) & (speed < 0), jnp.float32(0), speed)
            arrived = (place >= SUMMIT) & (speed >= 0)
            x = jnp.stack([place, speed])
            return _stepped(x, x / jnp.asarray(scale, jnp.float32), state.clock, jnp.float32(-1), arrived, task.limit)

        def render(state: ControlState) -> str:
            width = 31
            car = round((float(state.x[0]) - LEFT_END) / (RIGHT_END - LEFT_END) * (width - 1))
            heights = [round(2 * (1 + math.sin(3 * (LEFT_END + 1.8 * i / (width - 1))))) for i in range(width)]
            rows = [["#" if h > row else " " for h in heights] for row in range(5)]
            rows[min(heights[car], 4)][car] = "A"
            return "\n".join("".join(row) for row in reversed(rows))

        return Environment(spec=spec, reset=reset, step=step, render=render)

    return Family(name=name, spec=spec, draw=draw, make=make)


# Pendulum -------------------------------------------------------------------------------------------------------------

SWING_DT, TOP_SPIN, TORQUES = 0.05, 8.0, 5
WORST = math.pi**2 + 0.1 * TOP_SPIN**2  # cost of hanging and spinning as fast as possible, without the torque


@dataclass(frozen=True)
class PendulumRanges:
    gravity: Range = (7.0, 12.0)
    mass: Range = (0.7, 1.2)
    length: Range = (0.8, 1.2)
    torque: Range = (2.5, 5.0)
    limit: Span = (100, 200)


class PendulumTask(NamedTuple):
    gravity: Float[Array, ""]
    mass: Float[Array, ""]
    length: Float[Array, ""]
    torque: Float[Array, ""]
    limit: Int[Array, ""]


def standard_pendulum() -> PendulumTask:
    return PendulumTask(*map(jnp.float32, (10.0, 1.0, 1.0, 2.0)), limit=jnp.int32(200))


def pendulum(name: str, ranges: PendulumRanges = PendulumRanges()) -> Family:
    """Swing up and stay up, with five torques. Costs angle² + 0.1 spin² + 0.001 torque², scaled to at most about 1."""
    spec = _spec(name, 3, ("--", "-", "0", "+", "++"))

    def draw(key: Key) -> PendulumTask:
        return drawn(PendulumTask, ranges, key)

    def make(task: PendulumTask) -> Environment:
        def seen(x: Float[Array, "2"]) -> Float[Array, "3"]:
            return jnp.stack([jnp.cos(x[0]), jnp.sin(x[0]), x[1] / TOP_SPIN])

        def reset(key: Key) -> tuple[ControlState, Array]:
            u = real(jax.random.uniform(key, (2,)), (-1.0, 1.0))
            x = u * jnp.asarray([math.pi, 1.0], jnp.float32)
            return ControlState(x=x, clock=jnp.zeros((), jnp.int32)), seen(x)

        def step(key: Key, state: ControlState, action: Int[Array, ""]) -> tuple[ControlState, TimeStep]:
            del key
            angle, spin = state.x  # the angle is 0 upright
            torque = task.torque * (action.astype(jnp.float32) / (TORQUES // 2) - 1)
            cost = wrapped(angle) ** 2 + 0.1 * spin**2 + 0.001 * torque**2
            pull = 3 * task.gravity / (2 * task.length) * jnp.sin(angle)
            spin = spin + SWING_DT * (pull + 3 * torque / (task.mass * task.length**2))
            spin = jnp.clip(spin, -TOP_SPIN, TOP_SPIN)
            x = jnp.stack([wrapped(angle + SWING_DT * spin), spin])
            return _stepped(x, seen(x), state.clock, -cost / WORST, jnp.zeros((), bool), task.limit)

        def render(state: ControlState) -> str:
            angle = float(state.x[0])
            tip = (round(3 - 3 * math.cos(angle)), round(6 + 6 * math.sin(angle)))
            marks = {(3, 6): "+", tip: "o"}
            return "\n".join("".join(marks.get((i, j), ".") for j in range(13)) for i in range(7))

        return Environment(spec=spec, reset=reset, step=step, render=render)

    return Family(name=name, spec=spec, draw=draw, make=make)


# Shared ---------------------------------------------------------------------------------------------------------------


def wrapped(angle: Float[Array, ""]) -> Float[Array, ""]:
    """The same angle from -π to π."""
    return jnp.mod(angle + math.pi, 2 * math.pi) - math.pi


def _spec(name: str, size: int, actions: tuple[str, ...]) -> EnvSpec:
    return EnvSpec(
        name=name,
        num_actions=len(actions),
        observation=jax.ShapeDtypeStruct((size,), jnp.float32),
        action_names=actions,
    )


def _started(x: Float[Array, " n"], scale: tuple[float, ...] | None = None) -> tuple[ControlState, Array]:
    seen = x if scale is None else x / jnp.asarray(scale, jnp.float32)
    return ControlState(x=x, clock=jnp.zeros((), jnp.int32)), seen


def _stepped(
    x: Float[Array, " n"],
    seen: Float[Array, " m"],
    clock: Int[Array, ""],
    reward: Float[Array, ""],
    terminated: Array,
    limit: Int[Array, ""],
) -> tuple[ControlState, TimeStep]:
    state = ControlState(x=x, clock=clock + 1)
    truncated = (state.clock >= limit) & ~terminated
    return state, TimeStep(obs=seen, reward=reward, terminated=terminated, truncated=truncated)
