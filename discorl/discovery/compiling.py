"""A discovery's programs, compiled in less than half the time that XLA would take by itself."""

import gc
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import jax
from jax.stages import Compiled, Lowered

# A stretch of discovery is 1,100 small kernels, most of which run for microseconds: on CPU, making them well takes
# longer than it saves (docs/discovery-log.md has figures). Products do not suffer, they are somebody else's code.
QUICK: Mapping[str, bool | int] = {"xla_cpu_use_fusion_emitters": False, "xla_backend_optimization_level": 1}
UNKNOWN = "No such compile option"  # what XLA says of an option that this version does not have
EXTRA = "xla_backend_extra_options"  # XLA takes these from its environment only, and ignores those it does not know
LOCATIONS = "jax_traceback_in_locations_limit"


def keep_loops() -> None:
    """Loops are compiled as loops, not as several turns at a time; before JAX computes anything.

    For all programs of this process, unless somebody has set such options already.
    """
    flags = os.environ.get("XLA_FLAGS", "")
    if EXTRA not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} --{EXTRA}=xla_cpu_disable_loop_unrolling".strip()


def compiled(lower: Callable[[], Lowered], options: Mapping[str, bool | int] = QUICK) -> Compiled:
    """The program that `lower` makes."""
    with _no_locations(), _no_collection():
        program = lower()
    if jax.default_backend() != "cpu":
        return program.compile()
    wanted: Any = dict(options)
    try:
        return program.compile(compiler_options=wanted)
    except jax.errors.JaxRuntimeError as error:
        if UNKNOWN not in str(error):
            raise
        return program.compile()


@contextmanager
def _no_locations() -> Iterator[None]:
    """Instructions do not remember which line of Python they came from: the compiler copies that from pass to pass."""
    before = jax.config.values[LOCATIONS]
    jax.config.update(LOCATIONS, 0)
    try:
        yield
    finally:
        jax.config.update(LOCATIONS, before)


@contextmanager
def _no_collection() -> Iterator[None]:
    """Tracing makes millions of small objects, and nearly all stay: looking for garbage among them is in vain."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
