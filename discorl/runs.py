"""A run on disk: its settings, metrics, agents and checkpoint, in one folder.

config.toml      the effective settings        metrics.jsonl      one row per stretch of training
checkpoint.npz   everything a resume needs     events.out.*       the same, for TensorBoard
agent.npz        parameters of all agents      curve.png          the learning curve
summary.json     how it ended                  evaluation.json    what `discorl evaluate` found, by environment
"""

import hashlib
import itertools
import json
import math
import re
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import PyTree

from discorl import checkpoints, events, options, settings
from discorl.errors import DiscorlError
from discorl.settings import Settings
from discorl.types import Needs, Params

CONFIG, METRICS, SUMMARY, EVALUATION = "config.toml", "metrics.jsonl", "summary.json", "evaluation.json"
CHECKPOINT, AGENT, CURVE = "checkpoint.npz", "agent.npz", "curve.png"
NUMBER = "{n}"


class Row(NamedTuple):
    """One stretch of training; lists have one entry per agent, NaN where no episode ended."""

    update: int  # updates done
    steps: int  # environment steps done, of each agent
    seconds: float  # spent training
    returns: tuple[float, ...]
    lengths: tuple[float, ...]
    losses: tuple[float, ...]
    logs: dict[str, float]  # the learner's and the rule's own scalars, mean over agents

    @property
    def mean_return(self) -> float:
        return mean_known(self.returns)


def mean_known(values: tuple[float, ...]) -> float:
    """Mean of what is not NaN; NaN if nothing is."""
    known = [value for value in values if not math.isnan(value)]
    return sum(known) / len(known) if known else math.nan


# Folders -------------------------------------------------------------------------------------------------------------


def default_folder(env: str, rule: str) -> str:
    """Where a run goes if nobody says: runs/catch-disco103-{n}; see `create` for the number."""
    return "runs/" + re.sub(r"[^\w.]+", "-", f"{env}-{rule}").strip("-.") + f"-{NUMBER}"


def create(name: str, config: Settings) -> Path:
    """Makes the folder of a new run and writes its settings there; `{n}` in its name becomes the next free number."""
    return create_folder(name, lambda folder: options.dump(replace(config, run_dir=str(folder))))


def create_folder(name: str, config: Callable[[Path], str]) -> Path:
    """The same for any kind of run; `config` is the text of its settings file."""
    folder = Path(name)
    try:
        if NUMBER in name:
            folder = _numbered(name)
        folder.mkdir(parents=True, exist_ok=True)
        occupied = any(folder.iterdir())
        if not occupied:
            (folder / CONFIG).write_text(config(folder), encoding="utf-8")
    except OSError as error:
        raise DiscorlError(
            f"cannot write to the run folder {folder}: {error.strerror}; choose another with --run-dir"
        ) from error
    if occupied:
        way_out = f"go on with it by --resume {folder}, or " if (folder / CONFIG).exists() else ""
        raise DiscorlError(f"the run folder {folder} is not empty; {way_out}choose another with --run-dir")
    return folder


def _numbered(name: str) -> Path:
    for n in itertools.count(1):
        folder = Path(name.replace(NUMBER, str(n)))
        try:
            folder.mkdir(parents=True)  # taking it is what makes it ours, should several runs start at once
            return folder
        except FileExistsError:
            continue
    raise AssertionError("numbers do not end")


def read_settings(folder: Path) -> Settings:
    if not (folder / CONFIG).is_file():
        problem = f"has no {CONFIG}" if folder.is_dir() else "does not exist"
        raise DiscorlError(f"{folder} is no run: it {problem}; `discorl train` prints the folder it makes")
    return settings.make(settings.read(folder / CONFIG), str(folder / CONFIG))


def is_complete(folder: Path, updates: int) -> bool:
    """Whether the run came to its end, evaluation included, with that many updates."""
    try:
        ended = json.loads((folder / SUMMARY).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return ended["updates"] == updates and not ended["stopped"]


def write_settings(folder: Path, config: Settings) -> None:
    write_text(folder / CONFIG, options.dump(config))


def write_text(path: Path, text: str) -> None:
    checkpoints.write_atomically(path, lambda file: file.write(text.encode()))


# Metrics -------------------------------------------------------------------------------------------------------------


def encode_row(row: Row) -> str:
    """One line of JSON; what is not known is null."""
    values = {
        "update": row.update,
        "steps": row.steps,
        "seconds": round(row.seconds, 3),
        "return": row.mean_return,
        "length": mean_known(row.lengths),
        "loss": mean_known(row.losses),
        "returns": row.returns,
        "lengths": row.lengths,
        "losses": row.losses,
        "logs": row.logs,
    }
    return json.dumps(without_nan(values), allow_nan=False)


def read_rows(folder: Path, until: int | None = None) -> list[Row]:
    """The rows of a run up to an update; a last line cut off by a crash does not count."""
    path = folder / METRICS
    rows: list[Row] = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            values = json.loads(line)
        except ValueError:
            break
        if until is not None and values["update"] > until:
            break
        row = Row(
            update=values["update"],
            steps=values["steps"],
            seconds=values["seconds"],
            returns=tuple(map(_known, values["returns"])),
            lengths=tuple(map(_known, values["lengths"])),
            losses=tuple(map(_known, values["losses"])),
            logs={name: _known(value) for name, value in values["logs"].items()},
        )
        rows.append(row)
    return rows


class Recorder(NamedTuple):
    """Where the metrics of a run go. Files are opened for every row: there is no state to lose or to close."""

    lines: Path
    events: Path


def open_recorder(folder: Path, done: list[Row]) -> Recorder:
    """Only `done` rows stay: what a crash left beyond them goes."""
    write_text(folder / METRICS, "".join(encode_row(row) + "\n" for row in done))
    return Recorder(folder / METRICS, events.open_file(folder, purge_step=done[-1].update + 1 if done else None))


def record(recorder: Recorder, row: Row) -> None:
    """Appends a row to the metrics."""
    with recorder.lines.open("a", encoding="utf-8") as file:
        file.write(encode_row(row) + "\n")
    events.append(recorder.events, row.update, {tag: x for tag, x in _scalars(row).items() if not math.isnan(x)})


def _scalars(row: Row) -> dict[str, float]:
    train = {"return": row.mean_return, "length": mean_known(row.lengths), "loss": mean_known(row.losses)}
    train |= {"steps": float(row.steps), "seconds": row.seconds}
    agents = {f"agents/return_{i}": value for i, value in enumerate(row.returns)} if len(row.returns) > 1 else {}
    return (
        {f"train/{name}": x for name, x in train.items()}
        | {f"learner/{name}": x for name, x in row.logs.items()}
        | agents
    )


def without_nan(value: Any) -> Any:
    """What is not finite becomes None, because JSON has no NaN."""
    if isinstance(value, dict):
        return {name: without_nan(v) for name, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_nan(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _known(value: float | None) -> float:
    return math.nan if value is None else value


# Agents --------------------------------------------------------------------------------------------------------------


def save_agents(folder: Path, params: Params, config: Settings, needs: Needs) -> None:
    """Parameters of all agents `[seeds, ...]` and what rebuilds their network: to play, the rule is not needed."""
    about = {"settings": asdict(config), "needs": asdict(needs)}
    checkpoints.save(folder / AGENT, params, about)


def read_agents(folder: Path) -> tuple[Settings, Needs]:
    """What rebuilds the network of saved agents; then `checkpoints.load` gives their parameters."""
    if not (folder / AGENT).is_file():
        read_settings(folder)  # says so if this is no run at all
        raise DiscorlError(f"the run {folder} has saved no agent yet; wait for its first checkpoint")
    about = checkpoints.read_about(folder / AGENT)
    return settings.make(about["settings"], str(folder / AGENT)), Needs(**about["needs"])


def fingerprint(tree: PyTree) -> str:
    """Tells two sets of weights apart: a run may only go on with those it began with."""
    digest = hashlib.sha256()
    for at, leaf in jax.tree_util.tree_leaves_with_path(tree):
        digest.update(jax.tree_util.keystr(at).encode())
        digest.update(np.ascontiguousarray(leaf).tobytes())
    return digest.hexdigest()[:16]
