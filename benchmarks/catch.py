"""How many updates until an agent catches 99 %: many seeds in one program, the whole distribution.

    python benchmarks/catch.py --rule disco103 --updates 2000 --seeds 10 --out curve.npz
    python benchmarks/catch.py --rule disco-mini --updates 600 --seeds 10

What is left open are the rule's defaults. Those of disco103 are the protocol of the released evaluation: 2
environments, 28 transitions per rollout, a replay of 1,024 trajectories, 64 of them per update, learning rate 1e-2. A
seed has arrived when the catch rate over its last 2,800 steps (400 episodes of Catch 8×8) is 99 %.
"""

import argparse
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

from discorl import networks, settings
from discorl.envs import catch
from discorl.experiment import training_config
from discorl.optim import Hypers
from discorl.plots import learning_curve
from discorl.rules.library import load_rule
from discorl.training import make_training, over_seeds

WINDOW = 2800  # environment steps


def arrival(returns: np.ndarray, episodes: np.ndarray, window: int, level: float = 0.99) -> int | None:
    """The first rollout after which the catch rate over the last `window` rollouts is `level`; returns are ±1."""
    caught = np.cumsum((returns + episodes) / 2)
    played = np.cumsum(episodes)
    rate = (caught[window:] - caught[:-window]) / (played[window:] - played[:-window])
    there = np.flatnonzero(rate >= level)
    return int(there[0]) + window + 1 if there.size else None


def picture(path: Path, returns: np.ndarray, episodes: np.ndarray, title: str, steps: int) -> None:
    """Return per 10 rollouts against environment steps, one thin line per seed."""
    ten = returns.shape[1] // 10
    mean = returns[:, : 10 * ten].reshape(-1, ten, 10).sum(-1) / episodes[:, : 10 * ten].reshape(-1, ten, 10).sum(-1)
    learning_curve(path, 10 * steps * np.arange(1, ten + 1), mean, title)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rule", default="disco103")
    parser.add_argument("--size", type=int, default=8, help="rows and columns")
    for name, kind in (("envs", int), ("batch", int), ("rollout", int), ("replay-size", int), ("replay-share", float)):
        parser.add_argument(f"--{name}", type=kind)
    parser.add_argument("--learning-rate", type=float)
    parser.add_argument("--warmup-updates", type=int)
    parser.add_argument("--mask", choices=["reference", "all"])
    parser.add_argument("--hidden", type=int, nargs="+")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--updates", type=int, default=2000)
    parser.add_argument("--stretch", type=int, default=50)
    parser.add_argument("--out", type=Path, help="where the curves go (.npz), and their picture beside it (.png)")
    return parser.parse_args()


def main() -> None:
    args = parse()
    env, loaded = catch(args.size, args.size), load_rule(args.rule)
    given = {name: value for name, value in vars(args).items() if name in settings.NAMES}
    hidden = tuple(args.hidden) if args.hidden else None
    asked = settings.make(given | {"hidden": hidden, "updates": args.updates})
    full = settings.resolve(asked, loaded.rule.name, loaded.rule.advice)
    sizes: dict[str, Any] = {name: getattr(full, name) for name in ("hidden", "model_width", "head_hidden")}
    network = networks.mlp(env.spec, loaded.rule.needs, **sizes)
    training = over_seeds(make_training(env, network, loaded.rule, training_config(full)))
    hypers = Hypers(learning_rate=full.learning_rate or 0.0, warmup=full.warmup_updates or 0)
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
        picture(args.out.with_suffix(".png"), returns, episodes, title, training.steps_per_rollout)
    per_update = training.steps_per_rollout
    arrived = [arrival(r, e, round(WINDOW / per_update)) for r, e in zip(returns, episodes, strict=True)]
    print("rollouts to 99 %:", *(a if a else f">{args.updates}" for a in arrived))
    print("environment steps to 99 %:", *(a * per_update if a else f">{args.updates * per_update}" for a in arrived))
    print(f"{sum(a is not None for a in arrived)} of {args.seeds} seeds arrived")


if __name__ == "__main__":
    main()
