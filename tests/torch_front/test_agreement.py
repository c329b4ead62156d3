"""The two fronts against each other: the same parameters and rollouts, loss, targets and gradients."""

from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch.nn", reason="needs PyTorch: pip install 'discorl[torch]'")
pytest.importorskip("jax", reason="needs JAX: pip install discorl")

import jax
import torch
import torch_cases as cases
from torch import Tensor

import discorl.types as jax_types
from discorl import networks, nn
from discorl.envs.base import EnvSpec
from discorl.learner import LearnerInfo, LearnerState, agent_loss, make_learner, see
from discorl.networks.assembly import ModelParams, NetworkParams
from discorl.optim import Hypers
from discorl.rules.disco import disco
from discorl.rules.meta_network import from_arrays
from discorl_torch.agent import DiscoAgent
from discorl_torch.learner import Learner
from discorl_torch.optim import ClippedAdam
from discorl_torch.torsos import MLPTorso

OBS = 4


def linear(layer: torch.nn.Linear, of: str = "data") -> nn.Linear:
    read = (lambda p: p.grad) if of == "grad" else (lambda p: p.detach())
    return nn.Linear(*(jax.numpy.asarray(read(p).numpy().copy().T) for p in (layer.weight, layer.bias)))


def mlp(layers: Any, of: str) -> tuple[nn.Linear, ...]:
    return tuple(linear(layer, of) for layer in layers if isinstance(layer, torch.nn.Linear))


def as_jax(agent: DiscoAgent, of: str = "data") -> NetworkParams:
    """Parameters of a PyTorch agent, or their gradients, as those of the same JAX network."""
    model = ModelParams(
        cell=linear(agent.cell, of),
        lstm=linear(agent.lstm, of),
        z=mlp(agent.z, of),
        q=mlp(agent.q, of),
        aux_pi=mlp(agent.aux_pi, of),
    )
    assert isinstance(agent.torso, MLPTorso)
    return NetworkParams(mlp(agent.torso.layers, of), linear(agent.logits, of), linear(agent.y, of), model)


def compare(jax_tree: Any, torch_tree: Any, rtol: float, atol: float) -> None:
    for a, b in zip(jax.tree.leaves(jax_tree), jax.tree.leaves(torch_tree), strict=True):
        scale = np.abs(np.asarray(a)).max(initial=0)
        np.testing.assert_allclose(np.asarray(b), np.asarray(a), rtol=rtol, atol=atol + rtol * scale)


@pytest.mark.parametrize(
    "T, B, A, activation, mask, entropy_cost",
    [(2, 2, 2, "relu", "reference", 0.0), (5, 3, 3, "silu", "all", 0.3), (9, 65, 5, "relu", "reference", 0.0)],
)
def test_two_updates_agree(T, B, A, activation, mask, entropy_cost):
    config = cases.tiny_rule(activation=activation, entropy_cost=entropy_cost).config
    arrays = cases.seeded_arrays(3, config)
    agent = cases.tiny_agent(A, OBS, config)
    learner = Learner(agent, cases.DiscoRule(config, arrays), ClippedAdam(agent.parameters(), lr=1e-2), mask=mask)

    rule, eta = disco(config), from_arrays(arrays, config)
    spec = EnvSpec("random", A, jax.ShapeDtypeStruct((OBS,), jax.numpy.float32))
    network = networks.mlp(spec, rule.needs, hidden=(7,), model_width=5, head_hidden=(6,))
    other = make_learner(network, rule, mask=mask)
    state = other.init(jax.random.key(0), jax.numpy.zeros(OBS))
    state = state._replace(params=as_jax(agent), target_params=as_jax(agent))

    @jax.jit
    def both(state: LearnerState, rollout: jax_types.Rollout) -> tuple[LearnerState, LearnerInfo, Any]:
        online, target = (see(network, rule, eta, p, rollout) for p in (state.params, state.target_params))
        targets, _, _ = rule.targets(eta, state.rule, jax_types.Experience(rollout, online, target))
        grad = jax.grad(agent_loss, argnums=3, has_aux=True)
        after, info = other.step(eta, Hypers(learning_rate=1e-2), state, rollout)
        return after, info, grad(network, rule, mask, state.params, targets, rollout)[0]

    for i in range(2):
        rollout = cases.random_rollout(T, B, A, OBS, seed=i)
        if mask == "all":  # some of its ends were a clock's
            rollout = rollout._replace(rest=torch.where(rollout.discount == 0, 5.0, 0.0))
        theirs = jax_rollout(rollout)
        logs = learner.update(rollout)
        state, info, grads = both(state, theirs)
        for name, got in logs.items():
            source = next(x for x in (info, info.targets, info.loss, info.report) if hasattr(x, name))
            np.testing.assert_allclose(got, getattr(source, name), rtol=2e-4, atol=2e-4, err_msg=name)
        compare(grads, as_jax(agent, "grad"), rtol=1e-3, atol=1e-6)
        lifetime = [learner.rule_state.lifetime.hidden.numpy(), learner.rule_state.lifetime.cell.numpy()]
        compare([state.rule.lifetime.hidden, state.rule.lifetime.cell], lifetime, rtol=1e-4, atol=1e-5)
        moments = [x.numpy() for x in (*learner.rule_state.advantage, *learner.rule_state.td)]
        compare([*state.rule.moments.advantage, *state.rule.moments.td], moments, rtol=1e-4, atol=1e-5)
        # Adam's first steps are sign-like: go on from the same parameters
        state = state._replace(params=as_jax(agent), target_params=as_jax(learner.target_agent))  # pyright: ignore


def jax_rollout(rollout: cases.Rollout) -> jax_types.Rollout:
    def convert(x: Tensor) -> Any:
        return jax.numpy.asarray(x.numpy())

    return jax_types.Rollout(
        obs=convert(rollout.obs),
        first=convert(rollout.first),
        action=convert(rollout.action.int()),
        reward=convert(rollout.reward),
        discount=convert(rollout.discount),
        behaviour_logits=convert(rollout.behaviour_logits),
        memory=(),
        rest=() if isinstance(rollout.rest, tuple) else convert(rollout.rest),
    )
