"""What a user may plug in, and what is said when it does not fit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import small

from discorl import networks, nn
from discorl.envs.base import EnvSpec
from discorl.errors import DiscorlError
from discorl.networks import AgentNetwork, Torso
from discorl.types import ActionOutput, Needs, StateOutput

SPEC = EnvSpec(
    "toy",
    3,
    {"position": jax.ShapeDtypeStruct((2,), jnp.float32), "picture": jax.ShapeDtypeStruct((4, 4), jnp.uint8)},
)
NEEDS = Needs(y=5, z=5, q=7)


def observations(steps: int, batch: int):
    return {"position": jnp.ones((steps, batch, 2)), "picture": jnp.ones((steps, batch, 4, 4), jnp.uint8)}


def own_torso(width: int = 6) -> Torso:
    return networks.feed_forward(
        lambda key: nn.init_linear(key, 2, width), lambda params, obs: jnp.tanh(nn.linear(params, obs["position"]))
    )


def outputs(network: AgentNetwork, needs: Needs = NEEDS):
    params = network.init(jax.random.key(0))
    embedding, _ = network.unroll(params, network.memory(4), observations(3, 4), jnp.zeros((3, 4), jnp.bool_))
    root = network.root(params, embedding)
    return network.heads(params, embedding), network.model(params, root, jnp.zeros((3, 4), jnp.int32))


def test_the_mlp_takes_any_tree_of_observations() -> None:
    state, action = outputs(networks.mlp(SPEC, NEEDS, hidden=(8,), model_width=4, head_hidden=(4,)))
    assert (state.logits.shape, state.y.shape) == ((3, 4, 3), (3, 4, 5))
    assert (action.z.shape, action.q.shape, action.aux_pi.shape) == ((3, 4, 5), (3, 4, 7), (3, 4, 3))


def test_a_torso_of_ones_own_gets_the_heads_the_rule_needs() -> None:
    state, action = outputs(networks.assemble(own_torso(), SPEC, NEEDS, model_width=4, head_hidden=(4,)))
    assert state.y.shape == (3, 4, 5)
    assert action.q.shape == (3, 4, 7)


def test_rules_without_a_model_get_none() -> None:
    network = networks.assemble(own_torso(), SPEC, Needs(y=5))
    assert network.init(jax.random.key(0)).model == ()


def test_one_action_for_all_states_equals_that_action_everywhere() -> None:
    network = networks.assemble(own_torso(), SPEC, NEEDS, model_width=4, head_hidden=(4,))
    params = network.init(jax.random.key(0))
    embedding, _ = network.unroll(params, (), observations(3, 4), jnp.zeros((3, 4), jnp.bool_))
    root = network.root(params, embedding)
    for a in range(3):
        one = network.model(params, root, jnp.int32(a))
        everywhere = network.model(params, root, jnp.full((3, 4), a, jnp.int32))
        jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-6, atol=1e-7), one, everywhere)


def test_policies_start_close_to_uniform() -> None:
    state, _ = outputs(networks.mlp(SPEC, NEEDS))
    np.testing.assert_allclose(jax.nn.softmax(state.logits), 1 / 3, atol=0.1)


def whole_network(q: int) -> AgentNetwork:
    """Everything written by the user."""

    def zeros(*shape: int):
        return jnp.zeros(shape)

    return AgentNetwork(
        init=lambda key: zeros(2),
        memory=lambda batch: (),
        unroll=lambda params, memory, obs, first: (obs["position"] + params.reshape(1, 1, 2), memory),
        heads=lambda params, e: StateOutput(logits=zeros(*e.shape[:2], 3), y=zeros(*e.shape[:2], 5)),
        root=lambda params, e: e,
        model=lambda params, root, action: ActionOutput(
            z=zeros(*root.shape[:2], 5), q=zeros(*root.shape[:2], q), aux_pi=zeros(*root.shape[:2], 3)
        ),
    )


def test_a_whole_network_of_ones_own_is_checked() -> None:
    networks.check_network(whole_network(q=7), SPEC, NEEDS)
    with pytest.raises(DiscorlError) as caught:
        networks.check_network(whole_network(q=9), SPEC, NEEDS)
    assert "emits" in str(caught.value)
    assert "q [9]" in str(caught.value)  # what it does
    assert "q [7]" in str(caught.value)  # what it should


def test_a_torso_that_does_not_fit_the_observations_is_named() -> None:
    torso = networks.feed_forward(lambda key: nn.init_linear(key, 9, 6), lambda p, obs: nn.linear(p, obs["position"]))
    with pytest.raises(DiscorlError, match="torso does not run on the observations of 'toy'"):
        networks.assemble(torso, SPEC, NEEDS)


def test_a_torso_must_emit_vectors() -> None:
    torso = networks.feed_forward(lambda key: (), lambda params, obs: obs["picture"].astype(jnp.float32))
    with pytest.raises(DiscorlError, match=r"must emit one vector per observation.*emits \(2, 3, 4, 4\)"):
        networks.assemble(torso, SPEC, NEEDS)


def test_a_recurrent_torso_carries_its_memory() -> None:
    """An LSTM core: unrolling equals stepping, and `first` forgets."""
    width = 4

    def unroll(params, memory, obs, first):
        def step(state, at):
            x, reset = at
            keep = 1 - reset.astype(x.dtype)[:, None]
            state = nn.lstm_step(params, x, jax.tree.map(lambda s: keep * s, state))
            return state, state.hidden

        memory, hidden = jax.lax.scan(step, memory, (obs, first))
        return hidden, memory

    torso = Torso(
        init=lambda key: nn.init_lstm(key, small.OBS, width),
        memory=lambda batch: nn.zero_lstm_state(width, (batch,)),
        unroll=unroll,
    )
    spec = EnvSpec("recurrent", 3, jax.ShapeDtypeStruct((small.OBS,), jnp.float32))
    network = networks.assemble(torso, spec, NEEDS)
    rollout = small.rollout()
    params = network.init(jax.random.key(0))
    whole, last = network.unroll(params, network.memory(small.B), rollout.obs, rollout.first)
    memory = network.memory(small.B)
    for t in range(small.T + 1):
        row, memory = network.unroll(params, memory, rollout.obs[t : t + 1], rollout.first[t : t + 1])
        np.testing.assert_allclose(row[0], whole[t], rtol=1e-5, atol=1e-6)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), memory, last)
