"""What a discovery run tells, and the files it leaves behind.

config.toml      the effective settings        metrics.jsonl      one row per stretch
checkpoint.npz   everything a resume needs     events.out.*       the same, for TensorBoard
rule.npz         the rule as it stands         rules/step-*.npz   snapshots of it
curve.png        early and late in life        summary.json       how it ended
"""

import json
import math
from collections.abc import Iterator
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from discorl import events, rule_files, runs
from discorl.discovery.build import Discovery
from discorl.discovery.life import WindowInfo
from discorl.discovery.population import MetaInfo, PopulationState
from discorl.rules.meta_network import to_arrays

RULE, SNAPSHOTS = "rule.npz", "rules"
EARLY, LATE = 1 / 3, 2 / 3  # of a life


class CohortRow(NamedTuple):
    """A stretch of one cohort's lives; NaN where no episode ended."""

    early: float  # mean return in the first third of life
    late: float  # and in the last
    gradient_norm: float
    policy_entropy: float
    y_entropy: float
    z_entropy: float
    loss: float  # the outer one
    rule_loss: float  # the one that agents learn by
    value_loss: float
    skipped: int  # agents that were left out, summed over meta-steps


class MetaRow(NamedTuple):
    step: int  # meta-steps done
    seconds: float
    update_norm: float
    cohorts: dict[str, CohortRow]

    def mean(self, name: str) -> float:
        return _mean([getattr(row, name) for row in self.cohorts.values()])


class Progress(NamedTuple):
    """Where a discovery run stands. `phase` is 'compiling' or 'discovering'."""

    phase: str
    updates: int  # meta-steps
    total: int
    early: float = math.nan
    late: float = math.nan
    speed: float = math.nan  # environment steps per second
    seconds_left: float = math.nan


def make_row(info: MetaInfo, names: list[tuple[str, ...]], step: int, seconds: float) -> MetaRow:
    """A row with one entry per family; `names` are the families of each cohort, whose agents stand in that order."""
    cohorts = {}
    for name, w, norm, skipped in _by_family(info, names):
        share = w.age / np.maximum(w.lifetime, 1)
        cohorts[name] = CohortRow(
            early=_return(w, share < EARLY),
            late=_return(w, share >= LATE),
            gradient_norm=_mean(norm),
            policy_entropy=_mean(w.objective.policy_entropy),
            y_entropy=_mean(w.objective.y_entropy),
            z_entropy=_mean(w.objective.z_entropy),
            loss=_mean(w.loss),
            rule_loss=_mean(w.rule_loss),
            value_loss=_mean(w.value_loss),
            skipped=int(np.sum(skipped)),
        )
    return MetaRow(step=step, seconds=seconds, update_norm=_mean(info.update_norm), cohorts=cohorts)


def _by_family(info: MetaInfo, names: list[tuple[str, ...]]) -> Iterator[tuple[str, WindowInfo, Any, Any]]:
    for i, cohort in enumerate(names):
        columns = info.windows[i], info.gradient_norm[i], info.skipped[i]
        agents = np.shape(info.skipped[i])[-1] // len(cohort)
        for j, name in enumerate(cohort):
            part = slice(j * agents, (j + 1) * agents)
            yield name, *jax.tree.map(lambda x, part=part: np.asarray(x)[..., part], columns)


def _return(window: Any, where: Any) -> float:
    episodes = float(window.episodes[where].sum())
    return float(window.return_sum[where].sum()) / episodes if episodes else math.nan


def _mean(values: Any) -> float:
    known = np.asarray(values, np.float64)
    known = known[np.isfinite(known)]
    return float(known.mean()) if known.size else math.nan


def encode(row: MetaRow) -> str:
    """One line of JSON; what is not known is null."""
    values = row._replace(cohorts={name: c._asdict() for name, c in row.cohorts.items()})._asdict()
    return json.dumps(runs.without_nan(values), allow_nan=False)


def decode(line: str) -> MetaRow:
    values = json.loads(line)
    known: Any = lambda row: {k: math.nan if v is None else v for k, v in row.items()}  # noqa: E731
    cohorts = {name: CohortRow(**known(row)) for name, row in values.pop("cohorts").items()}
    return MetaRow(**known(values), cohorts=cohorts)


def read_rows(path: Path, until: int) -> list[MetaRow]:
    """Rows up to a meta-step; a last line cut off by a crash does not count."""
    rows: list[MetaRow] = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            row = decode(line)
        except (ValueError, TypeError):
            break
        if row.step > until:
            break
        rows.append(row)
    return rows


def append(lines: Path, board: Path, row: MetaRow) -> None:
    with lines.open("a", encoding="utf-8") as file:
        file.write(encode(row) + "\n")
    scalars = {f"{name}/{key}": float(x) for name, c in row.cohorts.items() for key, x in c._asdict().items()}
    scalars |= {"rule/update_norm": row.update_norm, "rule/seconds": row.seconds}
    events.append(board, row.step, {tag: x for tag, x in scalars.items() if math.isfinite(x)})


def save_rule(path: Path, made: Discovery, state: PopulationState, seconds: float) -> None:
    """The rule with all that is needed to tell where it comes from."""
    step = int(state.steps)
    provenance = {
        "discovered_by": f"discorl {_version()}, jax {jax.__version__}",
        "suite": made.settings.suite,
        "families": made.families,
        "seed": made.settings.seed,
        "meta_steps": step,
        "environment_steps": step * made.steps_per_meta_step,
        "seconds": round(seconds),
        "devices": f"{made.mesh.size} {made.mesh.devices.flat[0].device_kind}",
        "settings": _plain({k: v for k, v in asdict(made.settings).items() if k != "run_dir"}),
    } | ({"began_with": made.origin} if made.origin else {})
    arrays = to_arrays(jax.device_get(state.eta), made.config)
    rule_files.save(path, rule_files.RuleFile(made.config, arrays, provenance))


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    return {k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}


def _version() -> str:
    try:
        return metadata.version("discorl")
    except metadata.PackageNotFoundError:
        return "(not installed)"
