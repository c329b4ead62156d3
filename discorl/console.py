"""What people see of a run: a live line in a terminal, plain lines elsewhere, and a closing summary."""

import contextlib
import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from discorl import evaluation, runs
from discorl.discovery import records
from discorl.discovery.discover import DiscoveryResult
from discorl.judging import Evaluation, Score
from discorl.results import Progress, TrainResult

FIRST_PAUSE = 2.0  # seconds between plain lines at first
PAUSE_GROWTH = 0.02  # of the time that has passed: a day of training fits on a few pages
STEADY = ("training", "discovering")  # phases of which it is known how far they are
COMPILING = "compiling (the first time this takes a while, later it is cached)"


def say(text: str) -> None:
    """Prints as long as somebody listens: a closed pipe must not end hours of training."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        deafen()


def deafen() -> None:
    """Sends what is still printed nowhere, so that Python does not complain about the closed pipe when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def progress_line(p: Progress) -> str:
    """All there is to say about a moment of training, in one line."""
    if p.phase != "training":
        return COMPILING if p.phase == "compiling" else "evaluating"
    known = "-" if math.isnan(p.episode_return) else f"{p.episode_return:.3g}"
    left = duration(p.seconds_left)
    return f"update {p.updates:,}/{p.total:,}  steps {p.steps:,}  return {known}  {p.speed:,.0f} steps/s  {left} left"


def duration(seconds: float) -> str:
    """1:02:03 or 2:03."""
    if not math.isfinite(seconds):
        return "?"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def discovery_line(p: records.Progress) -> str:
    """The same of discovery."""
    if p.phase == "compiling":
        return COMPILING
    early, late = ("-" if math.isnan(x) else f"{x:.3g}" for x in (p.early, p.late))
    done = f"meta-step {p.updates:,}/{p.total:,}  return early {early} late {late} in life"
    return f"{done}  {p.speed:,.0f} steps/s  {duration(p.seconds_left)} left"


@contextlib.contextmanager
def reporter(describe: Callable[[Any], str] = progress_line) -> Iterator[Callable[[Any], None]]:
    """Shows progress in the way that suits the place where it is shown."""
    if sys.stdout is not None and sys.stdout.isatty():
        with _live(describe) as show:
            yield show
    else:
        yield plain_lines(say, describe=describe)


@contextlib.contextmanager
def _live(describe: Callable[[Any], str]) -> Iterator[Callable[[Any], None]]:
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Bars

    with Bars(TextColumn("{task.description}", markup=False), BarColumn(bar_width=24), transient=True) as bars:
        task = bars.add_task("starting", total=None)

        def show(p: Any) -> None:
            # Without a total the bar pulses: something happens, nobody knows how long.
            total = p.total if p.phase in STEADY else None
            bars.update(task, description=describe(p), completed=p.updates, total=total)

        yield show


def plain_lines(
    say: Callable[[str], object],
    clock: Callable[[], float] = time.monotonic,
    describe: Callable[[Any], str] = progress_line,
) -> Callable[[Any], None]:
    """One line per phase, and in training one every few seconds, fewer as time goes by."""
    begun = clock()
    due, phase = begun, ""

    def show(p: Any) -> None:
        nonlocal due, phase
        now = clock()
        if p.phase != phase or (p.phase in STEADY and (now >= due or p.updates == p.total)):
            say(describe(p))
            due, phase = now + max(FIRST_PAUSE, PAUSE_GROWTH * (now - begun)), p.phase

    return show


def summary_lines(result: TrainResult) -> list[str]:
    """How a run ended and what one can do with it now."""
    config = result.settings
    agents = f"{config.seeds} agents" if config.seeds > 1 else "an agent"
    each = " each" if config.seeds > 1 else ""
    steps = int(result.steps[-1]) if len(result.steps) else 0
    what = "stopped training" if result.stopped else "trained"
    lines = [
        f"{what} {agents} by {config.rule_label} on {config.env}: "
        f"{result.updates:,} updates, {steps:,} environment steps{each}, {duration(result.seconds)}"
    ]
    for name, returns in (("greedy", result.greedy), ("sampled", result.sampled)):
        if returns.size:
            lines.append(f"return {name:8} {_score(returns)}")
    if result.cut:
        limit = evaluation.longest(result.env.spec)
        lines.append(f"{result.cut} of these episodes did not end within {limit:,} steps and were cut")
    folder = result.run_dir
    if folder and result.stopped:
        lines.append(f"go on with: discorl train --resume {folder}")
    elif folder:
        lines += [f"curve: {folder / runs.CURVE}", f"watch it with: discorl play {folder}"]
    return lines


def discovery_summary(result: DiscoveryResult) -> list[str]:
    """How a discovery ended and what one can do with it now."""
    asked = result.settings
    what = "stopped discovering" if result.stopped else "discovered a rule"
    lines = [f"{what} on {asked.suite}: {result.meta_steps:,} meta-steps, {duration(result.seconds)}"]
    latest = result.rows[-10:]
    for name in latest[-1].cohorts if latest else ():
        early, late = (
            runs.mean_known(tuple(getattr(row.cohorts[name], part) for row in latest)) for part in ("early", "late")
        )
        lines.append(f"  {name:20} return {early:.3f} early in life, {late:.3f} late")
    if skipped := sum(c.skipped for row in result.rows for c in row.cohorts.values()):
        lines.append(f"{skipped} windows of agents were not finite and were left out")
    folder = result.run_dir
    if folder and result.stopped:
        lines.append(f"go on with: discorl discover --resume {folder}")
    elif folder:
        rule = folder / records.RULE
        lines += [f"curve: {folder / runs.CURVE}", f"use it with: discorl train catch --rule {rule}"]
    return lines


def evaluation_lines(result: Evaluation) -> list[str]:
    """A small table of how good the agents of a run are."""
    config = result.settings
    agents = f"{config.seeds} agents" if config.seeds > 1 else "the agent"
    elsewhere = f", evaluated on {result.env}" if result.env != config.env else ""
    each = " each" if config.seeds > 1 else ""
    lines = [
        f"{agents} of {result.run}, trained by {config.rule_label} on {config.env}{elsewhere}: "
        f"{result.episodes:,} episodes{each}, seed {result.seed}"
    ]
    rows = [("return", "mean", "95 % interval", "median", "length", "from - to")]
    for name, judged in (("greedy", result.greedy), ("sampled", result.sampled)):
        lengths = judged.lengths
        span = f"{lengths.min()} - {lengths.max()}"
        rows.append((name, *_cells(judged.score), f"{lengths.mean():.1f}", span))
        if judged.human:
            rows.append(("  human = 1", *_cells(judged.human), "", ""))
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    for first, *others in rows:
        cells = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        lines.append("  ".join([first.ljust(widths[0]), *cells]).rstrip())
    if cut := result.greedy.cut + result.sampled.cut:
        limit = max(result.greedy.lengths.max(), result.sampled.lengths.max())
        lines.append(f"{cut} of these episodes did not end within {limit:,} steps and were cut")
    return lines


def _cells(score: Score) -> tuple[str, str, str]:
    return f"{score.mean:.3f}", f"[{score.low:.3f}, {score.high:.3f}]", f"{score.median:.3f}"


def _score(returns: np.ndarray) -> str:
    """[seeds, episodes] as a mean and the spread that can be told from it."""
    agents, episodes = returns.shape
    if agents == 1:
        error = returns.std(ddof=1) / math.sqrt(episodes) if episodes > 1 else math.nan
        return f"{returns.mean():.3f} (mean of {episodes} episodes, standard error {error:.3f})"
    s = evaluation.spread(returns.mean(axis=1))
    return (
        f"{s.mean:.3f} [{s.low:.3f}, {s.high:.3f}] (mean of {agents} seeds with its 95 % bootstrap interval; "
        f"worst {s.worst:.3f}, best {s.best:.3f}; {episodes} episodes each)"
    )
