"""One step of discovery: seconds against the released code, memory against plain reverse mode, cost of size.

    python benchmarks/meta_step.py [--rounds 8] [--parts speed memory sizes] [--stretch 2]

speed    The released notebook's configuration. The released code takes 2.4 s per meta-step on two cores that do 240
         GFLOP/s in a 1024³ float32 product, and 63 s to compile; our seconds are compared at equal products, measured
         between the meta-steps.
memory   A window of N updates by `mixed` and by plain `reverse` mode, same sizes: temporaries, seconds.
sizes    Seconds per update of one agent, over the number of agents P and the window N, sizes of the preset `small`.
"""

import argparse
import gc
import time
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
from update import matmul

from discorl.discovery import compiling, placement
from discorl.discovery.build import build
from discorl.discovery.settings import DiscoverySettings, preset

RELEASED_SECONDS, RELEASED_RATE, RELEASED_COMPILE = 2.4, 240.0, 63.0


class Subject(NamedTuple):
    run: Any
    steps: int  # meta-steps per run
    compile_seconds: float  # tracing included
    megabytes: float


def subject(name: str, steps: int, **options: Any) -> Subject:
    made = build(DiscoverySettings(**(preset(name) | options)))
    state = made.begin()
    begun = time.perf_counter()
    program = lambda s: made.population.advance(made.hypers, s, steps)  # noqa: E731
    advance = compiling.compiled(partial(jax.jit(program, out_shardings=(made.shardings, None)).lower, state))
    seconds = time.perf_counter() - begun
    memory = advance.memory_analysis()
    run = lambda: jax.block_until_ready(advance(state))  # noqa: E731
    run()
    return Subject(run, steps, seconds, memory.temp_size_in_bytes / 1e6 if memory else float("nan"))


def timed(one: Subject) -> float:
    begun = time.perf_counter()
    one.run()
    return (time.perf_counter() - begun) / one.steps


def quartiles(numbers: list[float], digits: int = 2) -> str:
    low, mid, high = np.percentile(numbers, [25, 50, 75])
    return f"{mid:.{digits}f} ({low:.{digits}f}–{high:.{digits}f})"


def speed(rounds: int, steps: int) -> None:
    rate, one = matmul(), subject("notebook", steps)
    seconds, rates, ratios = [], [], []
    for _ in range(rounds):
        before = rate()
        seconds.append(timed(one))
        rates.append(0.5 * (before + rate()))
        ratios.append(RELEASED_SECONDS * RELEASED_RATE / (seconds[-1] * rates[-1]))
    print(f"product {np.median(rates):.0f} GFLOP/s; {rounds} rounds of {steps} meta-steps\n")
    print("| notebook configuration | s per meta-step | × as fast, at equal products | compile s |\n|---|---|---|---|")
    print(f"| released code | {RELEASED_SECONDS} at {RELEASED_RATE:.0f} GFLOP/s | 1 | {RELEASED_COMPILE:.0f} |")
    print(f"| discorl | {quartiles(seconds)} | {quartiles(ratios)} | {one.compile_seconds:.1f} |\n", flush=True)


def memory(rounds: int, steps: int, windows: tuple[int, ...]) -> None:
    print("| N | mixed MB | reverse MB | mixed / reverse | mixed s | reverse s | mixed / reverse |")
    print("|---|---|---|---|---|---|---|")
    for window in windows:
        own = {"window": window, "lifetimes": (10**9,), "devices": 1}  # memory is counted per device
        pair = [subject("notebook", steps, gradient=mode, **own) for mode in ("mixed", "reverse")]
        times = [[timed(one) for one in pair] for _ in range(rounds)]
        mixed, reverse = (list(column) for column in zip(*times, strict=True))
        ratios = [m / r for m, r in times]
        print(
            f"| {window} | {pair[0].megabytes:.0f} | {pair[1].megabytes:.0f} "
            f"| {pair[0].megabytes / pair[1].megabytes:.2f} "
            f"| {np.median(mixed):.2f} | {np.median(reverse):.2f} | {quartiles(ratios)} |",
            flush=True,
        )
        del pair
        gc.collect()
    print()


def sizes(rounds: int, steps: int, agents: tuple[int, ...], windows: tuple[int, ...]) -> None:
    print("| ms per agent and update | " + " | ".join(f"N = {n}" for n in windows) + " | compile s |")
    print("|---" * (len(windows) + 2) + "|")
    for count in agents:
        cells, compiling = [], []
        for window in windows:
            one = subject("small", steps, agents=count, window=window)
            best = np.median([timed(one) for _ in range(rounds)]) / (count * window)
            cells.append(f"{1e3 * best:.1f}")
            compiling.append(one.compile_seconds)
        print(f"| P = {count} | " + " | ".join(cells) + f" | {min(compiling):.0f}–{max(compiling):.0f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument(
        "--parts", nargs="+", choices=("speed", "memory", "sizes"), default=["speed", "memory", "sizes"]
    )
    parser.add_argument("--windows", type=int, nargs="+", default=[2, 20], help="of the part memory")
    parser.add_argument("--stretch", type=int, default=2, help="meta-steps per call; `discorl discover` makes 10")
    args = parser.parse_args()
    jax.config.update("jax_enable_compilation_cache", False)
    compiling.keep_loops()  # as `discorl discover` does
    placement.use_every_core()
    if "speed" in args.parts:
        speed(args.rounds, args.stretch)
    if "memory" in args.parts:
        memory(args.rounds, args.stretch, tuple(args.windows))
    if "sizes" in args.parts:
        sizes(args.rounds, args.stretch, (1, 4, 16), (1, 3, 20))


if __name__ == "__main__":
    main()
