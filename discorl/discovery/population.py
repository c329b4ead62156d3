"""Many agents, one rule: each agent says how the rule should change, and the rule follows them all."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from discorl.discovery.gradients import MetaGradient
from discorl.discovery.life import Cohort, Life, WindowInfo
from discorl.errors import DiscorlError, require_positive
from discorl.optim import AdamState, Hypers, adam, global_norm, init_adam
from discorl.rules.base import Eta
from discorl.types import Key


@dataclass(frozen=True)
class PopulationConfig:
    agents: int = 4  # of each cohort
    optimizer: str = "agent"  # one Adam per agent, their updates averaged; "single": one Adam on the mean gradient
    clip: str = "none"  # of each agent's gradient: "norm", "element"
    clip_at: float = 1.0
    at_once: int | None = None  # agents of a cohort computed side by side; None: all

    def __post_init__(self) -> None:
        require_positive("agents", self.agents)
        for name, choices in (("optimizer", ("agent", "single")), ("clip", ("none", "norm", "element"))):
            if getattr(self, name) not in choices:
                raise DiscorlError(f"{name} must be one of {', '.join(choices)}, got {getattr(self, name)!r}")


class PopulationState(NamedTuple):
    """All that a resume needs."""

    key: Key
    eta: Eta
    optimizers: tuple[AdamState, ...]  # per cohort [agents, ...]; a single one for everybody
    lives: tuple[Life, ...]  # per cohort [agents, ...]
    steps: Int[Array, ""]  # meta-steps done


class MetaInfo(NamedTuple):
    """One row per meta-step; per cohort, one column per agent."""

    windows: tuple[WindowInfo, ...]
    gradient_norm: tuple[Float[Array, " P"], ...]
    skipped: tuple[Bool[Array, " P"], ...]  # whose gradient or state was not finite
    update_norm: Float[Array, ""]


class Population(NamedTuple):
    """Pure functions; `jit` them with `steps` static."""

    init: Callable[[Key, Eta], PopulationState]
    advance: Callable[[Hypers, PopulationState, int], tuple[PopulationState, MetaInfo]]


def make_population(cohorts: Sequence[Cohort], config: PopulationConfig, gradient: MetaGradient) -> Population:
    """The population of some cohorts; how their windows are differentiated is `gradient`'s business."""
    agents = config.agents

    def each(function: Callable, *trees: Any) -> Any:
        """`function` of every agent of a cohort."""
        if config.at_once is None or config.at_once >= agents:
            return jax.vmap(function)(*trees)
        return jax.lax.map(lambda xs: function(*xs), trees, batch_size=config.at_once)

    def init(key: Key, eta: Eta) -> PopulationState:
        key, key_birth, key_age = jax.random.split(key, 3)
        lives = []
        for i, cohort in enumerate(cohorts):
            keys = jax.random.split(jax.random.fold_in(key_birth, i), agents)
            over = jax.random.uniform(jax.random.fold_in(key_age, i), (agents,), maxval=0.9)
            lives.append(each(cohort.birth, keys, over))
        one = init_adam(eta)
        if config.optimizer == "single":
            optimizers = (one,)
        else:
            optimizers = tuple(jax.tree.map(lambda x: jnp.stack([x] * agents), one) for _ in cohorts)
        steps = jnp.zeros((), jnp.int32)
        return PopulationState(key=key, eta=eta, optimizers=optimizers, lives=tuple(lives), steps=steps)

    def advance(hypers: Hypers, state: PopulationState, steps: int) -> tuple[PopulationState, MetaInfo]:
        return jax.lax.scan(lambda s, _: meta_step(hypers, s), state, length=steps)

    def meta_step(hypers: Hypers, state: PopulationState) -> tuple[PopulationState, MetaInfo]:
        key = jax.random.fold_in(state.key, state.steps)
        lives, grads, windows, healthy = [], [], [], []
        for i, (cohort, before) in enumerate(zip(cohorts, state.lives, strict=True)):
            key_cohort = jax.random.fold_in(key, i)
            alive = _rebirth(cohort, each, key_cohort, before)
            keys = jax.random.split(jax.random.fold_in(key_cohort, 1), agents)
            after, info, grad = each(partial(_live, cohort, gradient, state.eta), alive, keys)
            good = each(lambda g, w: _finite((g, w)), grad, (info.loss, after.train.learner.params))
            lives.append(_kill_unless(good, after))
            grads.append(each(partial(_clipped, config), _zero_unless(good, grad)))
            windows.append(info)
            healthy.append(good)
        eta, optimizers = _meta_update(config, hypers, state, grads, healthy)
        change = jax.tree.map(jnp.subtract, eta, state.eta)
        info = MetaInfo(
            windows=tuple(windows),
            gradient_norm=tuple(jax.vmap(global_norm)(g) for g in grads),
            skipped=tuple(~good for good in healthy),
            update_norm=global_norm(change),
        )
        after = PopulationState(state.key, eta, optimizers, tuple(lives), state.steps + 1)
        return after, info

    return Population(init=init, advance=advance)


def _live(cohort: Cohort, gradient: MetaGradient, eta: Eta, life: Life, key: Key) -> tuple[Life, WindowInfo, Eta]:
    (life, info), grads = gradient.outer(lambda eta: cohort.window(eta, life), eta, key)
    return life, info, grads


def _rebirth(cohort: Cohort, each: Callable, key: Key, lives: Life) -> Life:
    """New agents in the place of those whose time is over; a branch, because mostly there are none."""
    over = lives.age >= lives.lifetime

    def some(lives: Life) -> Life:
        newborn = each(cohort.birth, jax.random.split(key, over.shape[0]), jnp.zeros(over.shape[0]))
        return _select(over, newborn, lives)

    return jax.lax.cond(over.any(), some, lambda lives: lives, lives)


def _meta_update(
    config: PopulationConfig, hypers: Hypers, state: PopulationState, grads: list[Eta], healthy: list[Array]
) -> tuple[Eta, tuple[AdamState, ...]]:
    """Agents without a sound gradient are left out: of the mean, and their optimizers stay as they are."""
    eta, count = state.eta, jnp.maximum(sum(good.sum() for good in healthy), 1).astype(jnp.float32)

    def total(trees: list[Eta]) -> Eta:
        return jax.tree.map(lambda *xs: sum(x.sum(0) for x in xs) / count, *trees)

    if config.optimizer == "single":
        change, optimizer = adam(total(grads), state.optimizers[0], eta, hypers)
        return jax.tree.map(jnp.add, eta, change), (optimizer,)
    changes, optimizers = [], []
    for grad, before, good in zip(grads, state.optimizers, healthy, strict=True):
        change, after = jax.vmap(adam, in_axes=(0, 0, None, None))(grad, before, eta, hypers)
        changes.append(_zero_unless(good, change))
        optimizers.append(_select(good, after, before))
    return jax.tree.map(jnp.add, eta, total(changes)), tuple(optimizers)


def _clipped(config: PopulationConfig, grad: Eta) -> Eta:
    if config.clip == "norm":
        scale = jnp.minimum(1, config.clip_at / (global_norm(grad) + 1e-12))
        return jax.tree.map(lambda g: scale * g, grad)
    if config.clip == "element":
        return jax.tree.map(lambda g: jnp.clip(g, -config.clip_at, config.clip_at), grad)
    return grad


def _finite(tree: Any) -> Bool[Array, ""]:
    return jnp.stack([jnp.isfinite(x).all() for x in jax.tree.leaves(tree)]).all()


def _select(choose: Bool[Array, " P"], yes: Any, no: Any) -> Any:
    """Per agent, one or the other tree."""
    return jax.vmap(lambda c, y, n: jax.tree.map(partial(jnp.where, c), y, n))(choose, yes, no)


def _zero_unless(good: Bool[Array, " P"], tree: Eta) -> Eta:
    return _select(good, tree, jax.tree.map(jnp.zeros_like, tree))


def _kill_unless(good: Bool[Array, " P"], lives: Life) -> Life:
    """An agent that is no longer finite will not recover: it is reborn at the next step."""
    return lives._replace(lifetime=jnp.where(good, lives.lifetime, 0))
