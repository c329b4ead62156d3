"""Numbers after the name of a rule, `actor_critic:entropy_cost=0.01,discount=0.99`. Knows no framework."""

import tomllib
from collections.abc import Iterable
from typing import Any

from discorl.errors import DiscorlError, near_matches


def split(rule: str) -> tuple[str, str]:
    """Name and numbers; a colon inside a path belongs to the path."""
    name, _, numbers = rule.rpartition(":")
    if not name or "/" in numbers or "\\" in numbers:
        return rule, ""
    return name, numbers


def join(name: str, numbers: str) -> str:
    return f"{name}:{numbers}" if numbers else name


def with_default(rule: str, number: str, value: float) -> str:
    """The rule with one more number, unless it already says that one."""
    name, numbers = split(rule)
    said = [one.partition("=")[0].strip() for one in numbers.split(",")]
    return rule if number in said else join(name, f"{numbers},{number}={value!r}".lstrip(","))


def parse(name: str, numbers: str, known: Iterable[str]) -> dict[str, Any]:
    """Written as in a TOML table, without its braces."""
    known = list(known)
    try:
        given = tomllib.loads(f"numbers = {{{numbers}}}")["numbers"]
    except tomllib.TOMLDecodeError as error:
        raise DiscorlError(
            f"the numbers of {name} are not understood: {numbers!r}; write {name}:name=number,name=number"
        ) from error
    for one in given:
        if one not in known:
            raise DiscorlError(f"{name} has no {one!r}; {near_matches(one, known)}")
    return given
