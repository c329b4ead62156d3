"""Environments by name, and whatever else a person may hand over where one is wanted."""

import importlib
import operator
import re
from collections.abc import Callable
from dataclasses import replace
from difflib import get_close_matches
from functools import partial
from types import ModuleType
from typing import Any, NamedTuple

from discorl.envs import probes, suites
from discorl.envs.adapters import atari, craftax, crafter, dm_env, envpool, gym, gymnax, jumanji, minigrid, pgx
from discorl.envs.adapters.libraries import how_to_install
from discorl.envs.base import BatchedEnvironment, Environment
from discorl.envs.catch import catch
from discorl.envs.compliance import check
from discorl.envs.host import HostEnvironment
from discorl.envs.spaces import require_discrete
from discorl.envs.t_maze import t_maze, t_maze_of_length
from discorl.errors import DiscorlError, near_matches

AnyEnvironment = Environment | HostEnvironment  # compiled, or stepped by Python


class Named(NamedTuple):
    description: str
    make: Callable[[], Environment]


class Adapter(NamedTuple):
    """A family of names `prefix:rest`. `make` is given the rest and raises a DiscorlError if it makes no sense."""

    usage: str  # what may stand after the colon
    description: str
    make: Callable[[str], AnyEnvironment]


def cartpole() -> Environment:
    """CartPole-v1 by the name people know; the family `control/cart-pole` has more of its kind."""
    env = suites.environment("control/cart-pole")
    return env._replace(spec=replace(env.spec, name="cartpole", time_limit=500))


def catch_of_size(size: str) -> Environment:
    match = re.fullmatch(r"([0-9]+)x([0-9]+)", size)
    if match is None:
        raise DiscorlError(f"'catch:{size}' gives no board size; write catch:ROWSxCOLUMNS, for example catch:5x5")
    return catch(rows=int(match[1]), columns=int(match[2]))


NAMED = {
    "catch": Named("move a paddle under a falling ball, 8x8 board", catch),
    "cartpole": Named("balance a pole on a cart: CartPole-v1, up to 500 steps", cartpole),
    "t-maze": Named("remember a sign for 10 steps, then turn that way: for agents with a memory", t_maze),
    "probe/constant": Named("one step, reward 1: is a value learnt at all?", probes.constant),
    "probe/observation": Named("reward is what is seen: does the value look?", probes.observation),
    "probe/delayed": Named("reward one step later: does the value bootstrap?", probes.delayed),
    "probe/action": Named("reward for one of two actions: does the policy move?", probes.action),
    "probe/both": Named("reward if the action tells what is seen: does the policy look?", probes.both),
    "probe/memory": Named("reward if the last action tells what was seen first: is it remembered?", probes.memory),
    "probe/clock": Named("leave for a reward, or stay until a clock rings: is that an end?", probes.clock),
    **{
        name: Named(f"{entry.split}: {entry.description}", partial(suites.environment, name))
        for name, entry in suites.FAMILIES.items()
    },
}

# Adapters to other libraries go here; import the library inside `make`, so that only those who name it need it.
ADAPTERS = {
    "catch": Adapter("ROWSxCOLUMNS", "the same on a board of any size, for example catch:5x5", catch_of_size),
    "t-maze": Adapter("STEPS", "the same with a corridor of any length, for example t-maze:20", t_maze_of_length),
    "atari": Adapter("GAME", "Atari 2600, for example atari:pong, or atari:pong/full for all actions", atari.from_game),
    "craftax": Adapter("classic", "Craftax-Classic in symbols: Crafter's game, compiled", craftax.from_name),
    "crafter": Adapter("reward", "Crafter, or crafter:noreward to explore without any", crafter.from_name),
    "envpool": Adapter("ID", "envpool, for example envpool:Breakout-v5", envpool.from_id),
    "gymnasium": Adapter("ID", "Gymnasium, for example gymnasium:CartPole-v1 or just CartPole-v1", gym.from_id),
    "gymnax": Adapter("ID", "gymnax, for example gymnax:CartPole-v1", gymnax.from_id),
    "jumanji": Adapter("ID", "Jumanji, for example jumanji:Snake-v1", jumanji.from_id),
    "minatar": Adapter("GAME", "MinAtar of pgx: asterix, breakout, freeway, seaquest or space_invaders", pgx.minatar),
    "pgx": Adapter("ID", "any game of pgx: pgx:2048, or pgx:connect_four/random against random moves", pgx.from_id),
    "procgen": Adapter("GAME", "Procgen: procgen:coinrun, or procgen:coinrun/hard/500 for 500 levels", envpool.procgen),
    "xminigrid": Adapter("ID", "XLand-MiniGrid, for example xminigrid:MiniGrid-Empty-8x8", minigrid.from_id),
}


def listing() -> tuple[tuple[str, str], ...]:
    """Every name and every pattern of names, each with one line about it."""
    named = [(name, entry.description) for name, entry in NAMED.items()]
    families = [(f"{prefix}:{adapter.usage}", adapter.description) for prefix, adapter in ADAPTERS.items()]
    tasks = ("FAMILY:NUMBER", "another task of a discovery or held-out family, for example grid/goals:7")
    yours = ("MODULE:ATTRIBUTE", "your own: a discorl.envs.Environment, a Gymnasium or dm_env class, or what makes one")
    return (*named, *families, tasks, yours)


def make(name: str) -> AnyEnvironment:
    """The environment of that name: built in, of an adapter (`prefix:rest`), or your own (`module:attribute`)."""
    if name in NAMED:
        return NAMED[name].make()
    prefix, colon, rest = name.partition(":")
    if colon and prefix in ADAPTERS:
        return ADAPTERS[prefix].make(rest)
    if colon and prefix in suites.FAMILIES:
        return suites.numbered(prefix, rest)
    if gym.ID.fullmatch(name):
        if colon:
            _module(prefix, name)  # it registers the id; what is wrong with it is better said by us
        return gym.from_id(name)
    if colon and rest and all(part.isidentifier() for part in prefix.split(".")):
        env = _from_object(_imported(prefix, rest), source=name)
        if isinstance(env, Environment):
            check(env)
        return env
    raise DiscorlError(f"unknown environment {name!r}; {_meant(name)}")


def as_environment(given: Any) -> AnyEnvironment:
    """An environment from whatever was given: a name, an environment of ours, Gymnasium or dm_env, or what makes one.

    Objects are checked for their types only, which takes no time; `check` would also run them.
    """
    if isinstance(given, str):
        return make(given)
    return _from_object(given, source="the environment that was given")


def _from_object(given: Any, source: str) -> AnyEnvironment:
    if isinstance(given, HostEnvironment):
        return given
    if gym.looks_like(given):
        return gym.from_object(given)
    if dm_env.looks_like(given):
        return dm_env.from_object(given)
    if callable(given):
        made = _called(given, source)
        if gym.looks_like(made) and not hasattr(made, "single_action_space"):
            made.close()
            return gym.from_maker(lambda render: _called(given, source), getattr(given, "__name__", source))
        if dm_env.looks_like(made):
            dm_env.close(made)
            again = dm_env.seeded(given)
            name = getattr(given, "__name__", source)
            return dm_env.from_maker(lambda seed: _called(lambda: again(seed), source), name)
        given, source = made, f"what {source} returned"
        if isinstance(given, HostEnvironment):
            return given
    if not isinstance(given, Environment):
        raise _refusal(given, source)
    check(given, steps=0)
    return given


def _called(make: Callable[[], Any], source: str) -> Any:
    try:
        return make()
    except Exception as error:
        raise DiscorlError(f"calling {source} raised {type(error).__name__}: {error}") from error


def _refusal(given: Any, source: str) -> DiscorlError:
    """Why an object is no environment, said as exactly as its looks allow."""
    if isinstance(given, BatchedEnvironment):
        return DiscorlError(f"{source} is a batch already; give the single environment, training makes the batch")
    kind = type(given).__name__
    space = getattr(given, "action_space", None)
    if space is None or callable(space):
        return DiscorlError(f"{source} is of class {kind}, not a discorl.envs.Environment")
    require_discrete(space, f"{source} (class {kind})")
    return DiscorlError(
        f"{source} (class {kind}) has an action space, but it is no environment of Gymnasium's: "
        "reset, step or observation_space is missing"
    )


def _meant(name: str) -> str:
    """The end of a message about an unknown name: the family that was probably meant, near names, or all there are."""
    prefix, colon, rest = name.partition(":")
    close = get_close_matches(prefix, ADAPTERS, n=1, cutoff=0.7) if colon else []
    return f"did you mean '{close[0]}:{rest}'?" if close else near_matches(name, NAMED)


def _module(module_name: str, name: str) -> ModuleType:
    try:
        return importlib.import_module(module_name)
    except Exception as error:
        # Only if the module itself is what is missing was the name wrong; otherwise it is there and broken.
        if isinstance(error, ModuleNotFoundError) and f"{module_name}.".startswith(f"{error.name}."):
            raise DiscorlError(
                f"unknown environment {name!r}, and there is no module {module_name!r}; {_meant(name)}"
            ) from error
        remedy = how_to_install(error)
        raise DiscorlError(f"importing {module_name!r} raised {type(error).__name__}: {error}{remedy}") from error


def _imported(module_name: str, attribute: str) -> Any:
    module = _module(module_name, f"{module_name}:{attribute}")
    try:
        return operator.attrgetter(attribute)(module)
    except AttributeError:
        candidates = _candidates(module)
        hint = f"; {near_matches(attribute, candidates)}" if candidates else ""
        raise DiscorlError(f"module {module_name!r} has no attribute {attribute!r}{hint}") from None


def _candidates(module: ModuleType) -> list[str]:
    public = {name: x for name, x in vars(module).items() if not name.startswith("_")}
    return [name for name, x in public.items() if isinstance(x, Environment) or callable(x)]
