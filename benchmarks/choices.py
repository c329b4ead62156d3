"""What each choice that made an update faster is worth: with it to without it, in one run.

    python benchmarks/choices.py [--rounds 12] [--actions 3]

Every row is one update of Disco103's size, 28×64 transitions, several in one compiled program, with a single choice
taken back. All variants take turns; a ratio below 1 is what the choice saves.
"""

import argparse
import time
from typing import Any
from unittest import mock

import jax
import numpy as np
from update import STRETCH, Subject, ours

from discorl import learner, nn

SCAN = jax.lax.scan


def plain_product(x: jax.Array, w: jax.Array) -> jax.Array:
    return x @ w


def rolled(*args: Any, unroll: int = 1, **options: Any) -> Any:
    return SCAN(*args, **options)


def two_passes(*args: Any, gradient: Any = None, **options: Any) -> learner.Learner:
    return learner.make_learner(*args, gradient=gradient or learner.reverse_gradient, **options)


def subjects(actions: int) -> dict[str, Subject]:
    """All choices taken, and each of them taken back; what is patched counts while tracing."""
    made = {"as it is": ours(actions, STRETCH)}
    for name, patch in {
        "products of two matrices": mock.patch.object(nn, "product", plain_product),
        "gradients of narrow weights the other way round": mock.patch.object(nn, "NARROW", 0),
        "four LSTM steps per turn": mock.patch.object(jax.lax, "scan", rolled),
        "one forward pass for targets and gradient": mock.patch("update.make_learner", two_passes),
    }.items():
        with patch:
            made[name] = ours(actions, STRETCH)
    made["several updates in one program"] = ours(actions, 1)
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--actions", type=int, default=3)
    args = parser.parse_args()
    made = subjects(args.actions)
    seconds: dict[str, list[float]] = {name: [] for name in made}
    for one in made.values():
        one.run()
    for _ in range(args.rounds):
        for name, one in made.items():
            begun = time.perf_counter()
            one.run()
            seconds[name].append((time.perf_counter() - begun) / one.updates)
    print(f"{args.actions} actions, {args.rounds} rounds\n")
    print("| choice | update with it to without it (quartiles) | temporaries MB without it |\n|---|---|---|")
    for name, took in seconds.items():
        if name != "as it is":
            low, mid, high = np.percentile(np.divide(seconds["as it is"], took), [25, 50, 75])
            print(f"| {name} | {mid:.2f} ({low:.2f}–{high:.2f}) | {made[name].megabytes:.0f} |")


if __name__ == "__main__":
    main()
