"""Act -> replay -> learn. On a JAX environment a whole stretch of it is one compiled program, pure in its key."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, get_args

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from discorl import acting
from discorl.envs.base import Environment, EpisodeEnd, batch
from discorl.errors import DiscorlError, near_matches, require_positive
from discorl.learner import LearnerInfo, LearnerState, Mask, make_learner
from discorl.networks.base import AgentNetwork, check_network, is_recurrent
from discorl.optim import Hypers
from discorl.replay import ReplayState, make_replay
from discorl.rules.base import Eta, UpdateRule
from discorl.types import Key, Params, Rollout


@dataclass(frozen=True)
class TrainConfig:
    """Sizes of training; static, so each combination is a program of its own."""

    envs: int = 16  # environments side by side
    batch: int = 64  # trajectories per update
    rollout: int = 28  # transitions per trajectory
    replay_size: int = 1024  # trajectories kept
    replay_share: float = 1.0  # of a batch; the rest is the newest rollout
    mask: str = "reference"  # steps that count in the loss, see `learner.loss_mask`
    burn_in: int = 0  # steps of a trajectory that only warm up the memory of a recurrent agent
    updates_per_rollout: int = 1  # more than one learn from replay alone
    cuts: int = 0  # ends by a clock per trajectory that are gone on after, see `learner.go_on_after_clocks`

    def __post_init__(self) -> None:
        for name in ("envs", "batch", "rollout", "replay_size", "updates_per_rollout"):
            require_positive(name, getattr(self, name))
        if self.mask not in get_args(Mask):
            raise DiscorlError(f"unknown mask {self.mask!r}; {near_matches(self.mask, get_args(Mask))}")
        if not 0 <= self.replay_share <= 1:
            raise DiscorlError(f"replay_share must lie in [0, 1], got {self.replay_share}")
        if self.fresh_count > self.envs:
            raise DiscorlError(
                f"replay_share {self.replay_share} asks for {self.fresh_count} fresh trajectories per update, but "
                f"there are only {self.envs} environments: raise envs or replay_share"
            )
        if self.updates_per_rollout > 1 and self.fresh_count:
            raise DiscorlError(
                f"replay_share {self.replay_share} asks for {self.fresh_count} fresh trajectories per update, but with "
                f"{self.updates_per_rollout} updates per rollout most have none: set replay_share to 1"
            )
        if not 0 <= self.burn_in < self.rollout:
            raise DiscorlError(
                f"burn_in {self.burn_in} leaves nothing to learn from of rollouts of {self.rollout} steps"
                if self.burn_in > 0
                else f"burn_in must not be negative, got {self.burn_in}"
            )
        if self.replay_size < self.envs:
            raise DiscorlError(f"replay_size {self.replay_size} must hold one rollout of {self.envs} environments")

    @property
    def fresh_count(self) -> int:
        return self.batch - round(self.batch * self.replay_share)

    @property
    def steps_per_rollout(self) -> int:
        return self.envs * self.rollout

    @property
    def prefill(self) -> int:
        """Rollouts before the first update: learning starts once the replay holds a whole batch."""
        return -(-min(self.batch, self.replay_size) // self.envs)


class TrainState(NamedTuple):
    """All that a resume needs."""

    key: Key
    learner: LearnerState
    actor: acting.ActorState
    replay: ReplayState
    updates: Int[Array, ""]


class TrainInfo(NamedTuple):
    """One row per update; with seeds, `[seeds, updates]`."""

    episodes: Float[Array, "*U"]  # that ended in this update's rollout
    return_sum: Float[Array, "*U"]  # of their returns
    length_sum: Float[Array, "*U"]
    learner: LearnerInfo

    @property
    def loss(self) -> Array:
        return self.learner.total_loss


class Training(NamedTuple):
    """Pure functions; `jit` them with `updates` static. `advance` may be given a donated state."""

    init: Callable[[Key, Hypers], TrainState]
    gather: Callable[[Params, TrainState], tuple[TrainState, Rollout, EpisodeEnd]]  # everything of an update but it
    advance: Callable[[Eta, Hypers, TrainState, int], tuple[TrainState, TrainInfo]]
    steps_per_rollout: int
    steps_before: int  # environment steps that fill the replay before the first update


def check_burn_in(network: AgentNetwork, config: TrainConfig) -> None:
    if config.burn_in and not is_recurrent(network):
        raise DiscorlError("burn_in warms up a memory, but this agent has none: leave it out, or use lstm or gru")


def make_training(
    env: Environment, network: AgentNetwork, rule: UpdateRule, config: TrainConfig = TrainConfig()
) -> Training:
    check_network(network, env.spec, rule.needs)
    check_burn_in(network, config)
    envs = batch(env, config.envs, keep_final_obs=config.cuts > 0)
    learner = make_learner(network, rule, config.mask, config.burn_in)
    replay = make_replay(config.replay_size, config.batch, config.fresh_count)

    def collect(key: Key, params: Params, learning: LearnerState, actor: acting.ActorState) -> tuple:
        actor, rollout, ends = acting.unroll(network, envs, params, key, actor, config.rollout, config.cuts)
        # all but the last observation, which is the first of the next rollout
        return learner.watch(learning, jax.tree.map(lambda x: x[:-1], rollout.obs)), actor, rollout, ends

    def init(key: Key, hypers: Hypers) -> TrainState:
        """A newborn agent whose replay is filled to one batch by its untrained policy."""
        del hypers
        key, key_learner, key_env, key_fill = jax.random.split(key, 4)
        actor = acting.begin(network, envs, key_env)
        learning = learner.init(key_learner, jax.tree.map(lambda x: x[0], actor.obs))
        _, _, example, _ = jax.eval_shape(collect, key, learning.params, learning, actor)

        def fill(carry: tuple, key: Key) -> tuple:
            learning, actor, ring = carry
            learning, actor, rollout, _ = collect(key, learning.params, learning, actor)
            return (learning, actor, replay.add(ring, rollout)), None

        # one rollout fewer than a batch needs: the first update brings the last one
        keys = jax.random.split(key_fill, config.prefill - 1)
        (learning, actor, ring), _ = jax.lax.scan(fill, (learning, actor, replay.init(example)), keys)
        return TrainState(key=key, learner=learning, actor=actor, replay=ring, updates=jnp.zeros((), jnp.int32))

    def gather(params: Params, state: TrainState) -> tuple[TrainState, Rollout, EpisodeEnd]:
        """Acts with `params` and returns what the next update learns from; its learner is still the one of before."""
        key_act, key_sample = jax.random.split(jax.random.fold_in(state.key, state.updates))

        def bring(before: TrainState) -> tuple[TrainState, Rollout, EpisodeEnd]:
            learning, actor, fresh, ends = collect(key_act, params, before.learner, before.actor)
            return (
                before._replace(learner=learning, actor=actor, replay=replay.add(before.replay, fresh)),
                fresh,
                ends,
            )

        def nothing(before: TrainState) -> tuple[TrainState, Rollout, EpisodeEnd]:
            _, fresh, ends = jax.eval_shape(bring, before)
            return before, *jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), (fresh, ends))

        if config.updates_per_rollout == 1:
            gathered, fresh, ends = bring(state)
        else:
            due = state.updates % config.updates_per_rollout == 0
            gathered, fresh, ends = jax.lax.cond(due, bring, nothing, state)
        sampled = replay.sample(key_sample, gathered.replay, fresh)
        return gathered._replace(updates=state.updates + 1), sampled, ends

    def update(eta: Eta, hypers: Hypers, state: TrainState, report: Array) -> tuple[TrainState, TrainInfo]:
        state, sampled, ends = gather(state.learner.params, state)
        learning, info = learner.step(eta, hypers, state.learner, sampled, report)
        return state._replace(learner=learning), _info(ends, info)

    def advance(eta: Eta, hypers: Hypers, state: TrainState, updates: int) -> tuple[TrainState, TrainInfo]:
        last = jnp.arange(updates) == updates - 1  # one report a stretch
        return jax.lax.scan(lambda s, report: update(eta, hypers, s, report), state, last)

    return Training(
        init=init,
        gather=gather,
        advance=advance,
        steps_per_rollout=config.steps_per_rollout,
        steps_before=config.steps_per_rollout * (config.prefill - 1),
    )


def _info(ends: EpisodeEnd, info: LearnerInfo) -> TrainInfo:
    return TrainInfo(
        episodes=ends.ended.sum().astype(jnp.float32),
        return_sum=ends.episode_return.sum(),
        length_sum=ends.length.sum().astype(jnp.float32),
        learner=info,
    )


def over_seeds(training: Training) -> Training:
    """The same training for many agents at once: keys, states and infos get a leading `[seeds]` axis.

    Agents take turns inside the one program (`lax.map`) instead of side by side (`vmap`): on CPU one agent's products
    fill the machine, and batched ones gain nothing but take the memory of all (benchmarks/train.py).
    """

    def init(keys: Key, hypers: Hypers) -> TrainState:
        return jax.lax.map(lambda key: training.init(key, hypers), keys)

    def advance(eta: Eta, hypers: Hypers, states: TrainState, updates: int) -> tuple[TrainState, TrainInfo]:
        return jax.lax.map(lambda state: training.advance(eta, hypers, state, updates), states)

    return training._replace(init=init, advance=advance)
