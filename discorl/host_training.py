"""Act -> replay -> learn with environments that Python steps.

Environments live in groups, each with a thread: while one group waits for actions, the other is stepped. Learning
runs beside them: rollout n is made by the policy of `lag` updates before the newest it could have, and by exactly that
one, whoever is faster. So threads change no number: the same seed gives the same training, with `lag` 0 too, where
learning and acting take turns.
"""

from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from discorl import evaluation, programs
from discorl.envs.host import HostEnvironment
from discorl.errors import DiscorlError
from discorl.host_acting import Collector, Ends, example_rollout, make_policy
from discorl.learner import Learner, LearnerInfo, LearnerState, make_learner
from discorl.networks.base import AgentNetwork, check_network
from discorl.optim import Hypers
from discorl.programs import Program, Scores, Stretch
from discorl.replay import HostReplay, ReplayState, host_shapes
from discorl.rules.base import Eta, UpdateRule
from discorl.training import TrainConfig, TrainInfo, check_burn_in
from discorl.types import Key, Params, Rollout


class HostState(NamedTuple):
    """All of one agent that can be saved: environments cannot, a resumed run begins new episodes."""

    learner: LearnerState
    replay: ReplayState  # NumPy, written to in place
    updates: Int[Array, ""]


@dataclass(frozen=True)
class _Parts:
    """What all agents of a run share."""

    env: HostEnvironment
    network: AgentNetwork
    learner: Learner
    config: TrainConfig
    lag: int
    group_count: int
    eta: Eta
    hypers: Hypers
    update: Any  # compiled learner.step
    watch: Any  # compiled learner.watch
    policy: Any

    def example(self, size: int) -> Rollout:
        return example_rollout(self.network, self.env.spec, self.config.rollout, self.config.cuts, size)

    def newborn(self, key: Key) -> LearnerState:
        obs = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), self.env.spec.observation)
        return self.learner.init(key, obs)

    def groups(self) -> list[int]:
        """Sizes; a vector that somebody gave is one group."""
        count = 1 if self.env.size else min(self.group_count or default_groups(), self.config.envs)
        return [len(part) for part in np.array_split(np.arange(self.config.envs), count)]


def default_groups() -> int:
    """Where policy and environments share the cores, groups only make twice as many calls, each half as large."""
    return 1 if jax.default_backend() == "cpu" else 2


def make_host_program(
    env: HostEnvironment, network: AgentNetwork, rule: UpdateRule, config: TrainConfig, **run: Any
) -> Program:
    """`run`: eta, hypers, lag, group_count, and the seeds of the agents, which take turns."""
    seeds: Sequence[int] = run.pop("seeds")
    check_network(network, env.spec, rule.needs)
    if env.size and len(seeds) > 1:
        raise DiscorlError("a vector environment that is made already trains one agent at a time; leave out seeds")
    check_burn_in(network, config)
    learner = make_learner(network, rule, config.mask, config.burn_in)
    watch = learner.watch if network.statistics is None else jax.jit(learner.watch)
    parts = _Parts(
        env, network, learner, config, update=jax.jit(learner.step), watch=watch, policy=make_policy(network), **run
    )  # nothing is donated: acting still uses old parameters, and if a stretch goes wrong, the old state is kept
    pipelines: list[_Pipeline] = []

    def opened() -> list["_Pipeline"]:
        pipelines[:] = pipelines or [_Pipeline(parts, seed) for seed in seeds]
        return pipelines

    def prepare(state: tuple[HostState, ...], updates: int) -> Stretch:
        example = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), parts.example(config.batch))
        jax.block_until_ready(parts.update(parts.eta, parts.hypers, state[0].learner, example))

        def run(state: tuple[HostState, ...]) -> tuple[tuple[HostState, ...], TrainInfo, np.ndarray]:
            done = [pipeline.advance(own, updates) for pipeline, own in zip(pipelines, state, strict=True)]
            after = tuple(own for own, _ in done)
            finite = np.array([programs.healthy(own.learner.params, several=False) for own in after])
            return after, jax.tree.map(lambda *x: np.stack(x), *(info for _, info in done)), finite

        return run

    def like() -> tuple[HostState, ...]:
        ring = host_shapes(parts.example(1), config.replay_size, env.spec.stack)
        agent = jax.eval_shape(parts.newborn, jax.random.key(0))
        zero: Any = jax.ShapeDtypeStruct((), np.int32)
        return (HostState(learner=agent, replay=ring, updates=zero),) * len(seeds)

    def evaluate(params: Params, episodes: int) -> Scores:
        close()  # of a vector that somebody gave there is only one
        keys = programs.evaluation_keys(jnp.stack([jax.random.key(seed) for seed in seeds]))
        return programs.scores(*evaluation.run_agents(env, network, params, keys, episodes=episodes))

    def close() -> None:
        for pipeline in pipelines:
            pipeline.close()
        pipelines.clear()

    return Program(
        start=lambda: tuple(pipeline.start() for pipeline in opened()),
        like=like,
        resume=lambda state: tuple(p.resume(own) for p, own in zip(opened(), state, strict=True)),
        prepare=prepare,
        params=lambda state: jax.tree.map(lambda *x: jnp.stack(x), *(own.learner.params for own in state)),
        evaluate=evaluate,
        close=close,
        steps_per_rollout=config.steps_per_rollout,
        steps_before=config.steps_per_rollout * (config.prefill - 1),
    )


class _Pipeline:
    """One agent's environments, their threads, and its replay."""

    def __init__(self, parts: _Parts, seed: int) -> None:
        self._parts, self._seed = parts, seed
        self._replay = HostReplay(parts.example(1), parts.config.replay_size, parts.env.spec.stack)
        self._groups: list[tuple[ThreadPoolExecutor, Collector]] = []
        for size in parts.groups():
            collector = Collector(parts.network, parts.policy, parts.env.open(size), parts.example(size))
            self._groups.append((ThreadPoolExecutor(1, f"discorl-group-{len(self._groups)}"), collector))
        self._pending: deque[list[Future[tuple[Rollout, Ends]]]] = deque()

    def start(self) -> HostState:
        """A newborn agent whose replay is filled to one batch by its untrained policy, but for one rollout."""
        key = jax.random.key(self._seed)
        learner = jax.jit(self._parts.newborn)(key)
        self._begin(updates=0)
        for _ in range(self._parts.config.prefill - 1):
            self._ask(learner.params)
            learner, _ = self._receive(learner)
        zero: Any = np.zeros((), np.int32)
        return HostState(learner=learner, replay=self._replay.state, updates=zero)

    def resume(self, state: HostState) -> HostState:
        self._replay.restore(state.replay)
        self._begin(int(state.updates))
        return state._replace(replay=self._replay.state)

    def advance(self, state: HostState, updates: int) -> tuple[HostState, TrainInfo]:
        parts, config = self._parts, self._parts.config
        ends: list[Ends] = []
        infos: list[LearnerInfo] = []
        for number in range(updates):
            learner, more = state.learner, Ends()
            if int(state.updates) % config.updates_per_rollout == 0:
                while len(self._pending) <= parts.lag:
                    self._ask(learner.params)
                learner, more = self._receive(learner)
            ends.append(more)
            rng = np.random.default_rng((self._seed, int(state.updates)))
            batch = self._replay.sample(rng, config.batch, config.fresh_count)
            # returns before it is done: the next rollout is received and sampled meanwhile
            report = np.bool_(number == updates - 1)
            learner, info = parts.update(parts.eta, parts.hypers, learner, batch, report)
            state = state._replace(learner=learner, updates=np.int32(state.updates + 1))
            infos.append(info)
        sums: Any = np.array(ends, np.float32).T  # in the order of TrainInfo
        stacked = jax.tree.map(lambda *x: np.stack(x), *jax.device_get(infos))
        return state, TrainInfo(*sums, learner=stacked)

    def close(self) -> None:
        for pool, collector in self._groups:
            collector.stop()
            pool.shutdown(wait=True, cancel_futures=True)
            collector.close()

    def _begin(self, updates: int) -> None:
        for number, (_, collector) in enumerate(self._groups):
            collector.begin(int(np.random.SeedSequence((self._seed, number, updates)).generate_state(1)[0]))

    def _ask(self, params: Params) -> None:
        """For one rollout of every group."""
        self._pending.append([pool.submit(collector.collect, params) for pool, collector in self._groups])

    def _receive(self, learner: LearnerState) -> tuple[LearnerState, Ends]:
        """The oldest rollout that was asked for, into the replay and the agent's statistics."""
        ends = Ends()
        for future in self._pending.popleft():
            rollout, more = future.result()
            self._replay.add(rollout)
            learner = self._parts.watch(learner, jax.tree.map(lambda x: x[:-1], rollout.obs))
            ends = Ends(*(a + b for a, b in zip(ends, more, strict=True)))
        return learner, ends
