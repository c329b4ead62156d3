"""A memory: forgets at episode starts, travels with rollouts, and is trained as if nothing had been cut."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import small

from discorl import acting, networks
from discorl.envs import batch, probes
from discorl.envs.base import EnvSpec
from discorl.errors import DiscorlError
from discorl.learner import agent_loss, burn_in, make_learner
from discorl.networks import AgentNetwork
from discorl.optim import Hypers
from discorl.replay import add_rollout, init_replay, sample_rollout
from discorl.rules.actor_critic import ActorCriticConfig, ActorCriticTargets, actor_critic
from discorl.training import TrainConfig, make_training
from discorl.types import ActionOutput, Needs, Rollout

SPEC = EnvSpec("small", small.A, jax.ShapeDtypeStruct((small.OBS,), jnp.float32))
RULE = actor_critic(ActorCriticConfig(value_bins=7))
CELLS = ["lstm", "gru"]


def recurrent(cell: str, spec: EnvSpec = SPEC, needs: Needs = RULE.needs) -> AgentNetwork:
    torso = networks.recurrent(networks.mlp_torso(spec, (4,), last=jax.nn.relu), spec, width=3, cell=cell)
    return networks.assemble(torso, spec, needs)


def twice(seed: int = 0) -> Rollout:
    """A rollout of 2T transitions; an episode starts with step T in every stream."""
    one, two = small.rollout(seed), small.rollout(seed + 1)
    joined = jax.tree.map(lambda a, b: jnp.concatenate([a[: small.T], b]), one, two)
    return joined._replace(first=joined.first.at[small.T].set(True))


def close(a, b, tolerance: float = 1e-5) -> None:
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance), a, b)


@pytest.mark.parametrize("cell", CELLS)
def test_unrolling_with_resets_equals_stepping_one_by_one(cell: str, key: jax.Array) -> None:
    network, rollout = recurrent(cell), small.rollout(3)
    params = jax.jit(network.init)(key)
    born = network.memory(small.B)
    last_life = jax.tree.map(lambda x: x + 1, born)  # must be forgotten where an episode starts, and only there
    unroll = jax.jit(network.unroll)
    whole, after = unroll(params, last_life, rollout.obs, rollout.first)
    assert rollout.first.any()
    assert not rollout.first.all(axis=1).any()
    memory, never = last_life, jnp.zeros((1, small.B), jnp.bool_)
    for t in range(small.T + 1):
        start = rollout.first[t][:, None]
        memory = jax.tree.map(lambda m, b, start=start: jnp.where(start, b, m), memory, born)
        row, memory = unroll(params, memory, rollout.obs[t : t + 1], never)
        close(row[0], whole[t])
    close(memory, after)


@pytest.mark.parametrize("cell", CELLS)
def test_training_on_a_stored_state_equals_the_full_unroll_where_an_episode_starts(cell: str, key: jax.Array) -> None:
    """Cut at a start, the second half has the loss and the gradient it has as part of the whole, whatever is stored."""
    network, long = recurrent(cell), twice()
    params = jax.jit(network.init)(key)
    cut = small.T
    stale = jax.tree.map(lambda x: x + 1, network.memory(small.B))
    second = jax.tree.map(lambda x: x[cut:], long._replace(memory=()))._replace(memory=stale)
    advantage, value = jax.random.normal(key, (2, *second.reward.shape))
    targets = ActorCriticTargets(advantage=advantage, value=value)

    def part_of_whole(params):
        embedding, _ = network.unroll(params, network.memory(small.B), long.obs, long.first)
        state = jax.tree.map(lambda x: x[cut:], network.heads(params, embedding))
        losses, _ = RULE.loss(state, ActionOutput(*[jnp.zeros((small.T, small.B, 0))] * 3), targets, second)
        return losses.mean()

    def alone(params):
        return agent_loss(network, RULE, "all", params, targets, second)[0]

    close(jax.jit(jax.value_and_grad(alone))(params), jax.jit(jax.value_and_grad(part_of_whole))(params))


@pytest.mark.parametrize("cell", CELLS)
def test_rollouts_carry_the_memory_that_acting_had(cell: str, key: jax.Array) -> None:
    """Through the replay too: the same parameters say of a stored rollout what they said while acting."""
    env = batch(probes.memory(4), 3)
    network = recurrent(cell, env.spec)
    params = jax.jit(network.init)(key)
    unroll = jax.jit(acting.unroll, static_argnums=(0, 1, 5))
    actor, one, _ = unroll(network, env, params, key, acting.begin(network, env, key), 6)
    _, two, _ = unroll(network, env, params, key, actor, 6)
    assert not two.first[0].any()  # it starts in the middle of an episode

    @jax.jit
    def through_replay(key, one, two):
        ring = add_rollout(add_rollout(init_replay(one, capacity=6), one), two)
        got = sample_rollout(key, ring, two, batch=5, fresh_count=2)
        embedding, _ = network.unroll(params, got.memory, got.obs, got.first)
        return network.heads(params, embedding).logits[:-1], got.behaviour_logits

    close(*through_replay(key, one, two))


def test_burning_in_makes_a_memory_of_now_and_leaves_the_rest(key: jax.Array) -> None:
    network, long = recurrent("lstm"), twice()
    long = long._replace(memory=network.memory(small.B), first=jnp.zeros_like(long.first))
    params = jax.jit(network.init)(key)
    unroll = jax.jit(network.unroll)
    rest = jax.jit(lambda p, rollout: burn_in(network, p, rollout, 4))(params, long)
    whole, _ = unroll(params, long.memory, long.obs, long.first)
    close(unroll(params, rest.memory, rest.obs, rest.first)[0], whole[4:])
    np.testing.assert_array_equal(rest.reward, long.reward[4:])
    np.testing.assert_array_equal(rest.obs, long.obs[4:])


def test_no_gradient_flows_through_the_burnt_steps(key: jax.Array) -> None:
    """One update with burn-in equals one on the rest of the rollout with the burnt-in memory as a constant."""
    network, long = recurrent("lstm"), twice()._replace(memory=recurrent("lstm").memory(small.B))
    long = long._replace(first=jnp.zeros_like(long.first))
    burning, plain = make_learner(network, RULE, "all", burn=4), make_learner(network, RULE, "all")
    state = jax.jit(plain.init)(key, long.obs[0, 0])
    _, got = jax.jit(burning.step)((), Hypers(), state, long)
    burnt = jax.jit(lambda p: burn_in(network, p, long, 4))(state.params)
    _, expected = jax.jit(plain.step)((), Hypers(), state, burnt)
    close((got.total_loss, got.gradient_norm), (expected.total_loss, expected.gradient_norm))
    # the memory depends on the parameters, but nobody can differentiate through it
    sensitivity = jax.grad(lambda p: sum(x.sum() for x in jax.tree.leaves(burn_in(network, p, long, 4).memory)))
    assert all(not g.any() for g in jax.tree.leaves(jax.jit(sensitivity)(state.params)))


def test_mistakes_are_one_sentence() -> None:
    with pytest.raises(DiscorlError, match="unknown cell 'lstn'; did you mean 'lstm'"):
        recurrent("lstn")
    env = probes.memory()
    plain = networks.mlp(env.spec, RULE.needs, hidden=(3,))
    with pytest.raises(DiscorlError, match="this agent has none"):
        make_training(env, plain, RULE, TrainConfig(envs=2, batch=2, rollout=5, burn_in=2))
    for wrong, message in ((5, "leaves nothing to learn from"), (-1, "must not be negative")):
        with pytest.raises(DiscorlError, match=message):
            TrainConfig(envs=2, batch=2, rollout=5, burn_in=wrong)
    torso = networks.recurrent(networks.mlp_torso(SPEC, (4,)), SPEC, width=3)
    grows = torso._replace(memory=lambda batch: jax.tree.map(lambda x: x[:, :2], torso.memory(batch)))
    with pytest.raises(DiscorlError):
        networks.assemble(grows, SPEC, RULE.needs)
    forgets = torso._replace(unroll=lambda *a: (torso.unroll(*a)[0], ()))
    with pytest.raises(DiscorlError, match="memory must keep its shape"):
        networks.assemble(forgets, SPEC, RULE.needs)
