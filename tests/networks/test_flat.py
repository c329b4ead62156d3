"""All parameters in one vector: the same network, the same gradients."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import small
from jax.flatten_util import ravel_pytree

from discorl import networks
from discorl.discovery import gradients
from discorl.envs.base import EnvSpec
from discorl.errors import DiscorlError
from discorl.learner import agent_loss, make_learner
from discorl.optim import Hypers
from discorl.types import Needs

SPEC = EnvSpec("toy", 3, jax.ShapeDtypeStruct((2,), jnp.float32))


def test_an_update_is_the_same_on_a_vector() -> None:
    case = small.small()
    flat = networks.flat(case.network)
    after = []
    for network, state in (
        (case.network, case.state),
        (flat, jax.tree.map(jnp.asarray, case.state)._replace(**_vectors(case.state))),
    ):
        learner = make_learner(network, case.rule, gradient=partial(gradients.mixed().inner, jnp.int32(1)))
        state, _ = jax.jit(learner.step)(case.eta, Hypers(learning_rate=1e-2), state, case.rollout)
        after.append(ravel_pytree((state.params, state.target_params))[0])
    np.testing.assert_allclose(after[1], after[0], rtol=1e-5, atol=1e-6)


def _vectors(state) -> dict:
    adam = state.optimizer
    vector = lambda tree: ravel_pytree(tree)[0]  # noqa: E731
    return {
        "params": vector(state.params),
        "target_params": vector(state.target_params),
        "optimizer": adam._replace(first=vector(adam.first), second=vector(adam.second)),
    }


def test_its_gradient_is_the_gradient_of_the_tree() -> None:
    case = small.small()
    lesson = make_learner(case.network, case.rule).lesson
    _, _, found = jax.jit(lesson)(case.eta, Hypers(), case.state, case.rollout)

    def gradient(network, params):
        loss = lambda p: agent_loss(network, case.rule, "reference", p, found.targets, case.rollout)[0]  # noqa: E731
        return jax.grad(loss)(params)

    expected = ravel_pytree(gradient(case.network, case.state.params))[0]
    got = gradient(networks.flat(case.network), ravel_pytree(case.state.params)[0])
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-6)


def test_a_birth_is_the_same() -> None:
    network = small.small().network
    key = jax.random.key(3)
    np.testing.assert_array_equal(networks.flat(network).init(key), ravel_pytree(network.init(key))[0])


def test_statistics_among_the_parameters_are_refused() -> None:
    network = networks.normalised(networks.mlp(SPEC, Needs(y=5, z=5, q=7), hidden=(4,)), SPEC)
    with pytest.raises(DiscorlError, match="statistics"):
        networks.flat(network)


def test_several_number_types_are_refused() -> None:
    network = networks.mlp(SPEC, Needs(y=5, z=5, q=7), hidden=(4,))
    mixed = network._replace(init=lambda key: (network.init(key), jnp.zeros(3, jnp.bfloat16)))
    with pytest.raises(DiscorlError, match="number types"):
        networks.flat(mixed)
