"""A whole training stretch on Catch: what acting, replay and Python cost beside the updates.

    python benchmarks/train.py [--rounds 6] [--updates 20]

Three programs take turns: training (environment, acting, replay, update), the same number of updates alone, and a
1024³ float32 product. Then the same for several seeds, one after the other inside a program (`lax.map`) and side by
side (`vmap`).
"""

import argparse
import resource
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from update import FLOOR_GFLOP, matmul

from discorl import networks
from discorl.envs import catch
from discorl.learner import make_learner
from discorl.optim import Hypers
from discorl.rules.disco import disco
from discorl.training import TrainConfig, make_training, over_seeds


def timed(run: Callable[[], object]) -> float:
    begun = time.perf_counter()
    jax.block_until_ready(run())
    return time.perf_counter() - begun


def programs(updates: int, seeds: int) -> dict[str, tuple[Callable[[], object], int, float]]:
    """Name -> (program, updates it makes, seconds to compile)."""
    env, rule, hypers = catch(8, 8), disco(), Hypers(learning_rate=1e-3)
    network = networks.mlp(env.spec, rule.needs)
    config = TrainConfig(envs=2, batch=64, rollout=28, replay_size=1024)
    training, learner = make_training(env, network, rule, config), make_learner(network, rule)
    eta = rule.init(jax.random.key(1))
    state = jax.jit(training.init)(jax.random.key(0), hypers)
    batch = jax.tree.map(lambda x: x[:64], state.replay.data)
    batch = jax.tree.map(lambda x: jax.numpy.swapaxes(x, 0, 1), batch._replace(memory=()))

    def only_updates(eta, state):
        last = jnp.arange(updates) == updates - 1  # one report a stretch, as in training
        return jax.lax.scan(lambda s, report: learner.step(eta, hypers, s, batch, report), state, last)

    each = max(1, updates // seeds)
    many = jax.jit(over_seeds(training).init)(jax.random.split(jax.random.key(0), seeds), hypers)
    cases = {
        "training": (lambda e, s: training.advance(e, hypers, s, updates), (eta, state), updates),
        "updates alone": (only_updates, (eta, state.learner), updates),
        f"training, {seeds} seeds, lax.map": (
            lambda e, s: over_seeds(training).advance(e, hypers, s, each),
            (eta, many),
            each * seeds,
        ),
        f"training, {seeds} seeds, vmap": (
            lambda e, s: jax.vmap(lambda x: training.advance(e, hypers, x, each))(s),
            (eta, many),
            each * seeds,
        ),
    }
    made = {}
    for name, (function, arguments, count) in cases.items():
        begun = time.perf_counter()
        compiled = jax.jit(function).lower(*arguments).compile()
        seconds = time.perf_counter() - begun
        made[name] = (lambda c=compiled, a=arguments: c(*a), count, seconds)
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--updates", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=4)
    args = parser.parse_args()
    cases, rate = programs(args.updates, args.seeds), matmul()
    for run, _, _ in cases.values():
        timed(run)
    seconds: dict[str, list[float]] = {name: [] for name in cases}
    ratios: dict[str, list[float]] = {name: [] for name in cases}
    rates = []
    for _ in range(args.rounds):
        for name, (run, count, _) in cases.items():
            before = rate()
            each = timed(run) / count
            rates.append(0.5 * (before + rate()))
            seconds[name].append(each)
            ratios[name].append(each * rates[-1] / FLOOR_GFLOP[3])
    print(
        f"1024³ float32 product: median {np.median(rates):.0f} GFLOP/s, best {max(rates):.0f}; {args.rounds} rounds\n"
    )
    print("| Catch 8×8, 28×64, 2 environments | ms per update | × floor (quartiles) | to updates alone | compile s |")
    print("|---|---|---|---|---|")
    for name, (_, _, compile_seconds) in cases.items():
        low, mid, high = np.percentile(ratios[name], [25, 50, 75])
        against = np.median(np.array(seconds[name]) / np.array(seconds["updates alone"]))
        print(
            f"| {name} | {1e3 * np.median(seconds[name]):.0f} | {mid:.2f} ({low:.2f}–{high:.2f}) "
            f"| {against:.2f} | {compile_seconds:.1f} |"
        )
    print(f"\npeak memory of this process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3:.0f} MB")


if __name__ == "__main__":
    main()
