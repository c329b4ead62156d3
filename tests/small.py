"""A rule, a network and experience small enough to differentiate in float64."""

from functools import cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from discorl import networks
from discorl.envs.base import EnvSpec
from discorl.learner import LearnerState, make_learner
from discorl.networks.base import AgentNetwork
from discorl.rule_config import DiscoConfig
from discorl.rules.base import UpdateRule
from discorl.rules.disco import disco
from discorl.rules.meta_network import InitScales, MetaParams
from discorl.types import Rollout

T, B, A, OBS = 5, 4, 3, 6
CONFIG = DiscoConfig(
    predictions=7,
    value_bins=11,
    max_value=5.0,
    trajectory_width=6,
    lifetime_width=5,
    prediction_embedding=(4, 2),
    action_channels=(4, 3),
    policy_channels=(4,),
    lifetime_inputs=4,
    activation="silu",  # smooth: finite differences meet no corners in the meta-network
)


class Small(NamedTuple):
    rule: UpdateRule
    eta: MetaParams
    network: AgentNetwork
    state: LearnerState
    rollout: Rollout


def rollout(seed: int = 0, batch: int = B, actions: int = A) -> Rollout:
    rng = np.random.default_rng(seed)
    draw = lambda *shape: jnp.asarray(rng.standard_normal(shape), jnp.float32)  # noqa: E731
    ended = rng.random((T + 1, batch)) < 0.3
    return Rollout(
        obs=draw(T + 1, batch, OBS),
        first=jnp.asarray(ended),
        action=jnp.asarray(rng.integers(actions, size=(T, batch)), jnp.int32),
        reward=draw(T, batch),
        discount=jnp.asarray(~ended[1:], jnp.float32),
        behaviour_logits=draw(T, batch, actions),
        memory=(),
    )


@cache
def small(seed: int = 0, actions: int = A) -> Small:
    """Mid-life: the lifetime state is no longer zero and the target parameters differ from the agent's own."""
    rule = disco(CONFIG, InitScales(gate_bias=1.0))
    keys = jax.random.split(jax.random.key(seed))
    eta = jax.jit(rule.init)(keys[0])
    spec = EnvSpec("small", actions, jax.ShapeDtypeStruct((OBS,), jnp.float32))
    network = networks.mlp(spec, rule.needs, hidden=(8, 7), model_width=5, head_hidden=(6,))
    state = jax.jit(make_learner(network, rule).init)(keys[1], jnp.zeros(OBS))
    # heads start small; a policy that is not uniform makes for a harder test
    rng = np.random.default_rng(seed)
    shaken = lambda size: lambda p: p + jnp.asarray(size * rng.standard_normal(p.shape), jnp.float32)  # noqa: E731
    params = jax.tree.map(shaken(0.3), state.params)
    target = jax.tree.map(shaken(0.1), params)
    lifetime = jax.tree.map(lambda x: x + 0.5, state.rule.lifetime)
    state = state._replace(params=params, target_params=target, rule=state.rule._replace(lifetime=lifetime))
    return Small(rule, eta, network, state, rollout(seed, actions=actions))


def as_float64(tree):
    """Every float as float64; only under `jax.enable_x64`."""
    wide = lambda x: x.astype(jnp.float64) if jnp.issubdtype(x.dtype, jnp.floating) else x  # noqa: E731
    return jax.tree.map(wide, tree)
