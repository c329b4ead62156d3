"""Discovery in compiled stretches: watched, recorded, stopped and resumed without changing a number."""

import json
import math
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from discorl import checkpoints, events, options, plots, rule_files, runs
from discorl.discovery import placement, records
from discorl.discovery.build import Discovery, build
from discorl.discovery.compiling import compiled
from discorl.discovery.population import MetaInfo, PopulationState
from discorl.discovery.records import MetaRow, Progress
from discorl.discovery.settings import RESUMABLE, DiscoverySettings
from discorl.discovery.settings import preset as presets
from discorl.envs.base import strip_weak_types
from discorl.errors import DiscorlError
from discorl.rules.base import Eta
from discorl.trainer import stretches

PATIENCE = 20  # meta-steps in a row without a single sound gradient, then the run stops


class DiscoveryResult(NamedTuple):
    settings: DiscoverySettings  # the effective ones
    rule: rule_files.RuleFile
    meta_steps: int  # done
    stopped: bool  # before the end, because somebody asked for it
    rows: list[MetaRow]
    seconds: float
    run_dir: Path | None


def discover(
    preset: str = "small",
    *,
    progress: Callable[[Progress], None] | None = None,
    stop: Callable[[], bool] | None = None,
    **given: Any,
) -> DiscoveryResult:
    """Discovers a rule; `given` are the fields of `DiscoverySettings`, on top of a preset.

    With `run_dir` the run is kept on disk, as `discorl discover` does. `stop` is asked between stretches.
    """
    asked = options.make(DiscoverySettings, {**presets(preset), **given})
    made = build(asked)
    folder = None
    if asked.run_dir and placement.leads():
        text = lambda folder: options.dump(replace(made.settings, run_dir=str(folder)))  # noqa: E731
        folder = runs.create_folder(asked.run_dir, text)
        made = made._replace(settings=replace(made.settings, run_dir=str(folder)))
    sitting = _Sitting(made, folder, progress, stop)
    return sitting.run(sitting.start())


def resume(
    run_dir: str | Path,
    *,
    progress: Callable[[Progress], None] | None = None,
    stop: Callable[[], bool] | None = None,
    **given: Any,
) -> DiscoveryResult:
    """Goes on with a run exactly as if it had never stopped; `given` may lengthen it but not change it."""
    folder = Path(run_dir)
    if not (folder / runs.CONFIG).is_file():
        raise DiscorlError(f"{folder} is no run of discovery: it has no {runs.CONFIG}")
    before = options.make(DiscoverySettings, options.read(DiscoverySettings, folder / runs.CONFIG), str(folder))
    wanted = {name: value for name, value in given.items() if value is not None}
    asked = options.make(DiscoverySettings, {**vars(before), **wanted, "run_dir": str(folder)})
    if changed := options.differences(before, asked, RESUMABLE):
        raise DiscorlError(
            f"the run {folder} was made with other settings ({'; '.join(changed)}); "
            "leave them out to go on with it, or start a new run"
        )
    sitting = _Sitting(build(asked), folder, progress, stop)
    state = sitting.restore(folder)
    if placement.leads():
        runs.write_text(folder / runs.CONFIG, options.dump(asked))
    return sitting.run(state)


class _Sitting:
    """A run from its start, or where it was left, to its end or the next interruption."""

    def __init__(
        self,
        made: Discovery,
        folder: Path | None,
        progress: Callable[[Progress], None] | None,
        stop: Callable[[], bool] | None,
    ) -> None:
        self.made, self.folder = made, folder if placement.leads() else None
        self.progress = progress if progress and placement.leads() else lambda _: None
        self.stop = lambda: placement.agreed(stop is not None and stop())
        self.names = made.families
        self.rows: list[MetaRow] = []
        self.done = 0  # meta-steps
        self.unsound = 0  # meta-steps in a row in which no agent had a gradient
        self.seconds = 0.0

    def start(self) -> PopulationState:
        self._report("compiling")
        return strip_weak_types(self.made.begin())

    def restore(self, folder: Path) -> PopulationState:
        path = folder / runs.CHECKPOINT
        if not path.exists():  # stopped before its first checkpoint, so to start is to go on
            return self.start()
        about = checkpoints.read_about(path)
        self.done, self.seconds = about["meta_steps"], about["seconds"]
        if self.done >= self.made.settings.meta_steps:
            raise DiscorlError(f"the run {folder} has its {self.done} meta-steps already; give more to go on")
        self.rows = records.read_rows(folder / runs.METRICS, until=self.done)
        self._report("compiling")
        return jax.device_put(checkpoints.load(path, self.made.shapes()), self.made.shardings)

    def run(self, state: PopulationState) -> DiscoveryResult:
        asked = self.made.settings
        board = self._open_metrics()
        programs: dict[int, Callable[..., Any]] = {}
        begun, first = time.perf_counter(), self.done
        earlier, saved = self.seconds, self.done
        try:
            for length in stretches(self.done, asked.meta_steps, asked.log_every):
                if length not in programs:
                    self._report("compiling")
                    whole = placement.everywhere(self.made.mesh)
                    advance = jax.jit(
                        self._stretch, static_argnums=1, out_shardings=(self.made.shardings, whole, whole)
                    )
                    programs[length] = compiled(partial(advance.lower, state, length))
                    begun, earlier = time.perf_counter(), self.seconds  # compiling is no discovering
                    first = self.done
                if self.stop():
                    break
                after, info, sound = programs[length](state)
                info = jax.device_get(info)
                self._check(info, bool(sound))
                state, self.done = after, self.done + length
                self.seconds = earlier + time.perf_counter() - begun
                self._record(info, board)
                self._report("discovering", (self.done - first) / (time.perf_counter() - begun))
                if self._due(asked.snapshot_every, length):
                    self._snapshot(state)
                if self.done - saved >= asked.checkpoint_every:
                    self._save(state)
                    saved = self.done
        except BaseException as error:  # interrupted or gone wrong: `state` ends the last good stretch
            if placement.alone() or isinstance(error, DiscorlError):  # else others may not know, and saving needs them
                self._save(state)
            raise
        self._save(state)
        return self._result(state)

    def _stretch(self, state: PopulationState, length: int) -> tuple[PopulationState, MetaInfo, jax.Array]:
        state, info = self.made.population.advance(self.made.hypers, state, length)
        return state, info, jnp.stack([jnp.isfinite(x).all() for x in jax.tree.leaves(state.eta)]).all()

    def _check(self, info: MetaInfo, sound: bool) -> None:
        """Agents may fail one by one; a rule that no agent can learn by, or that is not finite, ends the run."""
        nobody: Any = np.concatenate(info.skipped, axis=1).all(axis=1)  # [steps]
        for failed in nobody:
            self.unsound = self.unsound + 1 if failed else 0
        if sound and self.unsound < PATIENCE:
            return
        what = "no agent had a finite meta-gradient" if sound else "the rule is no longer finite"
        kept = f" (the rule of meta-step {self.done} is kept in {self.folder})" if self.folder else ""
        raise DiscorlError(
            f"{what} at meta-step {self.done + len(nobody)}{kept}; "
            f"discover with a smaller meta_learning_rate than {self.made.settings.meta_learning_rate:g} or clip"
        )

    def _open_metrics(self) -> Path | None:
        if self.folder is None:
            return None
        lines = "".join(records.encode(row) + "\n" for row in self.rows)  # what a crash left beyond them goes
        runs.write_text(self.folder / runs.METRICS, lines)
        return events.open_file(self.folder, purge_step=self.rows[-1].step + 1 if self.rows else None)

    def _record(self, info: MetaInfo, board: Path | None) -> None:
        row = records.make_row(
            info, [cohort.families for cohort in self.made.cohorts], self.done, round(self.seconds, 3)
        )
        self.rows.append(row)
        if self.folder and board:
            records.append(self.folder / runs.METRICS, board, row)

    def _due(self, every: int, length: int) -> bool:
        return self.done // every > (self.done - length) // every

    def _report(self, phase: str, steps_per_second: float = math.nan) -> None:
        total = self.made.settings.meta_steps
        latest = self.rows[-10:]
        self.progress(
            Progress(
                phase=phase,
                updates=self.done,
                total=total,
                early=_known([row.mean("early") for row in latest]),
                late=_known([row.mean("late") for row in latest]),
                speed=steps_per_second * self.made.steps_per_meta_step,
                seconds_left=(total - self.done) / steps_per_second,
            )
        )

    def _snapshot(self, state: PopulationState) -> None:
        if self.folder:
            path = self.folder / records.SNAPSHOTS / f"step-{self.done:06d}.npz"
            records.save_rule(path, self.made, state, self.seconds)

    def _save(self, state: PopulationState) -> None:
        state = placement.gathered(self.made.mesh, state)
        if self.folder is None:
            return
        about = {"meta_steps": self.done, "seconds": self.seconds}
        checkpoints.save(self.folder / runs.CHECKPOINT, state, about)
        records.save_rule(self.folder / records.RULE, self.made, state, self.seconds)

    def _result(self, state: PopulationState) -> DiscoveryResult:
        stopped = self.done < self.made.settings.meta_steps
        eta: Eta = jax.device_get(state.eta)
        result = DiscoveryResult(
            settings=self.made.settings,
            rule=rule_files.RuleFile(self.made.config, records.to_arrays(eta, self.made.config)),
            meta_steps=self.done,
            stopped=stopped,
            rows=self.rows,
            seconds=self.seconds,
            run_dir=self.folder,
        )
        if self.folder:
            curves = {
                name: np.array([[row.cohorts[name].early, row.cohorts[name].late] for row in self.rows]).T
                for name in self.names
            }
            steps = np.array([row.step for row in self.rows])
            plots.discovery_curves(self.folder / runs.CURVE, steps, curves, f"discovery on {self.made.settings.suite}")
            last = self.rows[-1] if self.rows else None
            about = {"meta_steps": self.done, "stopped": stopped, "seconds": round(self.seconds, 1)}
            about |= {"cohorts": json.loads(records.encode(last))["cohorts"]} if last else {}
            runs.write_text(self.folder / runs.SUMMARY, json.dumps(about, indent=2) + "\n")
        return result


def _known(values: list[float]) -> float:
    known = [x for x in values if not math.isnan(x)]
    return sum(known) / len(known) if known else math.nan
