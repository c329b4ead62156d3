"""What a training run is made of: finds everything that was named and checks that it fits together."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from discorl import agents, envs, host_training, networks, programs, rule_files, rule_numbers, settings, training
from discorl.envs import Environment, EnvSpec, HostEnvironment
from discorl.errors import DiscorlError
from discorl.networks import AgentNetwork
from discorl.optim import Hypers
from discorl.programs import Program
from discorl.rules import library
from discorl.rules.base import UpdateRule
from discorl.rules.library import LoadedRule
from discorl.settings import Settings
from discorl.types import Needs

BuildNetwork = Callable[[EnvSpec, Needs], AgentNetwork]
Agent = str | AgentNetwork | BuildNetwork
Rule = str | LoadedRule

CUSTOM = "custom"  # how a run calls a network that was given as an object


class Experiment(NamedTuple):
    settings: Settings  # nothing left open
    env: Environment | HostEnvironment
    rule: UpdateRule
    eta: PyTree
    network: AgentNetwork
    program: Program

    @property
    def updates(self) -> int:
        """Length of training; steps are rounded up to whole updates."""
        if self.settings.updates is not None:
            return self.settings.updates
        left = (self.settings.steps or 0) - self.program.steps_before
        return max(1, math.ceil(left / self.program.steps_per_rollout)) * self.settings.updates_per_rollout

    def steps(self, updates: int) -> int:
        """Environment steps of each agent after that many updates."""
        rollouts = math.ceil(updates / self.settings.updates_per_rollout)
        return self.program.steps_before + rollouts * self.program.steps_per_rollout


def build(env: Any, rule: Rule | None, agent: Agent, asked: Settings) -> Experiment:
    """From names or objects. Trains nothing."""
    environment = environment_of(env, asked)
    rule = rule_files.default_rule() if rule is None else rule
    loaded = _loaded(rule, asked.discount)
    named = replace(
        asked,
        env=env if isinstance(env, str) else environment.spec.name,
        rule=_lasting(rule) if isinstance(rule, str) else loaded.rule.name,
        agent=agent if isinstance(agent, str) else CUSTOM,
    )
    if isinstance(environment, HostEnvironment) and environment.size:
        named = _of_size(named, environment.size)
    full = settings.resolve(named, loaded.rule.name, loaded.rule.advice)
    network = build_network(agent, environment.spec, loaded.rule.needs, full)
    return Experiment(
        settings=full,
        env=environment,
        rule=loaded.rule,
        eta=loaded.eta,
        network=network,
        program=build_program(environment, network, loaded, full),
    )


def environment_of(env: Any, full: Settings) -> Environment | HostEnvironment:
    """By name or as an object, the way a run with these settings sees it."""
    return envs.stacked(envs.as_environment(env), full.frame_stack)


def build_program(
    env: Environment | HostEnvironment, network: AgentNetwork, loaded: LoadedRule, full: Settings
) -> Program:
    """Agent i of many is the one that `--seed (seed + i)` trains alone."""
    rule, eta = loaded
    hypers, config = optimizer_numbers(full), training_config(full)
    if full.truncation == "bootstrap" and rule.continuation is not None:
        config = replace(config, cuts=cuts_per_trajectory(env, config.rollout))
    seeds = range(full.seed, full.seed + full.seeds)
    if isinstance(env, HostEnvironment):
        run = {"eta": eta, "hypers": hypers, "lag": full.lag, "group_count": full.groups, "seeds": seeds}
        return host_training.make_host_program(env, network, rule, config, **run)
    one = training.make_training(env, network, rule, config)
    many = training.over_seeds(one) if full.seeds > 1 else one
    return programs.compiled(many, env, network, eta, hypers, [jax.random.key(seed) for seed in seeds])


def build_network(agent: Agent, spec: EnvSpec, needs: Needs, full: Settings) -> AgentNetwork:
    """By name, by a function of (spec, needs), or as it is."""
    if agent == CUSTOM:
        raise DiscorlError("the agent of this run was given as an object: call from Python and give it again")
    if isinstance(agent, str):
        network = agents.by_name(agent, spec, needs, full)
    else:
        network = agent if isinstance(agent, AgentNetwork) else agent(spec, needs)
    if full.normalise and network.statistics is None:
        network = networks.normalised(network, spec)
    if networks.has_mask(spec):
        network = networks.masked(network)
    networks.check_network(network, spec, needs)
    return network


def cuts_per_trajectory(env: Environment | HostEnvironment, length: int) -> int:
    """How often a clock can end episodes within `length` steps; of environments that Python steps, 1 if unknown."""
    unknown = 1 if isinstance(env, HostEnvironment) else 0
    return math.ceil(length / env.spec.time_limit) if env.spec.time_limit else unknown


def training_config(full: Settings) -> training.TrainConfig:
    """The static sizes."""
    names = ("envs", "batch", "rollout", "replay_size", "replay_share", "updates_per_rollout", "mask", "burn_in")
    return training.TrainConfig(**{name: getattr(full, name) for name in names})


def optimizer_numbers(full: Settings) -> Hypers:
    """The traced numbers, strongly typed: the same program before and after a resume."""
    numbers = {
        "learning_rate": full.learning_rate,
        "max_update": full.max_update,
        "weight_decay": full.weight_decay,
        "warmup": full.warmup_updates,
        "decay": full.decay_updates or math.inf,
    }
    return jax.tree.map(jnp.float32, Hypers(**numbers))


def _loaded(rule: Rule, discount: float | None) -> LoadedRule:
    if discount is None:
        return library.load_rule(rule)
    if not isinstance(rule, str):
        raise DiscorlError("discount belongs to the rule, which was given as an object: load it with that discount")
    return library.load_rule(rule_numbers.with_default(rule, "discount", discount))


def _of_size(asked: Settings, size: int) -> Settings:
    """A vector of environments that is made already says how many there are."""
    if asked.envs not in (None, size):
        raise DiscorlError(f"the vector environment has {size} environments, not {asked.envs}; leave out envs")
    return replace(asked, envs=size)


def _lasting(rule: str) -> str:
    """A path that still means the same in another folder; names stay as they are."""
    name, numbers = rule_numbers.split(rule)
    return rule_numbers.join(str(Path(name).resolve()), numbers) if name.endswith(".npz") else rule
