"""Walks through an environment without resets, for tests of its equations."""

import jax
import jax.numpy as jnp
import numpy as np


def walk(env, start, actions):
    """Steps from a given state; every step has the same generator."""

    @jax.jit
    def steps(start, actions):
        return jax.lax.scan(lambda s, a: env.step(jax.random.key(0), s, a), start, actions)

    return jax.tree.map(np.asarray, steps(start, jnp.asarray(actions, jnp.int32))[1])


def against_chance(family, good, key, steps):
    """Mean returns of `good`, a policy, and of random actions: one episode each in 32 tasks, all of which must end."""

    def life(key):
        env = family.make(family.draw(key))
        words = jax.random.bits(key, (steps,))

        def step(carry, word):
            states, obs, alive, total = carry
            actions = jnp.stack([good(obs[0]), (word % family.spec.num_actions).astype(jnp.int32)])
            states, after = jax.vmap(env.step, in_axes=(None, 0, 0))(jax.random.fold_in(key, word), states, actions)
            total = total + jnp.where(alive, after.reward, 0.0)
            return (states, after.obs, alive & ~after.terminated & ~after.truncated, total), None

        states, obs = jax.vmap(env.reset)(jnp.stack([key, key]))
        carry = (states, obs, jnp.ones(2, bool), jnp.zeros(2, jnp.float32))
        return jax.lax.scan(step, carry, words)[0][2:]

    alive, total = jax.jit(jax.vmap(life))(jax.random.split(key, 32))
    assert not alive.any()
    return np.asarray(total).mean(0)
