"""From settings to a population: finds everything that was named and checks that it fits together."""

from dataclasses import asdict, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from discorl import networks, rule_files, rule_numbers
from discorl.discovery import gradients, placement
from discorl.discovery.compiling import compiled
from discorl.discovery.life import Cohort, LifeConfig, make_cohort
from discorl.discovery.objective import ObjectiveConfig
from discorl.discovery.population import Population, PopulationConfig, PopulationState, make_population
from discorl.discovery.settings import DiscoverySettings
from discorl.discovery.window import OuterConfig
from discorl.envs import suites
from discorl.envs.together import by_actions, together
from discorl.errors import DiscorlError
from discorl.optim import Hypers
from discorl.rule_config import CONSTANTS, DiscoConfig
from discorl.rules.base import Eta, UpdateRule
from discorl.rules.disco import disco
from discorl.rules.meta_network import InitScales, from_arrays
from discorl.rules.value_function import ValueFunctionConfig
from discorl.training import TrainConfig


class Discovery(NamedTuple):
    settings: DiscoverySettings
    config: DiscoConfig
    rule: UpdateRule
    first: Eta | None  # the rule to start from
    origin: dict[str, Any]  # where that one came from, as far as its file tells
    cohorts: tuple[Cohort, ...]
    population: Population
    hypers: Hypers
    mesh: Mesh  # the devices that share the agents

    def begin(self) -> PopulationState:
        """A newborn population; the rule is random, or the one that was named."""

        def make(first: Eta | None) -> PopulationState:
            key_rule, key = jax.random.split(jax.random.key(self.settings.seed))
            return self.population.init(key, self.rule.init(key_rule) if first is None else first)

        first = jax.tree.map(np.asarray, self.first)
        return compiled(partial(jax.jit(make, out_shardings=self.shardings).lower, first))(first)

    @property
    def shardings(self) -> PopulationState:
        return placement.shardings(self.mesh, self.settings.optimizer == "single")

    def shapes(self) -> PopulationState:
        """The same as shapes only."""
        key = jax.random.key(0)
        return jax.eval_shape(lambda k: self.population.init(k, self.rule.init(k)), key)

    @property
    def families(self) -> list[str]:
        return [name for cohort in self.cohorts for name in cohort.families]

    @property
    def steps_per_meta_step(self) -> int:
        """Environment steps of all agents together."""
        asked = self.settings
        windows = asked.window * asked.envs * asked.rollout + asked.validation_envs * asked.validation_rollout
        return windows * asked.agents * len(self.families)


def build(asked: DiscoverySettings) -> Discovery:
    """Trains nothing."""
    families = suites.for_discovery(asked.suite)
    if asked.meta_decay is None:
        asked = replace(asked, meta_decay=asked.meta_steps)
    config, first, origin = asked.rule_config, None, {}
    if asked.rule is not None:  # a rule brings its sizes along
        file = rule_files.named(asked.rule)
        config, first, origin = file.config, from_arrays(file.arrays, file.config), file.provenance
        _check_constants(asked, config)
        asked = replace(asked, **_own_sizes(config))
    scales = InitScales(heads=asked.init_heads, gate=asked.init_gate, gate_bias=asked.init_gate_bias)
    rule = disco(config, scales, unroll=1)  # no slower where gradients go through it, and less to compile
    gradient = _gradient(asked)
    outer = _outer(asked)
    cohorts = []
    sizes = {"hidden": asked.hidden, "model_width": asked.model_width, "head_hidden": asked.head_hidden}
    for group in by_actions(families):
        alike = together(group)
        network = networks.flat(networks.mlp(alike.spec, rule.needs, **sizes))
        cohorts.append(make_cohort(alike, network, rule, _life(asked), outer, gradient))
    crowd = PopulationConfig(
        agents=asked.agents,
        optimizer=asked.optimizer,
        clip=asked.clip,
        clip_at=asked.clip_at,
        at_once=asked.at_once,
    )
    population = make_population(cohorts, crowd, gradient)
    mesh = placement.make_mesh([asked.agents * len(cohort.families) for cohort in cohorts], asked.devices)
    return Discovery(asked, config, rule, first, origin, tuple(cohorts), population, meta_hypers(asked), mesh)


def meta_hypers(asked: DiscoverySettings) -> Hypers:
    numbers = {
        "learning_rate": asked.meta_learning_rate,
        "max_update": asked.max_meta_update,
        "warmup": asked.meta_warmup,
        "decay": asked.meta_decay or float("inf"),
    }
    return jax.tree.map(jnp.float32, Hypers(**numbers))


def _gradient(asked: DiscoverySettings) -> gradients.MetaGradient:
    if asked.gradient == "evolution":
        return gradients.evolution(asked.sigma, asked.pairs)
    return gradients.mixed() if asked.gradient == "mixed" else gradients.reverse()


def _outer(asked: DiscoverySettings) -> OuterConfig:
    objective = {name: getattr(asked, name) for name in asdict(ObjectiveConfig())}
    value = ValueFunctionConfig(
        hidden=asked.value_hidden,
        discount=asked.value_discount,
        trace_decay=asked.value_trace_decay,
        learning_rate=asked.value_learning_rate,
    )
    return OuterConfig(ObjectiveConfig(**objective), value, asked.alignment, asked.mask)


def _life(asked: DiscoverySettings) -> LifeConfig:
    names = ("envs", "batch", "rollout", "replay_size", "replay_share", "mask")
    low, high = asked.learning_rates
    return LifeConfig(
        train=TrainConfig(**{name: getattr(asked, name) for name in names}),
        window=asked.window,
        stride=asked.stride,
        behaviour=asked.behaviour,
        validation_envs=asked.validation_envs,
        validation_rollout=asked.validation_rollout,
        lifetimes=asked.lifetimes,
        learning_rates=(low, high),
    )


def _check_constants(asked: DiscoverySettings, config: DiscoConfig) -> None:
    """A rule keeps its own; whoever wants others must not be left in the belief that they have them."""
    usual = DiscoverySettings()
    for name in set(CONSTANTS) & set(asdict(usual)):
        own, given = getattr(config, name), getattr(asked, name)
        if given not in (own, getattr(usual, name)):
            other = rule_numbers.split(asked.rule or "")[0]
            raise DiscorlError(f"{name} of {asked.rule} is {own}; for another, start from {other}:{name}={given}")


def _own_sizes(config: DiscoConfig) -> dict[str, object]:
    known = asdict(DiscoverySettings())
    return {name: value for name, value in asdict(config).items() if name in known}
