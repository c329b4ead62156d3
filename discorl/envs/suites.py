"""Suites: which families there are, with which ranges, and which of them no rule has been discovered on.

The split is made once and for all. Held-out families are for judging a rule that is finished: neither discovery nor the
choice of hyper-parameters may look at them.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import jax

from discorl.envs.base import Environment
from discorl.envs.catch import catch
from discorl.envs.catch_tasks import CatchRanges, catch_tasks
from discorl.envs.families import Family, Task, rescaled, single
from discorl.envs.grid_tasks import GridRanges, goals, maze
from discorl.errors import DiscorlError, near_matches

DISCOVERY, HELD_OUT = "discovery", "held-out"


class Entry(NamedTuple):
    family: Family
    split: str
    description: str
    standard: Callable[[], Task] | None = None  # the task behind the bare name; without one, it is task 0


ENTRIES = (
    Entry(
        catch_tasks("catch/sizes", CatchRanges(miss=(-1.0, 0.0))),
        DISCOVERY,
        "Catch on boards from 4x3 to 9x9",
    ),
    Entry(
        rescaled(
            goals("grid/goals", GridRanges(rows=(4, 6), columns=(4, 6), horizon=(15, 40), walls=(0.0, 0.5))), (0.3, 3.0)
        ),
        DISCOVERY,
        "prizes and harmful things on a small map",
    ),
    Entry(
        maze("grid/maze", GridRanges(rows=(4, 7), columns=(4, 7), horizon=(40, 80), walls=(0.3, 1.0))),
        DISCOVERY,
        "one goal in a maze, no other reward",
    ),
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


def environment(name: str, number: str = "") -> Environment:
    """One task of a family, by its number; without a number the family's standard task, else number 0."""
    entry = FAMILIES[name]
    if number and not number.isdecimal():
        raise DiscorlError(f"'{name}:{number}' gives no task; write {name}:NUMBER, for example {name}:7")
    standard = entry.standard
    full_name = name if not number or (standard is None and int(number) == 0) else f"{name}:{int(number)}"
    drawn = standard() if standard and not number else entry.family.draw(jax.random.key(int(number or 0)))
    env = entry.family.make(drawn)
    return env._replace(spec=replace(env.spec, name=full_name))
