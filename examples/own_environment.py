# ci: --updates 60
"""An environment of one's own: a few pure functions, checked, then trained on.

python examples/own_environment.py
"""

import argparse
from typing import NamedTuple

import jax
import jax.numpy as jnp

import discorl
from discorl.envs import Environment, EnvSpec, TimeStep, check

SIZE = 7


class Walk(NamedTuple):
    position: jax.Array
    steps: jax.Array


def corridor() -> Environment:
    """Start in the middle; the right end pays 1, the left end nothing; a clock ends it after 20 steps."""

    def observe(state: Walk) -> jax.Array:
        return jax.nn.one_hot(state.position, SIZE, dtype=jnp.float32)

    def reset(key: jax.Array) -> tuple[Walk, jax.Array]:
        state = Walk(position=jnp.int32(SIZE // 2), steps=jnp.int32(0))
        return state, observe(state)

    def step(key: jax.Array, state: Walk, action: jax.Array) -> tuple[Walk, TimeStep]:
        state = Walk(position=state.position + 2 * action - 1, steps=state.steps + 1)
        ended = (state.position == 0) | (state.position == SIZE - 1)
        reward = jnp.where(state.position == SIZE - 1, 1.0, 0.0).astype(jnp.float32)
        return state, TimeStep(obs=observe(state), reward=reward, terminated=ended, truncated=state.steps >= 20)

    def render(state: Walk) -> str:
        return "".join("*" if i == int(state.position) else "." for i in range(SIZE))

    spec = EnvSpec("corridor", num_actions=2, observation=jax.ShapeDtypeStruct((SIZE,), jnp.float32))
    return Environment(spec=spec, reset=reset, step=step, render=render)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rule", default="policy_gradient")
    parser.add_argument("--updates", type=int, default=200)
    args = parser.parse_args()
    env = corridor()
    check(env)  # says in one sentence what is wrong with an environment
    result = discorl.train(env, args.rule, updates=args.updates, hidden=(32, 32), envs=8, batch=16, rollout=16)
    print(f"average return {result.greedy.mean():.2f}; 1 is the best there is")


if __name__ == "__main__":
    main()
