"""Strict JAX for every test: no silent rank promotion, no silent dtype promotion, no NaN."""

import os
from pathlib import Path

import jax
import pytest
import tiny

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")

# Many tests run the same few programs, and compiling them takes longer than all the rest.
jax.config.update("jax_compilation_cache_dir", tiny.CACHE)
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)

ROOT = Path(__file__).parents[1]
PUBLISHED = "disco_103.npz"


def published_rule() -> Path | None:
    """The published rule, where it is present: it is somebody else's file and not part of this repository."""
    folders = [Path(p) for p in os.environ.get("DISCORL_RULES", "").split(os.pathsep) if p]
    folders.append(ROOT.parent / "shared" / "weights")
    return next((f / PUBLISHED for f in folders if (f / PUBLISHED).is_file()), None)


@pytest.fixture(autouse=True, scope="module")
def compile_quickly(request: pytest.FixtureRequest) -> None:
    """Small programs need no optimising; figures and learning are checked on the programs that users run."""
    marks = getattr(request.module, "pytestmark", [])
    names = {mark.name for mark in (marks if isinstance(marks, list) else [marks])}
    jax.config.update("jax_disable_most_optimizations", not names & {"golden", "slow"})


@pytest.fixture(scope="session")
def disco103_path() -> Path:
    path = published_rule()
    if path is None:
        pytest.skip(f"the published rule {PUBLISHED} is not here; name its folder in DISCORL_RULES")
    return path


@pytest.fixture
def key() -> jax.Array:
    return jax.random.key(0)
