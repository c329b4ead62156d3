"""Quick compiling: the same program, and no option that another XLA lacks stands in the way."""

import gc
import os
import re
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from discorl.discovery.compiling import QUICK, compiled


def lowered() -> jax.stages.Lowered:
    return jax.jit(lambda x: jax.nn.softmax(jnp.tanh(x) @ x)).lower(X)


X = jnp.asarray(np.random.default_rng(0).standard_normal((9, 9)), jnp.float32)


def test_it_is_the_same_function() -> None:
    np.testing.assert_allclose(compiled(lowered)(X), lowered().compile()(X), rtol=1e-6)


def test_options_reach_the_compiler() -> None:
    options = lowered().compile(compiler_options=dict(QUICK))  # pyright: ignore[reportArgumentType] as long as this XLA knows them
    np.testing.assert_allclose(options(X), compiled(lowered)(X), rtol=0)
    with pytest.raises(Exception, match="xla_backend_optimization_level"):
        compiled(lowered, {"xla_backend_optimization_level": True})


def test_an_option_that_xla_does_not_have_is_no_obstacle() -> None:
    program = compiled(lowered, {"xla_option_of_another_day": True})
    np.testing.assert_allclose(program(X), lowered().compile()(X), rtol=1e-6)


def test_instructions_carry_no_lines_of_python_and_others_still_do() -> None:
    seen = []

    def look() -> jax.stages.Lowered:
        seen.append(lowered())
        return seen[-1]

    compiled(look)
    look()
    here = [Path(__file__).name in program.as_text(debug_info=True) for program in seen]
    assert here == [False, True]


@pytest.mark.parametrize("before", [True, False])
def test_nothing_is_collected_while_tracing_and_then_as_before(before: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gc, "isenabled", lambda: before)
    called = []
    monkeypatch.setattr(gc, "disable", lambda: called.append("disable"))
    monkeypatch.setattr(gc, "enable", lambda: called.append("enable"))

    def look() -> jax.stages.Lowered:
        called.append("trace")
        return lowered()

    compiled(look)
    assert called == ["disable", "trace", *(["enable"] if before else [])]


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="it is the CPU's compiler that is asked")
def test_loops_stay_loops(tmp_path: Path) -> None:
    """Seen in the code that LLVM leaves: with several turns at a time there are more additions."""
    code = """
import jax, jax.numpy as jnp
from discorl.discovery import compiling
{}
compiling.compiled(lambda: jax.jit(lambda x: x * x + 1).lower(jnp.ones(10_000)))
"""

    def additions(name: str, before: str, flags: str = "") -> int:
        where = tmp_path / name
        environment = os.environ | {"XLA_FLAGS": f"--xla_dump_to={where} {flags}", "JAX_ENABLE_COMPILATION_CACHE": "0"}
        subprocess.run([sys.executable, "-c", code.format(before)], env=environment, check=True)
        made = where.glob("*lambda*ir-with-opt*.ll")  # one file or several, as XLA likes
        return sum(len(re.findall(r"= fadd", part.read_text())) for part in made)

    with_it, without = additions("kept", "compiling.keep_loops()"), additions("usual", "")
    assert 0 < with_it < without
    own = "--xla_backend_extra_options=xla_cpu_some_other"
    assert additions("own", "compiling.keep_loops()", own) == without  # somebody's own options stay as they are
