"""A discovery's programs, compiled in about half the time that XLA would take by itself."""

from collections.abc import Mapping
from typing import Any

import jax
from jax.stages import Compiled, Lowered

# A stretch of discovery is 1,100 small kernels, most of which run for microseconds: on CPU, making them well takes
# longer than it saves (docs/discovery.md has figures). Products do not suffer, they are somebody else's code.
QUICK: Mapping[str, bool | int] = {"xla_cpu_use_fusion_emitters": False, "xla_backend_optimization_level": 1}
UNKNOWN = "No such compile option"  # what XLA says of an option that this version does not have


def compiled(program: Lowered, options: Mapping[str, bool | int] = QUICK) -> Compiled:
    if jax.default_backend() != "cpu":
        return program.compile()
    wanted: Any = dict(options)
    try:
        return program.compile(compiler_options=wanted)
    except jax.errors.JaxRuntimeError as error:
        if UNKNOWN not in str(error):
            raise
        return program.compile()
