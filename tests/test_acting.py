"""Rollouts against acting step by step in plain Python."""

import jax
import jax.numpy as jnp
import numpy as np

from discorl import acting, networks
from discorl.envs import batch, catch
from discorl.types import Needs

ENVS, LENGTH = 3, 11
ENV = batch(catch(4, 3), ENVS)
NETWORK = networks.mlp(ENV.spec, Needs(), hidden=(6,))


def test_a_rollout_is_acting_step_by_step(key: jax.Array) -> None:
    key_params, key_begin, key_act = jax.random.split(key, 3)
    params = NETWORK.init(key_params)
    actor = acting.begin(NETWORK, ENV, key_begin)
    after, rollout, ends = jax.jit(acting.unroll, static_argnums=(0, 1, 5))(
        NETWORK, ENV, params, key_act, actor, LENGTH
    )
    env_state, obs, first = actor.env, actor.obs, actor.first
    for t, k in enumerate(jax.random.split(key_act, LENGTH)):
        k_act, k_env = jax.random.split(k)
        np.testing.assert_array_equal(rollout.obs[t], obs)
        np.testing.assert_array_equal(rollout.first[t], first)
        acted = acting.act(NETWORK, params, (), obs, first, k_act)
        np.testing.assert_array_equal(rollout.action[t], acted.action)
        np.testing.assert_allclose(rollout.behaviour_logits[t], acted.logits, rtol=1e-5, atol=1e-6)
        env_state, came = ENV.step(k_env, env_state, acted.action)
        np.testing.assert_array_equal(rollout.reward[t], came.reward)
        np.testing.assert_array_equal(rollout.discount[t], came.discount)
        np.testing.assert_array_equal(ends.ended[t], came.end.ended)
        obs, first = came.obs, came.first
    np.testing.assert_array_equal(rollout.obs[-1], obs)
    np.testing.assert_array_equal(after.first, first)


def test_the_next_rollout_starts_where_the_last_one_ended(key: jax.Array) -> None:
    params = NETWORK.init(key)
    actor = acting.begin(NETWORK, ENV, key)
    actor, one, _ = acting.unroll(NETWORK, ENV, params, jax.random.key(1), actor, 5)
    _, two, _ = acting.unroll(NETWORK, ENV, params, jax.random.key(2), actor, 5)
    np.testing.assert_array_equal(one.obs[-1], two.obs[0])
    np.testing.assert_array_equal(one.first[-1], two.first[0])
    # an episode that ended with the last transition shows as a first observation in the next rollout
    np.testing.assert_array_equal(one.discount[-1] == 0, two.first[0])


def test_greedy_actions_are_the_most_likely_ones(key: jax.Array) -> None:
    params = NETWORK.init(key)
    actor = acting.begin(NETWORK, ENV, key)
    acted = acting.act(NETWORK, params, (), actor.obs, actor.first, key, greedy=True)
    np.testing.assert_array_equal(acted.action, jnp.argmax(acted.logits, -1))


def test_sampled_actions_follow_the_policy(key: jax.Array) -> None:
    params = NETWORK.init(key)
    params = params._replace(logits=params.logits._replace(b=jnp.log(jnp.array([0.7, 0.2, 0.1]))))
    obs = jnp.zeros((6000, 4, 3))
    acted = acting.act(NETWORK, params, (), obs, jnp.ones(6000, jnp.bool_), key)
    share = np.bincount(acted.action, minlength=3) / 6000
    np.testing.assert_allclose(share, [0.7, 0.2, 0.1], atol=0.03)
