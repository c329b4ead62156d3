"""Suites: which families there are, with which ranges, and which of them no rule has been discovered on.

The split is made once and for all. Held-out families are for judging a rule that is finished: neither discovery nor the
choice of hyper-parameters may look at them.
"""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import jax

from discorl.envs import bandits, chains, control, games, motion
from discorl.envs.acrobot import acrobot, standard_acrobot
from discorl.envs.base import Environment
from discorl.envs.catch import catch
from discorl.envs.catch_tasks import CatchRanges, catch_tasks
from discorl.envs.families import Family, Task, rescaled, single
from discorl.envs.grid_tasks import GridRanges, cliff, goals, keys, maze, traps
from discorl.errors import DiscorlError, near_matches

DISCOVERY, HELD_OUT = "discovery", "held-out"
LAST_TASK = 2**32 - 1  # greater numbers would give the keys of smaller ones


class Entry(NamedTuple):
    family: Family
    split: str
    description: str
    standard: Callable[[], Task] | None = None  # the task behind the bare name; without one, it is task 0


def _seen(family: Family, description: str, standard: Callable[[], Task] | None = None) -> Entry:
    return Entry(family, DISCOVERY, description, standard)


def _unseen(family: Family, description: str, standard: Callable[[], Task] | None = None) -> Entry:
    return Entry(family, HELD_OUT, description, standard)


SIZES = CatchRanges(rows=(4, 9), columns=(3, 9), miss=(-1.0, 0.0))
WINDY = CatchRanges(rows=(5, 8), columns=(4, 7), wind=(0.0, 0.4), slip=(0.0, 0.3), miss=(-1.0, 0.0))
MANY = CatchRanges(rows=(4, 6), columns=(3, 6), balls=(2, 5), miss=(-1.0, 0.0), late=0.5, numbers=True)

GOALS = GridRanges(rows=(4, 6), columns=(4, 6), horizon=(15, 40), walls=(0.0, 0.5), harm=(-1.0, -0.2))
MAZE = GridRanges(rows=(4, 7), columns=(4, 7), horizon=(40, 80), walls=(0.3, 1.0))
TRAPS = GridRanges(rows=(5, 7), columns=(5, 7), horizon=(30, 50), slip=(0.0, 0.1), step_reward=(-0.02, 0.0))
KEYS = GridRanges(rows=(3, 5), columns=(5, 7), horizon=(40, 80))
CLIFF = GridRanges(
    rows=(3, 4), columns=(4, 8), horizon=(40, 60), slip=(0.0, 0.1), step_reward=(-0.05, 0.0), harm=(-1.0, -0.1)
)

ENTRIES = (
    _seen(catch_tasks("catch/sizes", SIZES), "Catch on boards from 4x3 to 9x9"),
    _seen(rescaled(catch_tasks("catch/windy", WINDY), (0.3, 3.0)), "Catch with gusts of wind and a slippery paddle"),
    _seen(catch_tasks("catch/many", MANY), "2 to 5 balls in turn, seen as numbers, half of the tasks pay at the end"),
    _seen(rescaled(goals("grid/goals", GOALS, objects=(3, 6)), (0.3, 3.0)), "prizes and harm on a small map"),
    _seen(maze("grid/maze", MAZE), "one goal in a maze, no other reward; only the place is seen"),
    _seen(rescaled(traps("grid/traps", TRAPS, density=(0.3, 0.9)), (0.3, 3.0)), "one goal among traps"),
    _seen(chains.delayed("chain/delayed"), "the first action is paid for 4 to 16 steps later"),
    _seen(chains.river("chain/river"), "swim upstream for the large reward, drift for the small one"),
    _seen(rescaled(chains.tables("chain/tables"), (0.3, 3.0)), "random successors and rewards of 4 to 12 states"),
    _seen(bandits.contextual("bandit/contextual"), "4 to 20 questions, rewards linear in what is seen"),
    _seen(control.cart_pole("control/cart-pole"), "balance a pole on a cart", control.standard_cart_pole),
    _seen(control.reach("control/reach"), "steer a point with momentum to a place, against wind and drag"),
    _seen(rescaled(motion.pump("motion/pump"), (0.1, 1.0)), "swing a weight on a spring as far out as it must go"),
    _seen(rescaled(motion.hover("motion/hover"), (1.0, 10.0)), "come to a place and stay there, in spite of gusts"),
    _unseen(keys("grid/keys", KEYS, key_value=(0.0, 0.3)), "fetch the key, pass the door, reach the goal"),
    _unseen(cliff("grid/cliff", CLIFF), "walk along a cliff; only the place is seen"),
    _unseen(chains.deep_sea("chain/deep-sea", size=(4, 7), cost=(0.0, 0.05)), "one way of many, which costs, pays"),
    _unseen(control.mountain_car("control/mountain-car"), "swing out of a valley", control.standard_mountain_car),
    _unseen(control.pendulum("control/pendulum"), "swing up and stay up, five torques", control.standard_pendulum),
    _unseen(acrobot("control/acrobot"), "swing two links up", standard_acrobot),
    _unseen(games.dodge("game/dodge"), "dodge falling rocks"),
    _unseen(rescaled(games.breakout("game/breakout"), (1.0, 10.0)), "knock down a wall of bricks"),
)
FAMILIES = {entry.family.name: entry for entry in ENTRIES}


class Suite(NamedTuple):
    families: tuple[Family, ...]
    split: str
    description: str


def _of(split: str) -> tuple[Family, ...]:
    return tuple(entry.family for entry in ENTRIES if entry.split == split)


SUITES = {
    "catch": Suite((single(catch(5, 5)),), DISCOVERY, "plain Catch on a 5x5 board, for a quick discovery"),
    "small-worlds": Suite(_of(DISCOVERY), DISCOVERY, "all discovery families: small, quick and of many kinds"),
    "held-out": Suite(_of(HELD_OUT), HELD_OUT, "all held-out families, to judge a rule by"),
}


def suite(name: str) -> Suite:
    """A suite; a family's name is a suite of that family alone."""
    if name in SUITES:
        return SUITES[name]
    if name in FAMILIES:
        entry = FAMILIES[name]
        return Suite((entry.family,), entry.split, entry.description)
    raise DiscorlError(f"unknown suite {name!r}; {near_matches(name, [*SUITES, *FAMILIES])}")


def families(name: str) -> tuple[Family, ...]:
    return suite(name).families


def for_discovery(name: str) -> tuple[Family, ...]:
    """The families of a suite that rules may be discovered on."""
    found = suite(name)
    if found.split != DISCOVERY:
        allowed = ", ".join(name for name, entry in SUITES.items() if entry.split == DISCOVERY)
        raise DiscorlError(f"{name!r} is held out: it judges rules and must not shape them; discover on {allowed}")
    return found.families


def listing() -> tuple[tuple[str, str, str], ...]:
    """Every suite: its name, its split, one line about it."""
    return tuple((name, entry.split, entry.description) for name, entry in SUITES.items())


def environment(name: str, number: int | None = None) -> Environment:
    """One task of a family, by its number; without a number the family's standard task, else number 0."""
    entry = FAMILIES[name]
    if number is None and entry.standard is not None:
        return entry.family.make(entry.standard())
    env = entry.family.make(jax.jit(entry.family.draw)(jax.random.key(number or 0)))
    same = number is None or (number == 0 and entry.standard is None)
    return env if same else env._replace(spec=replace(env.spec, name=f"{name}:{number}"))


def numbered(name: str, number: str) -> Environment:
    """The same for numbers that a person wrote."""
    if not re.fullmatch("[0-9]+", number):
        raise DiscorlError(f"'{name}:{number}' gives no task; write {name}:NUMBER, for example {name}:7")
    if int(number) > LAST_TASK:
        raise DiscorlError(f"there is no '{name}:{number}'; tasks are numbered from 0 to {LAST_TASK}")
    return environment(name, int(number))
