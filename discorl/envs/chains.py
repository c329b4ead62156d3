"""Chains of states: a choice whose consequence comes late, a river to swim up, a sea to dive in, random tables."""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from discorl.envs.base import Environment, EnvSpec, TimeStep
from discorl.envs.families import Family, Range, Span, below, coarse, pick, real, whole
from discorl.types import Key

# A choice early, its consequence late ---------------------------------------------------------------------------------

SIGNALS = 3  # what the first observation may show; as many actions answer it
DISTRACTORS = 8  # bits that mean nothing


@dataclass(frozen=True)
class DelayedRanges:
    length: Span = (4, 16)
    wrong: Range = (-1.0, 0.0)  # reward of a wrong choice; the right one gives 1
    distraction: Range = (0.0, 0.2)  # size of the random rewards on the way


class DelayedTask(NamedTuple):
    answer: Int[Array, "signals"]  # the right first action for each signal
    length: Int[Array, ""]
    wrong: Float[Array, ""]
    distraction: Float[Array, ""]


class DelayedState(NamedTuple):
    signal: Int[Array, ""]
    chosen: Int[Array, ""]  # the first action; -1 before it
    noise: Int[Array, ""]  # bits
    clock: Int[Array, ""]


def delayed(name: str, ranges: DelayedRanges = DelayedRanges()) -> Family:
    """Only the first action counts, and it is paid for at the end. In between there are random rewards and bits.

    Signal and choice stay in sight, so nothing must be remembered: the difficulty is to whom to give the credit.
    """
    spec = EnvSpec(
        name=name,
        num_actions=SIGNALS,
        observation=jax.ShapeDtypeStruct((2 * SIGNALS + 1 + DISTRACTORS,), jnp.float32),
    )

    def draw(key: Key) -> DelayedTask:
        u = jax.random.uniform(key, (3 + SIGNALS,))
        return DelayedTask(
            answer=jnp.argsort(u[3:]).astype(jnp.int32),
            length=whole(u[0], ranges.length),
            wrong=real(u[1], ranges.wrong),
            distraction=real(u[2], ranges.distraction),
        )

    def make(task: DelayedTask) -> Environment:
        def observe(state: DelayedState) -> Float[Array, " N"]:
            each, bits = jnp.arange(SIGNALS), jnp.arange(DISTRACTORS)
            left = 1 - state.clock.astype(jnp.float32) / task.length.astype(jnp.float32)
            return jnp.concatenate(
                [
                    (each == state.signal).astype(jnp.float32),
                    (each == state.chosen).astype(jnp.float32),
                    left[None],
                    ((state.noise >> bits) & 1).astype(jnp.float32),
                ]
            )

        def reset(key: Key) -> tuple[DelayedState, Array]:
            u = coarse(key)
            state = DelayedState(
                signal=whole(u[0], (0, SIGNALS - 1)),
                chosen=jnp.full((), -1, jnp.int32),
                noise=whole(u[1], (0, 2**DISTRACTORS - 1)),
                clock=jnp.zeros((), jnp.int32),
            )
            return state, observe(state)

        def step(key: Key, state: DelayedState, action: Int[Array, ""]) -> tuple[DelayedState, TimeStep]:
            u = coarse(key)
            after = DelayedState(
                signal=state.signal,
                chosen=jnp.where(state.clock == 0, action, state.chosen),
                noise=whole(u[0], (0, 2**DISTRACTORS - 1)),
                clock=state.clock + 1,
            )
            over = after.clock == task.length
            right = after.chosen == pick(task.answer, state.signal)
            luck = jnp.where(u[1] < 0.5, -task.distraction, task.distraction)
            return after, TimeStep(
                obs=observe(after),
                reward=jnp.where(over, jnp.where(right, jnp.float32(1), task.wrong), luck),
                terminated=over,
                truncated=jnp.zeros((), bool),
            )

        def render(state: DelayedState) -> str:
            chosen = "none yet" if int(state.chosen) < 0 else str(int(state.chosen))
            return f"signal {int(state.signal)}, choice {chosen}, step {int(state.clock)} of {int(task.length)}"

        return Environment(spec=spec, reset=reset, step=step, render=render)

    return Family(name=name, spec=spec, draw=draw, make=make)


# Swimming up a river --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RiverRanges:
    states: Span = (4, 8)
    horizon: Span = (20, 40)
    success: Range = (0.6, 1.0)  # probability that a stroke upstream succeeds
    small: Range = (0.005, 0.1)  # reward at the mouth; the spring gives 1


class RiverTask(NamedTuple):
    states: Int[Array, ""]
    horizon: Int[Array, ""]
    success: Float[Array, ""]
    small: Float[Array, ""]
    upstream: Int[Array, ""]  # the action that swims upstream; the other drifts


class RiverState(NamedTuple):
    place: Int[Array, ""]
    clock: Int[Array, ""]


def river(name: str, ranges: RiverRanges = RiverRanges()) -> Family:
    """A small reward where one starts and a large one far upstream, where strokes may fail. Ends by the clock.

    After Strehl & Littman 2008, RiverSwim.
    """
    width = ranges.states[1]
    spec = EnvSpec(name=name, num_actions=2, observation=jax.ShapeDtypeStruct((width,), jnp.float32))

    def draw(key: Key) -> RiverTask:
        u = jax.random.uniform(key, (5,))
        return RiverTask(
            states=whole(u[0], ranges.states),
            horizon=whole(u[1], ranges.horizon),
            success=real(u[2], ranges.success),
            small=real(u[3], ranges.small),
            upstream=whole(u[4], (0, 1)),
        )

    def make(task: RiverTask) -> Environment:
        def observe(state: RiverState) -> Float[Array, " N"]:
            return (jnp.arange(width) == state.place).astype(jnp.float32)

        def reset(key: Key) -> tuple[RiverState, Array]:
            del key  # always at the mouth
            state = RiverState(place=jnp.zeros((), jnp.int32), clock=jnp.zeros((), jnp.int32))
            return state, observe(state)

        def step(key: Key, state: RiverState, action: Int[Array, ""]) -> tuple[RiverState, TimeStep]:
            up = action == task.upstream
            failed = jax.random.uniform(key) >= task.success
            move = jnp.where(up, jnp.where(failed, 0, 1), -1)
            after = RiverState(place=jnp.clip(state.place + move, 0, task.states - 1), clock=state.clock + 1)
            at_mouth, at_spring = ~up & (state.place == 0), up & (state.place == task.states - 1)
            reward = jnp.where(at_spring, jnp.float32(1), jnp.where(at_mouth, task.small, jnp.float32(0)))
            return after, TimeStep(
                obs=observe(after),
                reward=reward,
                terminated=jnp.zeros((), bool),
                truncated=after.clock >= task.horizon,
            )

        def render(state: RiverState) -> str:
            return "".join("A" if i == int(state.place) else "~" for i in range(int(task.states))) + "$"

        return Environment(spec=spec, reset=reset, step=step, render=render)

    return Family(name=name, spec=spec, draw=draw, make=make)


# Diving into a deep sea -----------------------------------------------------------------------------------------------


class SeaTask(NamedTuple):
    size: Int[Array, ""]
    cost: Float[Array, ""]  # of a whole dive to the right
    right: Bool[Array, "N N"]  # whether action 1 goes right in a cell; if not, action 0 does


class SeaState(NamedTuple):
    row: Int[Array, ""]
    column: Int[Array, ""]


def deep_sea(name: str, size: Span, cost: Range) -> Family:
    """Down one row per step, left or right; only going right every time, which costs, leads to the reward of 1.

    After Osband et al. 2020, behaviour suite (https://arxiv.org/abs/1908.03568). A random policy finds it once in
    2ˢⁱᶻᵉ dives.
    """
    most = size[1]
    spec = EnvSpec(name=name, num_actions=2, observation=jax.ShapeDtypeStruct((most, most), jnp.float32))

    def draw(key: Key) -> SeaTask:
        u = jax.random.uniform(key, (2 + most * most,))
        return SeaTask(size=whole(u[0], size), cost=real(u[1], cost), right=u[2:].reshape(most, most) < 0.5)

    def make(task: SeaTask) -> Environment:
        def here(state: SeaState) -> Bool[Array, "N N"]:
            return (jnp.arange(most) == state.row)[:, None] & (jnp.arange(most) == state.column)[None, :]

        def reset(key: Key) -> tuple[SeaState, Array]:
            del key
            state = SeaState(row=jnp.zeros((), jnp.int32), column=jnp.zeros((), jnp.int32))
            return state, here(state).astype(jnp.float32)

        def step(key: Key, state: SeaState, action: Int[Array, ""]) -> tuple[SeaState, TimeStep]:
            del key
            rightwards = (action == 1) == jnp.any(here(state) & task.right)
            last = task.size - 1
            over = state.row == last
            found = over & rightwards & (state.column == last)
            cost = jnp.where(rightwards, task.cost / task.size.astype(jnp.float32), jnp.float32(0))
            after = SeaState(
                row=jnp.minimum(state.row + 1, last),  # the last dive ends on the ground
                column=jnp.clip(state.column + jnp.where(rightwards, 1, -1), 0, last),
            )
            return after, TimeStep(
                obs=here(after).astype(jnp.float32),
                reward=found.astype(jnp.float32) - cost,
                terminated=over,
                truncated=jnp.zeros((), bool),
            )

        def render(state: SeaState) -> str:
            size, place = int(task.size), (int(state.row), int(state.column))
            cells = [["A" if (i, j) == place else "." for j in range(size)] for i in range(size)]
            cells[-1][-1] = "A" if place == (size - 1, size - 1) else "$"
            return "\n".join("".join(line) for line in cells)

        return Environment(spec=spec, reset=reset, step=step, render=render)

    return Family(name=name, spec=spec, draw=draw, make=make)


# Random tables --------------------------------------------------------------------------------------------------------

BRANCHES = 2  # states that may follow a state and an action


@dataclass(frozen=True)
class TableRanges:
    states: Span = (4, 12)
    horizon: Span = (8, 24)
    certain: Range = (0.6, 1.0)  # probability of the likelier successor
    rewarding: Range = (0.1, 0.5)  # share of pairs of a state and an action that give a reward, from -1 to 1
    features: int = 16
    actions: int = 4


class TableTask(NamedTuple):
    follows: Int[Array, "pairs_branches"]
    reward: Float[Array, " pairs"]
    features: Float[Array, "states F"]
    states: Int[Array, ""]
    horizon: Int[Array, ""]
    certain: Float[Array, ""]


class TableState(NamedTuple):
    place: Int[Array, ""]
    clock: Int[Array, ""]


def tables(name: str, ranges: TableRanges = TableRanges()) -> Family:
    """A random decision process: random successors, random rewards, states seen as random vectors of -1 and 1."""
    most, A = ranges.states[1], ranges.actions
    pairs = most * A
    spec = EnvSpec(name=name, num_actions=A, observation=jax.ShapeDtypeStruct((ranges.features,), jnp.float32))

    def draw(key: Key) -> TableTask:
        sizes = (4, pairs * BRANCHES, pairs, pairs, most * ranges.features)
        ends = [sum(sizes[: i + 1]) for i in range(len(sizes) - 1)]
        u, follows, gives, reward, features = jnp.split(jax.random.uniform(key, (sum(sizes),)), ends)
        states = whole(u[0], ranges.states)
        return TableTask(
            follows=jnp.floor(follows * states.astype(jnp.float32)).astype(jnp.int32),
            reward=jnp.where(gives < real(u[1], ranges.rewarding), 2 * reward - 1, jnp.float32(0)),
            features=jnp.where(features < 0.5, jnp.float32(-1), jnp.float32(1)).reshape(most, ranges.features),
            states=states,
            horizon=whole(u[2], ranges.horizon),
            certain=real(u[3], ranges.certain),
        )

    def make(task: TableTask) -> Environment:
        def observe(state: TableState) -> Float[Array, " F"]:
            here = (jnp.arange(most) == state.place)[:, None]
            return jnp.sum(jnp.where(here, task.features, jnp.float32(0)), axis=0)

        def reset(key: Key) -> tuple[TableState, Array]:
            state = TableState(place=below(jax.random.uniform(key), task.states), clock=jnp.zeros((), jnp.int32))
            return state, observe(state)

        def step(key: Key, state: TableState, action: Int[Array, ""]) -> tuple[TableState, TimeStep]:
            pair = state.place * A + action
            branch = (jax.random.uniform(key) >= task.certain).astype(jnp.int32)
            after = TableState(place=pick(task.follows, BRANCHES * pair + branch), clock=state.clock + 1)
            return after, TimeStep(
                obs=observe(after),
                reward=pick(task.reward, pair),
                terminated=jnp.zeros((), bool),
                truncated=after.clock >= task.horizon,
            )

        def render(state: TableState) -> str:
            return f"state {int(state.place)} of {int(task.states)}, step {int(state.clock)} of {int(task.horizon)}"

        return Environment(spec=spec, reset=reset, step=step, render=render)

    return Family(name=name, spec=spec, draw=draw, make=make)
