"""Training in compiled stretches: watched, recorded, stopped and resumed without changing a number."""

import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from discorl import checkpoints, experiment, plots, runs, settings
from discorl.errors import DiscorlError
from discorl.experiment import Agent, Experiment, Rule
from discorl.programs import Scores
from discorl.results import Progress, TrainResult, summary


def train(
    env: Any = "catch",
    rule: Rule | None = None,
    *,
    agent: Agent = "mlp",
    progress: Callable[[Progress], None] | None = None,
    stop: Callable[[], bool] | None = None,
    **options: Any,
) -> TrainResult:
    """Trains one agent, or `seeds` of them at once, and evaluates them.

    `env`, `rule` and `agent` are names or objects; `options` are the fields of `discorl.Settings`. With `run_dir` the
    run is kept on disk, as `discorl train` does. `stop` is asked between stretches whether to end early.
    """
    made = experiment.build(env, rule, agent, settings.make(options))
    folder = None
    if made.settings.run_dir:
        folder = runs.create(made.settings.run_dir, made.settings)
        made = made._replace(settings=replace(made.settings, run_dir=str(folder)))
    sitting = _Sitting(made, folder, progress, stop)
    try:
        return sitting.run(sitting.start())
    finally:
        made.program.close()


def resume(
    run_dir: str | Path,
    *,
    env: Any = None,
    rule: Rule | None = None,
    agent: Agent | None = None,
    progress: Callable[[Progress], None] | None = None,
    stop: Callable[[], bool] | None = None,
    **options: Any,
) -> TrainResult:
    """Goes on with a run exactly as if it had never stopped; `options` may lengthen it but not change it.

    Objects that were given to `train` must be given again: the run only knows their names.
    """
    folder = Path(run_dir)
    before = runs.read_settings(folder)
    asked = settings.make(settings.merge(vars(before), options, {"run_dir": str(folder)}))
    made = experiment.build(env or before.env, rule or before.rule, agent or before.agent, asked)
    # resolved again: a run of an earlier version does not know settings that came later
    if changed := settings.differences(settings.resolve(before, made.rule.name, made.rule.advice), made.settings):
        raise DiscorlError(
            f"the run {folder} was made with other settings ({'; '.join(changed)}); "
            "leave them out to go on with it, or start a new run"
        )
    sitting = _Sitting(made, folder, progress, stop)
    try:
        state = sitting.restore(folder)
        runs.write_settings(folder, made.settings)
        return sitting.run(state)
    finally:
        made.program.close()


def stretches(done: int, total: int, longest: int) -> Iterator[int]:
    """Cuts the rest of training into stretches: one length, and a remainder if need be.

    Every length is one more program to compile, so a somewhat shorter one that leaves no remainder is preferred.
    """
    longest = min(longest, total)
    divisor = next(n for n in range(longest, 0, -1) if total % n == 0)
    length = divisor if 2 * divisor >= longest else longest
    while done < total:
        yield min(length, total - done)
        done += length


class _Sitting:
    """A run from its start, or where it was left, to its end or the next interruption."""

    def __init__(
        self,
        made: Experiment,
        folder: Path | None,
        progress: Callable[[Progress], None] | None,
        stop: Callable[[], bool] | None,
    ) -> None:
        self.made, self.folder = made, folder
        self.progress, self.stop = progress or (lambda _: None), stop or (lambda: False)
        self.agents = made.settings.seeds
        self.rows: list[runs.Row] = []  # without logs: memory should not grow much with the run
        self.done = 0  # updates
        self.fingerprint = runs.fingerprint(made.eta)

    def start(self) -> PyTree:
        self._report("compiling")
        return self.made.program.start()

    def restore(self, folder: Path) -> PyTree:
        path = folder / runs.CHECKPOINT
        if not path.exists():  # stopped before its first checkpoint, so to start is to go on
            return self.start()
        about = checkpoints.read_about(path)
        if about.get("rule") != self.fingerprint:
            raise DiscorlError(f"the rule {self.made.settings.rule} is not the one that {folder} was trained with")
        self.done = about["updates"]
        if self.done > self.made.updates or runs.is_complete(folder, self.made.updates):
            raise DiscorlError(f"the run {folder} has its {self.done} updates already; give more updates to go on")
        self.rows = runs.read_rows(folder, until=self.done)
        self._report("compiling")
        return self.made.program.resume(checkpoints.load(path, self.made.program.like()))

    def run(self, state: PyTree) -> TrainResult:
        state = self._advance(state, runs.open_recorder(self.folder, self.rows) if self.folder else None)
        params = self.made.program.params(state)
        stopped = self.done < self.made.updates
        scores = self._evaluate(params, 0 if stopped else self.made.settings.eval_episodes)
        result = TrainResult(
            settings=self.made.settings,
            env=self.made.env,
            network=self.made.network,
            params=params,
            updates=self.done,
            stopped=stopped,
            steps=np.array([row.steps for row in self.rows], np.int64),
            returns=np.array([row.returns for row in self.rows], np.float64).reshape(-1, self.agents).T,
            greedy=scores.greedy,
            sampled=scores.sampled,
            cut=scores.cut,
            seconds=self.rows[-1].seconds if self.rows else 0.0,
            run_dir=self.folder,
        )
        if self.folder:
            title = f"{result.settings.rule_label} on {result.settings.env}"
            plots.learning_curve(self.folder / runs.CURVE, result.steps, result.returns, title)
            runs.write_text(self.folder / runs.SUMMARY, json.dumps(summary(result), indent=2) + "\n")
        return result

    def _advance(self, state: PyTree, recorder: runs.Recorder | None) -> PyTree:
        config, programs = self.made.settings, {}
        first, saved = self.done, self.done
        earlier = self.rows[-1].seconds if self.rows else 0.0
        spent = 0.0
        try:
            for length in stretches(self.done, self.made.updates, config.log_every or 1):
                if length not in programs:
                    self._report("compiling")
                    programs[length] = self.made.program.prepare(state, length)
                if self.stop():
                    break
                begun = time.perf_counter()
                after, info, healthy = programs[length](state)
                spent += time.perf_counter() - begun
                self._check(self._by_agent(info.learner.total_loss), np.atleast_1d(healthy))
                state, self.done = after, self.done + length
                row = self._row(info, earlier + spent)
                if recorder:
                    runs.record(recorder, row)
                self.rows.append(row._replace(logs={}))
                self._report("training", (self.done - first) / spent)
                if config.checkpoint_every and self.done - saved >= config.checkpoint_every:
                    self._save(state)
                    saved = self.done
        finally:  # also if interrupted or gone wrong: `state` ends the last good stretch
            self._save(state)
        return state

    def _check(self, losses: np.ndarray, healthy: np.ndarray) -> None:
        """`losses` [seeds, updates]. The last update of a stretch can spoil parameters without showing in its loss."""
        bad = ~np.isfinite(losses)
        if healthy.all() and not bad.any():
            return
        if bad.any():
            what, update = "the loss is", int(bad.any(axis=0).argmax())
            agents = np.flatnonzero(bad[:, update])
        else:
            what, update = "the parameters are", losses.shape[1] - 1
            agents = np.flatnonzero(~healthy)
        config = self.made.settings
        who = f" for seed {' and '.join(str(config.seed + i) for i in agents)}" if self.agents > 1 else ""
        kept = f" (the state after update {self.done} is kept in {self.folder})" if self.folder else ""
        raise DiscorlError(
            f"{what} not finite{who} from update {self.done + update + 1} on{kept}; "
            f"train with a smaller learning rate than {config.learning_rate:g}"
        )

    def _by_agent(self, values: np.ndarray) -> np.ndarray:
        """[updates] of a single agent as [1, updates]."""
        return np.asarray(values, np.float64).reshape(self.agents, -1)

    def _row(self, info: Any, seconds: float) -> runs.Row:
        episodes, returns, lengths = (
            self._by_agent(x).sum(axis=1) for x in (info.episodes, info.return_sum, info.length_sum)
        )
        ended = np.where(episodes > 0, episodes, np.nan)
        said = info.learner._replace(report=jax.tree.map(lambda x: x[..., -1], info.learner.report))  # one a stretch
        logs = {
            jax.tree_util.keystr(at, simple=True, separator="/"): float(np.mean(leaf))
            for at, leaf in jax.tree_util.tree_leaves_with_path(said)
        }
        return runs.Row(
            update=self.done,
            steps=self.made.steps(self.done),
            seconds=seconds,
            returns=tuple((returns / ended).tolist()),
            lengths=tuple((lengths / ended).tolist()),
            losses=tuple(self._by_agent(info.learner.total_loss).mean(axis=1).tolist()),
            logs=logs,
        )

    def _report(self, phase: str, updates_per_second: float = math.nan) -> None:
        total = self.made.updates
        per_update = self.made.program.steps_per_rollout / self.made.settings.updates_per_rollout
        known = (row.mean_return for row in reversed(self.rows) if not math.isnan(row.mean_return))
        self.progress(
            Progress(
                phase=phase,
                updates=self.done,
                total=total,
                steps=self.made.steps(self.done),
                episode_return=next(known, math.nan),
                speed=updates_per_second * per_update * self.agents,
                seconds_left=(total - self.done) / updates_per_second,
            )
        )

    def _save(self, state: PyTree) -> None:
        if self.folder is None:
            return
        about = {"updates": self.done, "rule": self.fingerprint}
        checkpoints.save(self.folder / runs.CHECKPOINT, state, about)
        runs.save_agents(self.folder, self.made.program.params(state), self.made.settings, self.made.rule.needs)

    def _evaluate(self, params: PyTree, episodes: int) -> Scores:
        if not episodes:
            return Scores(np.zeros((self.agents, 0)), np.zeros((self.agents, 0)), 0)
        self._report("evaluating")
        return self.made.program.evaluate(params, episodes)
