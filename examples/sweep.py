# ci: --updates 40
"""Training is a pure function of its numbers: a sweep over learning rates is a `vmap`, compiled once.

python examples/sweep.py
"""

import argparse

import jax
import jax.numpy as jnp

import discorl

RATES = jnp.array([1e-4, 1e-3, 1e-2])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=300)
    updates = parser.parse_args().updates

    env = discorl.envs.catch(rows=5, columns=5)
    rule, eta = discorl.load_rule("policy_gradient")
    network = discorl.networks.mlp(env.spec, rule.needs, hidden=(64, 64))
    training = discorl.make_training(env, network, rule, discorl.TrainConfig(envs=16, batch=32, rollout=16))

    @jax.jit
    @jax.vmap
    def late_return(learning_rate):
        hypers = discorl.Hypers(learning_rate=learning_rate)
        state = training.init(jax.random.key(0), hypers)
        _, info = training.advance(eta, hypers, state, updates)
        return info.return_sum[-20:].sum() / info.episodes[-20:].sum()

    for rate, value in zip(RATES, late_return(RATES), strict=True):
        print(f"learning rate {rate:.0e}: average return {value:+.2f} over the last 20 updates")


if __name__ == "__main__":
    main()
