"""A value function with its own parameters, learned beside an agent."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from discorl import nn
from discorl.distributions import signed_parabolic
from discorl.networks.observations import as_float
from discorl.optim import AdamState, Hypers, adam, init_adam
from discorl.rules.moments import fresh_moments, normalise, update_moments
from discorl.rules.values import ValueMoments, batched_vtrace, importance_ratio
from discorl.types import Key, Observation, Rollout


@dataclass(frozen=True)
class ValueFunctionConfig:
    hidden: tuple[int, ...] = (256, 256)
    discount: float = 0.997
    trace_decay: float = 0.95
    learning_rate: float = 1e-3
    max_update: float = 1.0
    moment_decay: float = 0.99


class ValueFunctionState(NamedTuple):
    params: tuple[nn.Linear, ...]
    optimizer: AdamState
    moments: ValueMoments


class ValueEstimates(NamedTuple):
    value: Float[Array, "T1 B"]
    target: Float[Array, "T B"]
    advantage: Float[Array, "T B"]
    normalised_advantage: Float[Array, "T B"]
    td: Float[Array, "T B"]
    normalised_td: Float[Array, "T B"]


def init_value_function(key: Key, obs: Observation, config: ValueFunctionConfig) -> ValueFunctionState:
    """`obs` is one example observation."""
    inputs = sum(math.prod(x.shape) for x in jax.tree.leaves(obs))
    params = nn.init_mlp(key, inputs, (*config.hidden, 1))
    moments = ValueMoments(advantage=fresh_moments(), td=fresh_moments())
    return ValueFunctionState(params=params, optimizer=init_adam(params), moments=moments)


def raw_value(params: tuple[nn.Linear, ...], obs: Observation) -> Float[Array, "T1 B"]:
    """The network's output: a value in signed-hyperbolic space."""
    leaves = [as_float(x, params[0].w.dtype).reshape(*x.shape[:2], -1) for x in jax.tree.leaves(obs)]
    # like an agent's torso and head: no activation between the last hidden layer and the output
    return nn.linear(params[-1], nn.mlp(params[:-1], jnp.concatenate(leaves, axis=-1))).squeeze(-1)


def estimate(
    state: ValueFunctionState, rollout: Rollout, logits: Float[Array, "T1 B A"], config: ValueFunctionConfig
) -> tuple[ValueEstimates, ValueMoments]:
    """V-trace under the policy `logits`, and the moments after it; gradient-free."""
    value = signed_parabolic(raw_value(state.params, rollout.obs))
    rho = importance_ratio(logits[:-1], rollout.behaviour_logits, rollout.action)
    found = batched_vtrace(rollout.earned, config.discount * rollout.discount, value, rho, config.trace_decay)
    td = found.target - value[:-1]
    moments = ValueMoments(
        advantage=update_moments(state.moments.advantage, found.advantage, config.moment_decay),
        td=update_moments(state.moments.td, td, config.moment_decay),
    )
    estimates = ValueEstimates(
        value=value,
        target=found.target,
        advantage=found.advantage,
        normalised_advantage=normalise(moments.advantage, found.advantage),
        td=td,
        normalised_td=normalise(moments.td, td, centre=False),
    )
    return jax.lax.stop_gradient((estimates, moments))  # what to follow, not a path for gradients


def update_value_function(
    state: ValueFunctionState, rollout: Rollout, logits: Float[Array, "T1 B A"], config: ValueFunctionConfig
) -> tuple[ValueFunctionState, ValueEstimates, Float[Array, ""]]:
    """One step of ½(v − sg(v + normalised td))² on the raw output; the estimates are those of before the step."""
    estimates, moments = estimate(state, rollout, logits, config)

    def loss(params: tuple[nn.Linear, ...]) -> Float[Array, ""]:
        raw = raw_value(params, rollout.obs)[:-1]
        return 0.5 * jnp.square(raw - jax.lax.stop_gradient(raw + estimates.normalised_td)).mean()

    value_loss, grads = jax.value_and_grad(loss)(state.params)
    hypers = Hypers(learning_rate=config.learning_rate, max_update=config.max_update)
    change, optimizer = adam(grads, state.optimizer, state.params, hypers)
    params = jax.tree.map(jnp.add, state.params, change)
    return ValueFunctionState(params=params, optimizer=optimizer, moments=moments), estimates, value_loss
