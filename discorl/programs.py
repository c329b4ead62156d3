"""How a run computes, as far as the trainer must know. Here the program of environments that compile."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from discorl import evaluation
from discorl.envs.base import Environment, strip_weak_types
from discorl.networks.base import AgentNetwork
from discorl.optim import Hypers
from discorl.rules.base import Eta
from discorl.training import TrainInfo, Training
from discorl.types import Key, Params

State = PyTree  # of all agents of a run
Stretch = Callable[[State], tuple[State, TrainInfo, np.ndarray]]  # the last: which agents are still finite
EVALUATION = 1  # folded into an agent's key, so that evaluating shares no randomness with training


class Scores(NamedTuple):
    greedy: np.ndarray  # [seeds, episodes] returns, taking the likeliest actions
    sampled: np.ndarray  # [seeds, episodes] the same, drawing actions
    cut: int  # episodes that did not end, see `evaluation.longest`


class Program(NamedTuple):
    """A run of one or more agents, in stretches of updates."""

    start: Callable[[], State]  # newborn agents
    like: Callable[[], State]  # the shapes of a state
    resume: Callable[[State], State]  # from what a checkpoint holds
    prepare: Callable[[State, int], Stretch]  # a stretch of so many updates, compiled
    params: Callable[[State], Params]  # [seeds, ...]
    evaluate: Callable[[Params, int], Scores]  # on so many episodes
    close: Callable[[], None]
    steps_per_rollout: int
    steps_before: int  # environment steps before the first update


def compiled(
    training: Training, env: Environment, network: AgentNetwork, eta: Eta, hypers: Hypers, keys: list[Key]
) -> Program:
    """Acting, replay and learning are one program; it has an axis of agents in front if there are several."""
    several = len(keys) > 1
    stacked = jnp.stack(keys)
    key = stacked if several else keys[0]

    def start() -> State:
        return strip_weak_types(jax.jit(training.init)(key, hypers))

    def prepare(state: State, updates: int) -> Stretch:
        def stretch(eta: Eta, hypers: Hypers, state: State) -> tuple[State, TrainInfo, jax.Array]:
            state, info = training.advance(eta, hypers, state, updates)
            return state, info, healthy(state.learner.params, several)

        program = jax.jit(stretch).lower(eta, hypers, state).compile()

        def run(state: State) -> tuple[State, TrainInfo, np.ndarray]:
            # The state is not donated: if the stretch goes wrong, it is what is kept.
            after, info, finite = program(eta, hypers, state)
            return after, *jax.device_get((info, finite))

        return run

    def params(state: State) -> Params:
        return state.learner.params if several else jax.tree.map(lambda x: x[None], state.learner.params)

    def evaluate(params: Params, episodes: int) -> Scores:
        return scores(*evaluation.run_agents(env, network, params, evaluation_keys(stacked), episodes=episodes))

    return Program(
        start=start,
        like=lambda: jax.eval_shape(training.init, key, hypers),
        resume=lambda state: state,
        prepare=prepare,
        params=params,
        evaluate=evaluate,
        close=lambda: None,
        steps_per_rollout=training.steps_per_rollout,
        steps_before=training.steps_before,
    )


def evaluation_keys(keys: Key) -> Key:
    """Of agents, from the keys they were trained with."""
    return jax.vmap(lambda key: jax.random.fold_in(key, EVALUATION))(keys)


def healthy(params: Params, several: bool) -> jax.Array:
    """Whether all numbers are finite; of several agents, one by one."""
    leaves = jax.tree.leaves(params)
    return jnp.stack([jnp.isfinite(x).all(axis=tuple(range(several, x.ndim))) for x in leaves]).all(axis=0)


def scores(greedy: Any, sampled: Any) -> Scores:
    """From `evaluation.Episodes` of all agents."""
    cut = int((~greedy.finished).sum() + (~sampled.finished).sum())
    return Scores(np.asarray(greedy.returns), np.asarray(sampled.returns), cut)
