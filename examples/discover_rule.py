# ci: --meta-steps 4 --tiny
"""Discovers an update rule on Catch from random weights, and trains a fresh agent by it.

python examples/discover_rule.py
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

import discorl
from discorl.discovery import compiling, discover, placement

TINY: dict[str, Any] = {
    "agents": 2,
    "envs": 4,
    "batch": 8,
    "trajectory_width": 16,
    "predictions": 16,
    "log_every": 2,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--meta-steps", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tiny", action="store_true", help="too small to find anything, quick to run")
    args = parser.parse_args()
    sizes = TINY if args.tiny else {}
    compiling.keep_loops()  # these two before JAX computes anything, as `discorl discover` has them: less to compile,
    placement.use_every_core()  # and agents side by side

    def show(p: discover.Progress) -> None:
        if p.phase == "discovering":
            print(f"meta-step {p.updates}: return {p.early:.2f} early in life, {p.late:.2f} late")

    with tempfile.TemporaryDirectory() as folder:
        run = str(Path(folder) / "run")
        discover.discover("small", meta_steps=args.meta_steps, seed=args.seed, run_dir=run, progress=show, **sizes)
        rule = str(Path(run) / "rule.npz")
        # environments, batch, network and learning rate are those of the discovery: its record lies in the rule's file
        result = discorl.train("catch:5x5", rule=rule, updates=5 if args.tiny else 400)
    print(f"a fresh agent trained by it: average return {result.greedy.mean():.2f}")


if __name__ == "__main__":
    main()
