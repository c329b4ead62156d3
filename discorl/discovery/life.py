"""One agent of a population: its birth in a task of its own, and the windows of its life."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import Array, Float, Int

from discorl import acting
from discorl.discovery.gradients import Index, MetaGradient, WindowLoss
from discorl.discovery.objective import ObjectiveInfo
from discorl.discovery.window import OuterConfig, Student, UpdateInfo, make_judge
from discorl.envs.base import EpisodeEnd, batch
from discorl.envs.families import Task
from discorl.envs.together import Together
from discorl.errors import DiscorlError, require_positive
from discorl.learner import KEPT
from discorl.networks.base import AgentNetwork
from discorl.optim import Hypers
from discorl.rules.base import Eta, UpdateRule
from discorl.rules.value_function import ValueFunctionState, init_value_function
from discorl.training import TrainConfig, Training, TrainState, make_training
from discorl.types import Key

FRESH = TrainConfig(envs=32, batch=32, rollout=8, replay_size=32, replay_share=0.0)  # no replay


@dataclass(frozen=True)
class LifeConfig:
    """Sizes of an agent's life; static."""

    train: TrainConfig = FRESH
    window: int = 3  # updates that a meta-gradient goes through
    stride: int | None = None  # updates from one window to the next; fewer than `window`: the windows overlap
    behaviour: str = "current"  # "start": a whole window is acted by the policy it starts with
    validation_envs: int = 32
    validation_rollout: int = 16
    lifetimes: tuple[int, ...] = (400,)  # updates; one is drawn at birth, each as likely as it is short
    learning_rates: tuple[float, float] = (1e-2, 1e-2)  # drawn at birth, uniform in its logarithm

    def __post_init__(self) -> None:
        for name in ("window", "validation_envs", "validation_rollout", "advance"):
            require_positive(name, getattr(self, name))
        if self.advance > self.window:
            raise DiscorlError(f"stride {self.stride} would leave out updates: it must not exceed window {self.window}")
        if self.behaviour not in ("current", "start"):
            raise DiscorlError(f"behaviour must be current or start, got {self.behaviour!r}")
        if not self.lifetimes or min(self.lifetimes) < self.advance:
            raise DiscorlError(f"every lifetime must hold a window of {self.advance} updates, got {self.lifetimes}")
        if not 0 < self.learning_rates[0] <= self.learning_rates[1]:
            raise DiscorlError(f"learning rates must be two positive numbers in order, got {self.learning_rates}")

    @property
    def advance(self) -> int:
        return self.window if self.stride is None else self.stride


class Life(NamedTuple):
    """An agent and all that belongs to it alone."""

    task: Task
    train: TrainState
    value: ValueFunctionState
    validation: acting.ActorState
    learning_rate: Float[Array, ""]
    lifetime: Int[Array, ""]  # updates; then another is born in its place

    @property
    def age(self) -> Int[Array, "*P"]:
        return self.train.updates


class WindowInfo(NamedTuple):
    """What happened in a window; scalars, or means over its updates."""

    loss: Float[Array, ""]
    score: Float[Array, ""]  # mean reward per step of the agent at the window's end
    age: Int[Array, ""]  # at the window's start
    lifetime: Int[Array, ""]
    episodes: Float[Array, ""]
    return_sum: Float[Array, ""]
    value_loss: Float[Array, ""]
    objective: ObjectiveInfo
    rule_loss: Float[Array, ""]  # the one that the agent learns by


class Cohort(NamedTuple):
    """Agents of one kind: the same network, tasks of the same shapes. All functions are of a single agent."""

    families: tuple[str, ...]  # their names
    # of which of the families, and the share of its lifetime that is already over
    birth: Callable[[Key, Int[Array, ""], Float[Array, ""]], Life]
    window: Callable[[Eta, Life], tuple[WindowLoss, tuple[Life, WindowInfo]]]


def make_cohort(
    families: Together,
    network: AgentNetwork,
    rule: UpdateRule,
    config: LifeConfig,
    outer: OuterConfig,
    gradient: MetaGradient,
) -> Cohort:
    judge = make_judge(network, rule, outer, gradient)

    def world(task: Task) -> tuple[Training, Callable]:
        env = families.make(task)
        validation = batch(env, config.validation_envs)

        def validate(params, key, actor):
            return acting.unroll(network, validation, params, key, actor, config.validation_rollout)

        return make_training(env, network, rule, config.train), validate

    def birth(key: Key, which: Int[Array, ""], over: Float[Array, ""]) -> Life:
        keys = jax.random.split(key, 5)
        task = families.draw(keys[0], which)
        training, _ = world(task)
        validation = acting.begin(network, batch(families.make(task), config.validation_envs), keys[1])
        obs = jax.tree.map(lambda x: x[0], validation.obs)
        lifetime, learning_rate = _draw(keys[2], config)
        train = training.init(keys[3], Hypers())
        return Life(
            task=task,
            train=train,
            value=init_value_function(keys[4], obs, outer.value),
            validation=validation,
            learning_rate=learning_rate,
            # whose life is partly over dies earlier, so that a population does not die all at once
            lifetime=jnp.ceil(lifetime * (1 - over)).astype(jnp.int32),
        )

    def window(eta: Eta, life: Life) -> tuple[WindowLoss, tuple[Life, WindowInfo]]:
        training, validate = world(life.task)
        hypers = Hypers(learning_rate=life.learning_rate)
        start = jax.lax.stop_gradient(life.train.learner.params)

        def update(carry: tuple[TrainState, ValueFunctionState], index: Index) -> tuple:
            state, value = carry
            params = start if config.behaviour == "start" else jax.lax.stop_gradient(state.learner.params)
            state, sampled, ends = training.gather(params, state)
            sampled = jax.tree.map(lambda x: checkpoint_name(x, KEPT), sampled)  # acting once is enough
            student, info = judge.update(index, eta, hypers, Student(state.learner, value), sampled)
            return (state._replace(learner=student.learner), student.value), (info, ends)

        carry = life.train, life.value
        kept, rows = gradient.scan(update, carry, range(config.advance))
        last = kept
        if ahead := range(config.advance, config.window):  # looked at, then lived again by the next window
            last, more = gradient.scan(update, kept, ahead)
            rows = jax.tree.map(lambda a, b: jnp.concatenate([a, b]), rows, more)
        infos, ends = rows
        student = Student(last[0].learner, last[1])
        key = jax.random.fold_in(jax.random.fold_in(life.train.key, life.age), VALIDATION)
        params = jax.lax.stop_gradient(student.learner.params)
        validation, rollout, _ = validate(params, key, life.validation)
        loss, found = judge.judge(student, rollout, infos.regularizer.mean())
        after = life._replace(train=kept[0], value=kept[1], validation=validation)
        info = _info(life, loss, rollout.reward.mean(), found, infos, ends)
        score = rollout.reward.mean() - found.regularizer
        return WindowLoss(loss=loss, score=score), jax.lax.stop_gradient((after, info))

    return Cohort(families=families.names, birth=birth, window=window)


VALIDATION = 7  # folded into an agent's key: validating shares no randomness with training


def _draw(key: Key, config: LifeConfig) -> tuple[Array, Array]:
    """A lifetime, each as likely as it is short, and a learning rate."""
    u = jax.random.uniform(key, (2,))
    lengths = jnp.asarray(config.lifetimes, jnp.float32)
    reached = jnp.cumsum(1 / lengths) / jnp.sum(1 / lengths)
    lifetime = lengths[jnp.minimum(jnp.sum(u[0] >= reached), len(config.lifetimes) - 1)]
    low, high = config.learning_rates
    return lifetime, low * jnp.power(jnp.float32(high / low), u[1])


def _info(
    life: Life, loss: Array, score: Array, found: ObjectiveInfo, infos: UpdateInfo, ends: EpisodeEnd
) -> WindowInfo:
    return WindowInfo(
        loss=loss,
        score=score,
        age=life.age,
        lifetime=life.lifetime,
        episodes=ends.ended.sum().astype(jnp.float32),
        return_sum=ends.episode_return.sum(),
        value_loss=infos.value_loss.mean(),
        objective=found,
        rule_loss=infos.rule_loss.mean(),
    )
