# ci: --updates 4
"""Networks of other libraries as an agent's torso: Flax, Equinox and Haiku. `assemble` adds what the rule needs.

    pip install 'discorl[examples]'
    python examples/custom_network.py

A torso maps a batch of observations `[N, 5, 5]` to embeddings `[N, E]`; a library that is not installed is left out.
"""

import argparse
from functools import partial

import jax
import jax.numpy as jnp

import discorl
from discorl.networks import feed_forward

BOARD = jnp.zeros((1, 5, 5))


def flax_torso() -> discorl.Torso:
    from flax import linen

    model = linen.Sequential([lambda x: x.reshape(len(x), -1), linen.Dense(64), linen.relu, linen.Dense(64)])
    return feed_forward(lambda key: model.init(key, BOARD), lambda params, obs: jnp.asarray(model.apply(params, obs)))


def equinox_torso() -> discorl.Torso:
    import equinox

    make = partial(equinox.nn.MLP, BOARD.size, 64, 64, 1)
    static = equinox.filter(make(key=jax.random.key(0)), equinox.is_array, inverse=True)
    return feed_forward(
        lambda key: equinox.filter(make(key=key), equinox.is_array),
        lambda params, obs: jax.vmap(equinox.combine(params, static))(obs.reshape(len(obs), -1)),
    )


def haiku_torso() -> discorl.Torso:
    import haiku

    model = haiku.without_apply_rng(haiku.transform(lambda x: haiku.nets.MLP((64, 64))(haiku.Flatten()(x))))
    return feed_forward(lambda key: model.init(key, BOARD), model.apply)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rule", default="actor_critic")
    parser.add_argument("--updates", type=int, default=400)
    args = parser.parse_args()
    for torso in (flax_torso, equinox_torso, haiku_torso):
        try:
            built = torso()
        except ModuleNotFoundError as error:
            print(f"{torso.__name__}: left out, {error}")
            continue
        result = discorl.train(
            "catch:5x5",
            args.rule,
            agent=lambda spec, needs, built=built: discorl.networks.assemble(built, spec, needs),
            updates=args.updates,
            batch=32,
            rollout=16,
            learning_rate=2e-3,
        )
        print(f"{torso.__name__}: average return {result.greedy.mean():+.2f}; 1 is the best there is")


if __name__ == "__main__":
    main()
