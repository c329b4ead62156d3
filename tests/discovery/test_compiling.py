"""Quick compiling: the same program, and no option that another XLA lacks stands in the way."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from discorl.discovery.compiling import QUICK, compiled


def lowered() -> jax.stages.Lowered:
    return jax.jit(lambda x: jax.nn.softmax(jnp.tanh(x) @ x)).lower(X)


X = jnp.asarray(np.random.default_rng(0).standard_normal((9, 9)), jnp.float32)


def test_it_is_the_same_function() -> None:
    np.testing.assert_allclose(compiled(lowered())(X), lowered().compile()(X), rtol=1e-6)


def test_options_reach_the_compiler() -> None:
    options = lowered().compile(compiler_options=dict(QUICK))  # pyright: ignore[reportArgumentType] as long as this XLA knows them
    np.testing.assert_allclose(options(X), compiled(lowered())(X), rtol=0)
    with pytest.raises(Exception, match="xla_backend_optimization_level"):
        compiled(lowered(), {"xla_backend_optimization_level": True})


def test_an_option_that_xla_does_not_have_is_no_obstacle() -> None:
    program = compiled(lowered(), {"xla_option_of_another_day": True})
    np.testing.assert_allclose(program(X), lowered().compile()(X), rtol=1e-6)
