"""The T-maze: a sign at the entrance says which way to turn at the far end, where it can no longer be seen.

After Bakker, "Reinforcement Learning with Long Short-Term Memory" (2001). Without a memory one can only guess and is
right half of the time.
"""

import re
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from discorl.envs.base import Environment, EnvSpec, TimeStep
from discorl.errors import DiscorlError
from discorl.types import Key

LENGTH = 10
PATIENCE = 4  # an episode is cut after so many times the length of the corridor


class TMazeState(NamedTuple):
    sign: Float[Array, ""]  # -1: the reward is on the left, 1: on the right
    place: Int[Array, ""]  # 0 is the entrance, `length` the junction
    clock: Int[Array, ""]


def t_maze(length: int = LENGTH) -> Environment:
    """A corridor of `length` steps to a junction. The right turn there pays 1, the wrong one nothing, and both end it.

    Observed are the sign, at the entrance only, and whether this is the junction. Turns in the corridor and steps
    beyond its end lead nowhere.
    """
    if length < 1:
        raise DiscorlError(f"a corridor has at least 1 step, got {length}")

    def observe(state: TMazeState) -> Float[Array, "2"]:
        sign = jnp.where(state.place == 0, state.sign, jnp.float32(0))
        return jnp.stack([sign, (state.place == length).astype(jnp.float32)])

    def reset(key: Key) -> tuple[TMazeState, Float[Array, "2"]]:
        sign = jnp.where(jax.random.bernoulli(key), jnp.float32(1), jnp.float32(-1))
        state = TMazeState(sign=sign, place=jnp.zeros((), jnp.int32), clock=jnp.zeros((), jnp.int32))
        return state, observe(state)

    def step(key: Key, state: TMazeState, action: Int[Array, ""]) -> tuple[TMazeState, TimeStep]:
        del key  # chance only chooses the sign
        turn = action.astype(jnp.float32) - 1  # left -1, ahead 0, right 1
        turned = (state.place == length) & (turn != 0)
        place = jnp.where(turn == 0, jnp.minimum(state.place + 1, length), state.place)
        after = TMazeState(sign=state.sign, place=place, clock=state.clock + 1)
        return after, TimeStep(
            obs=observe(after),
            reward=(turned & (turn == state.sign)).astype(jnp.float32),
            terminated=turned,
            truncated=(after.clock >= PATIENCE * length) & ~turned,
        )

    def render(state: TMazeState) -> str:
        """`@` is the agent, `$` the reward."""
        ends = ["$", " "] if state.sign < 0 else [" ", "$"]
        corridor = ["."] * (length + 1)
        corridor[int(state.place)] = "@"
        blank = " " * length
        return f"{blank}{ends[0]}\n{''.join(corridor)}\n{blank}{ends[1]}"

    spec = EnvSpec(
        name="t-maze" if length == LENGTH else f"t-maze:{length}",
        num_actions=3,
        observation=jax.ShapeDtypeStruct((2,), jnp.float32),
        action_names=("left", "ahead", "right"),
        time_limit=PATIENCE * length,
    )
    return Environment(spec=spec, reset=reset, step=step, render=render)


def t_maze_of_length(length: str) -> Environment:
    if re.fullmatch("[0-9]+", length) is None:
        raise DiscorlError(f"'t-maze:{length}' gives no length; write t-maze:STEPS, for example t-maze:20")
    return t_maze(int(length))
