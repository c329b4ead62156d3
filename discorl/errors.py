"""Mistakes a person can make, as opposed to bugs of ours."""

from collections.abc import Iterable
from difflib import get_close_matches


class DiscorlError(Exception):
    """One clear sentence and the way out. The command line prints it and exits with 2."""


def near_matches(name: str, known: Iterable[str]) -> str:
    """The end of an 'unknown name' message: what was probably meant, or all there is."""
    known = sorted(known)
    close = get_close_matches(name, known, n=3, cutoff=0.5)
    if close:
        return "did you mean " + " or ".join(repr(c) for c in close) + "?"
    return "known: " + ", ".join(known)


def require_positive(name: str, value: float | int) -> None:
    if not value > 0:
        raise DiscorlError(f"{name} must be positive, got {value}")
