"""Options of a run: a frozen dataclass is all there is to say about them; files and flags follow from it. No JAX."""

import json
import tomllib
import types
from collections.abc import Mapping, Sequence
from dataclasses import asdict, field, fields
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from discorl.errors import DiscorlError, near_matches, require_positive

Options = TypeVar("Options")
LISTS = {(tuple, int): "a list of whole numbers", (tuple, float): "a list of numbers"}
WORDS = {float: "a number", int: "a whole number", str: "a text", bool: "true or false"}


def option(default: Any, text: str, *, group: str, least: str = "") -> Any:
    """`least` is 'positive', 'zero' (nothing negative) or nothing; it holds for every number of a tuple."""
    return field(default=default, metadata={"help": text, "group": group, "least": least})


def names(kind: type) -> tuple[str, ...]:
    return tuple(f.name for f in fields(kind))


def make(kind: type[Options], values: Mapping[str, Any], source: str = "") -> Options:
    """Options from names and values; None counts as not given."""
    for name in values:
        if name not in names(kind):
            where = f" in {source}" if source else ""
            raise DiscorlError(f"unknown setting {name!r}{where}; {near_matches(name, names(kind))}")
    return kind(**{name: _typed(kind, name, value) for name, value in values.items() if value is not None})


def check_numbers(options: Any) -> None:
    """Every number keeps to its least; call it in `__post_init__`."""
    for f in fields(options):
        value = getattr(options, f.name)
        for number in value if isinstance(value, tuple) else (value,):
            if f.metadata["least"] == "positive" and number is not None:
                require_positive(f.name, number)
            elif f.metadata["least"] == "zero" and isinstance(number, (int, float)) and not number >= 0:
                raise DiscorlError(f"{f.name} must not be negative, got {number}")


def read(kind: type, path: str | Path) -> dict[str, Any]:
    """Names and values of a TOML file, unchecked: `make` checks them together with what overrides them."""
    try:
        with Path(path).open("rb") as file:
            values = tomllib.load(file)
    except OSError as error:
        raise DiscorlError(f"cannot read the settings file {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DiscorlError(f"{path} is not valid TOML: {error}") from error
    if unknown := [name for name in values if name not in names(kind)]:
        raise DiscorlError(f"unknown setting {unknown[0]!r} in {path}; {near_matches(unknown[0], names(kind))}")
    return values


def dump(options: Any) -> str:
    """As TOML. What is None is left out."""
    rows = [f"{name} = {_toml(value)}" for name, value in asdict(options).items() if value is not None]
    return "\n".join(rows) + "\n"


def differences(old: Any, new: Any, free: Sequence[str]) -> list[str]:
    """What `new` changes, besides what is free to change, as 'name: old -> new'."""
    before, after = asdict(old), asdict(new)
    return [f"{n}: {before[n]} -> {after[n]}" for n in before if n not in free and before[n] != after[n]]


def plain_type(kind: type, name: str) -> tuple[type, type | None]:
    """The type of an option, and of its entries if it is a tuple; of `int | None` the int."""
    hint = _hints(kind)[name]
    plain = get_args(hint)[0] if isinstance(hint, types.UnionType) else hint
    return (tuple, get_args(plain)[0]) if get_origin(plain) is tuple else (plain, None)


def from_flag(kind: type, name: str) -> Any:
    """What turns the text of a flag into a value."""
    plain, entry = plain_type(kind, name)
    if entry is None:
        return plain

    def numbers(text: str) -> tuple[Any, ...]:  # its name stands in the message about a wrong one
        return tuple(entry(part) for part in text.split(",") if part.strip())

    return numbers


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _typed(kind: type, name: str, value: Any) -> Any:
    """Accepts what a TOML file or a Python caller would reasonably write for the type."""
    plain, entry = plain_type(kind, name)
    if entry is not None:
        if isinstance(value, (list, tuple)) and all(_is(v, entry) for v in value):
            return tuple(entry(v) for v in value)
    elif plain is str and isinstance(value, Path):
        return str(value)
    elif _is(value, plain):
        return plain(value)
    word = LISTS[plain, entry] if entry is not None else WORDS[plain]
    raise DiscorlError(f"{name} must be {word}, got {value!r}")


def _is(value: Any, wanted: type) -> bool:
    if wanted is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    return type(value) is wanted


def _toml(value: Any) -> str:
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, tuple):
        return "[" + ", ".join(_toml(v) for v in value) + "]"
    return str(value).lower() if isinstance(value, bool) else repr(value)
