"""How many updates until an agent catches 99 %: many seeds in one program, the whole distribution.

    python benchmarks/catch.py --rule disco103 --envs 2 --updates 2000 --seeds 10 --learning-rate 1e-2 --out curve.npz

The defaults are the protocol of the released evaluation: Catch 8×8, 2 environments, 28 transitions per rollout, a
replay of 1,024 trajectories, 64 of them per update. A seed has arrived when the catch rate over its last 50 rollouts
(at least 400 episodes) is 99 %.
"""

import argparse
import time
from pathlib import Path

import jax
import numpy as np

from discorl import networks
from discorl.envs import catch
from discorl.optim import Hypers
from discorl.plots import learning_curve
from discorl.rules.library import load_rule
from discorl.training import TrainConfig, make_training, over_seeds

WINDOW = 50


def arrival(returns: np.ndarray, episodes: np.ndarray, level: float = 0.99) -> int | None:
    """The first rollout after which the catch rate over the last WINDOW rollouts is `level`; returns are ±1."""
    caught = np.cumsum((returns + episodes) / 2)
    played = np.cumsum(episodes)
    rate = (caught[WINDOW:] - caught[:-WINDOW]) / (played[WINDOW:] - played[:-WINDOW])
    there = np.flatnonzero(rate >= level)
    return int(there[0]) + WINDOW + 1 if there.size else None


def picture(path: Path, returns: np.ndarray, episodes: np.ndarray, title: str, steps: int) -> None:
    """Return per 10 rollouts against environment steps, one thin line per seed."""
    ten = returns.shape[1] // 10
    mean = returns[:, : 10 * ten].reshape(-1, ten, 10).sum(-1) / episodes[:, : 10 * ten].reshape(-1, ten, 10).sum(-1)
    learning_curve(path, 10 * steps * np.arange(1, ten + 1), mean, title)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rule", default="disco103")
    parser.add_argument("--size", type=int, default=8, help="rows and columns")
    parser.add_argument("--envs", type=int, default=2)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rollout", type=int, default=28)
    parser.add_argument("--replay-size", type=int, default=1024)
    parser.add_argument("--replay-share", type=float, default=1.0)
    parser.add_argument("--learning-rate", type=float, default=1e-2)
    parser.add_argument("--warmup", type=float, default=0)
    parser.add_argument("--mask", default="reference", choices=["reference", "all"])
    parser.add_argument("--hidden", type=int, nargs="+", default=[512, 512])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--updates", type=int, default=2000)
    parser.add_argument("--stretch", type=int, default=50)
    parser.add_argument("--out", type=Path, help="where the curves go (.npz), and their picture beside it (.png)")
    return parser.parse_args()


def main() -> None:
    args = parse()
    env, loaded = catch(args.size, args.size), load_rule(args.rule)
    network = networks.mlp(env.spec, loaded.rule.needs, hidden=tuple(args.hidden))
    config = TrainConfig(args.envs, args.batch, args.rollout, args.replay_size, args.replay_share, args.mask)
    training = over_seeds(make_training(env, network, loaded.rule, config))
    hypers = Hypers(learning_rate=args.learning_rate, warmup=args.warmup)
    state = jax.jit(training.init)(jax.random.split(jax.random.key(args.seed), args.seeds), hypers)
    advance = jax.jit(training.advance, static_argnums=3, donate_argnums=2)
    rows, begun = [], time.perf_counter()
    returns = episodes = np.zeros((args.seeds, 0))
    while (done := len(rows) * args.stretch) < args.updates:
        state, info = advance(loaded.eta, hypers, state, args.stretch)
        rows.append(jax.device_get((info.return_sum, info.episodes, info.loss)))
        returns, episodes, losses = (np.concatenate(x, axis=1) for x in zip(*rows, strict=True))
        rate = np.round(50 * (1 + rows[-1][0].sum(1) / rows[-1][1].sum(1))).astype(int)
        each = 1e3 * (time.perf_counter() - begun) / returns.size
        print(f"{done + args.stretch:6d} updates, {each:.0f} ms each, catch %:", *rate, flush=True)
        if args.out:
            np.savez_compressed(args.out, returns=returns, episodes=episodes, losses=losses)
    if args.out:
        title = f"{args.rule} on Catch {args.size}×{args.size}, {args.seeds} seeds"
        picture(args.out.with_suffix(".png"), returns, episodes, title, training.steps_per_update)
    arrived = [arrival(r, e) for r, e in zip(returns, episodes, strict=True)]
    print("rollouts to 99 %:", *(a if a else f">{args.updates}" for a in arrived))
    print(f"{sum(a is not None for a in arrived)} of {args.seeds} seeds arrived")


if __name__ == "__main__":
    main()
