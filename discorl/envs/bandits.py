"""Contextual bandits: a row of questions, each answered once; what follows does not depend on the answer."""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from discorl.envs.base import Environment, EnvSpec, TimeStep
from discorl.envs.families import Family, Range, Span, real, whole
from discorl.types import Key


@dataclass(frozen=True)
class BanditRanges:
    questions: Span = (4, 20)  # per episode
    noise: Range = (0.0, 0.5)  # added to the reward, uniform from -noise to noise
    features: int = 6
    actions: int = 4


class BanditTask(NamedTuple):
    weights: Float[Array, "A F"]
    questions: Int[Array, ""]
    noise: Float[Array, ""]


class BanditState(NamedTuple):
    context: Float[Array, " F"]
    clock: Int[Array, ""]


def contextual(name: str, ranges: BanditRanges = BanditRanges()) -> Family:
    """The reward of an action is linear in what is seen: wₐ · x, with weights drawn per lifetime, and noise.

    wₐ and x have entries from -1 to 1. Several questions make an episode, because rules may skip first steps.
    """
    A, F = ranges.actions, ranges.features
    spec = EnvSpec(name=name, num_actions=A, observation=jax.ShapeDtypeStruct((F,), jnp.float32))

    def draw(key: Key) -> BanditTask:
        u = jax.random.uniform(key, (A * F + 2,))
        return BanditTask(
            weights=real(u[2:], (-1.0, 1.0)).reshape(A, F),
            questions=whole(u[0], ranges.questions),
            noise=real(u[1], ranges.noise),
        )

    def make(task: BanditTask) -> Environment:
        def reset(key: Key) -> tuple[BanditState, Array]:
            context = real(jax.random.uniform(key, (F,)), (-1.0, 1.0))
            return BanditState(context=context, clock=jnp.zeros((), jnp.int32)), context

        def step(key: Key, state: BanditState, action: Int[Array, ""]) -> tuple[BanditState, TimeStep]:
            u = real(jax.random.uniform(key, (F + 1,)), (-1.0, 1.0))
            chosen = jnp.where((jnp.arange(A) == action)[:, None], task.weights, jnp.float32(0))
            reward = jnp.sum(chosen * state.context[None, :]) + task.noise * u[F]
            after = BanditState(context=u[:F], clock=state.clock + 1)
            return after, TimeStep(
                obs=after.context,
                reward=reward,
                terminated=after.clock == task.questions,
                truncated=jnp.zeros((), bool),
            )

        def render(state: BanditState) -> str:
            seen = " ".join(f"{float(x):+.2f}" for x in state.context)
            worth = " ".join(f"{float(jnp.dot(w, state.context)):+.2f}" for w in task.weights)
            return f"question {int(state.clock) + 1} of {int(task.questions)}\nseen    {seen}\nanswers {worth}"

        return Environment(spec=spec, reset=reset, step=step, render=render)

    return Family(name=name, spec=spec, draw=draw, make=make)
