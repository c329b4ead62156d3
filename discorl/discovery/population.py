"""Many agents, one rule: each agent says how the rule should change, and the rule follows them all."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Int

from discorl.discovery.gradients import MetaGradient
from discorl.discovery.life import Cohort, Life, WindowInfo
from discorl.errors import DiscorlError, require_positive
from discorl.optim import AdamState, Hypers, adam, global_norm, init_adam
from discorl.rules.base import Eta
from discorl.types import Key

MOST_OVER = 0.9  # share of a life that the first agents may have behind them; what is left must hold a window
Vector = Float[Array, " N"]  # the rule's weights, or a gradient in them


@dataclass(frozen=True)
class PopulationConfig:
    agents: int = 4  # of each family
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

    each = partial(_each, config.at_once)
    families = partial(_families, config.agents)

    def init(key: Key, eta: Eta) -> PopulationState:
        key, key_birth, key_age = jax.random.split(key, 3)
        lives = []
        for i, cohort in enumerate(cohorts):
            which = families(cohort)
            keys = jax.random.split(jax.random.fold_in(key_birth, i), which.size)
            # spread evenly: a population of one age learns nothing about the others for a whole lifetime
            turn = jnp.tile(jnp.arange(config.agents, dtype=jnp.float32), len(cohort.families))
            at = jax.random.uniform(jax.random.fold_in(key_age, i), turn.shape)
            lives.append(each(cohort.birth, keys, which, (turn + at) / config.agents * MOST_OVER))
        one = init_adam(ravel_pytree(eta)[0])
        if config.optimizer == "single":
            optimizers = (one,)
        else:
            sizes = [families(cohort).size for cohort in cohorts]
            optimizers = tuple(jax.tree.map(lambda x, n=n: jnp.stack([x] * n), one) for n in sizes)
        steps = jnp.zeros((), jnp.int32)
        return PopulationState(key=key, eta=eta, optimizers=optimizers, lives=tuple(lives), steps=steps)

    def advance(hypers: Hypers, state: PopulationState, steps: int) -> tuple[PopulationState, MetaInfo]:
        return jax.lax.scan(lambda s, _: meta_step(hypers, s), state, length=steps)

    def meta_step(hypers: Hypers, state: PopulationState) -> tuple[PopulationState, MetaInfo]:
        key = jax.random.fold_in(state.key, state.steps)
        # one vector: what happens to gradients and optimizers is compiled once, not for each array of the rule
        eta, unflatten = ravel_pytree(state.eta)
        lives, grads, windows, healthy = [], [], [], []
        for i, (cohort, before) in enumerate(zip(cohorts, state.lives, strict=True)):
            key_cohort = jax.random.fold_in(key, i)
            which = families(cohort)
            alive = _rebirth(partial(each, cohort.birth), key_cohort, which, before)
            keys = jax.random.split(jax.random.fold_in(key_cohort, 1), which.size)

            def live(life: Life, key: Key, cohort: Cohort = cohort) -> tuple[Life, WindowInfo, Vector]:
                (life, info), grad = gradient.outer(lambda eta: cohort.window(unflatten(eta), life), eta, key)
                return life, info, grad

            after, info, grad = each(live, alive, keys)
            good = each(lambda g, w: _finite((g, w)), grad, (info.loss, after.train.learner.params))
            lives.append(_kill_unless(good, after))
            grads.append(each(partial(_clipped, config), _zero_unless(good, grad)))
            windows.append(info)
            healthy.append(good)
        change, optimizers = _meta_update(config, hypers, state.optimizers, eta, grads, healthy)
        info = MetaInfo(
            windows=tuple(windows),
            gradient_norm=tuple(jax.vmap(global_norm)(g) for g in grads),
            skipped=tuple(~good for good in healthy),
            update_norm=global_norm(change),
        )
        after = PopulationState(state.key, unflatten(eta + change), optimizers, tuple(lives), state.steps + 1)
        return after, info

    return Population(init=init, advance=advance)


def _each(at_once: int | None, function: Callable, *trees: Any) -> Any:
    """`function` of every agent of a cohort."""
    if at_once is None:
        return jax.vmap(function)(*trees)
    return jax.lax.map(lambda xs: function(*xs), trees, batch_size=at_once)


def _families(agents: int, cohort: Cohort) -> Int[Array, " P"]:
    """Of which family each agent of a cohort is, for good: its optimizer gets to know that family."""
    return jnp.repeat(jnp.arange(len(cohort.families), dtype=jnp.int32), agents)


def _rebirth(births: Callable[..., Life], key: Key, which: Int[Array, " P"], lives: Life) -> Life:
    """New agents in the place of those whose time is over; a branch, because mostly there are none."""
    over = lives.age >= lives.lifetime

    def some(lives: Life) -> Life:
        newborn = births(jax.random.split(key, which.size), which, jnp.zeros(which.size))
        return _select(over, newborn, lives)

    return jax.lax.cond(over.any(), some, lambda lives: lives, lives)


def _meta_update(
    config: PopulationConfig,
    hypers: Hypers,
    before: tuple[AdamState, ...],
    eta: Vector,
    grads: list[Float[Array, "_ N"]],
    healthy: list[Bool[Array, " _"]],
) -> tuple[Vector, tuple[AdamState, ...]]:
    """The change of the rule. Agents without a sound gradient are left out: of the mean, and their optimizers stay."""
    count = jnp.maximum(jnp.concatenate(healthy).sum(), 1).astype(jnp.float32)
    if config.optimizer == "single":
        change, optimizer = adam(sum(map(_total, grads)) / count, before[0], eta, hypers)
        return change, (optimizer,)
    changes, optimizers = [], []
    for grad, optimizer, good in zip(grads, before, healthy, strict=True):
        change, after = jax.vmap(adam, in_axes=(0, 0, None, None))(grad, optimizer, eta, hypers)
        changes.append(_zero_unless(good, change))
        optimizers.append(_select(good, after, optimizer))
    return sum(map(_total, changes)) / count, tuple(optimizers)


def _total(vectors: Float[Array, "P N"]) -> Vector:
    return jnp.ones(vectors.shape[0], vectors.dtype) @ vectors  # a sum along the agents is 40 × as slow on CPU


def _clipped(config: PopulationConfig, grad: Vector) -> Vector:
    if config.clip == "norm":
        return jnp.minimum(1, config.clip_at / (global_norm(grad) + 1e-12)) * grad
    if config.clip == "element":
        return jnp.clip(grad, -config.clip_at, config.clip_at)
    return grad


def _finite(tree: Any) -> Bool[Array, ""]:
    return jnp.stack([jnp.isfinite(x).all() for x in jax.tree.leaves(tree)]).all()


def _select(choose: Bool[Array, " P"], yes: Any, no: Any) -> Any:
    """Per agent, one or the other tree."""
    return jax.vmap(lambda c, y, n: jax.tree.map(partial(jnp.where, c), y, n))(choose, yes, no)


def _zero_unless(good: Bool[Array, " P"], vectors: Float[Array, "P N"]) -> Float[Array, "P N"]:
    return jnp.where(good[:, None], vectors, 0)


def _kill_unless(good: Bool[Array, " P"], lives: Life) -> Life:
    """An agent that is no longer finite will not recover: it is reborn at the next step."""
    return lives._replace(lifetime=jnp.where(good, lives.lifetime, 0))
