"""Training as a person meets it: what comes out, what is kept, and that going on changes nothing."""

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import tiny

from discorl import checkpoints, envs, experiment, networks, runs, settings, trainer
from discorl.envs import EnvSpec
from discorl.errors import DiscorlError
from discorl.results import Progress, TrainResult
from discorl.rules import library
from discorl.types import Needs


def train(folder: Path | None = None, **options: Any) -> TrainResult:
    place = {"run_dir": str(folder)} if folder else {}
    return trainer.train(**{"env": tiny.ENV, "rule": tiny.RULE, **tiny.SIZES, **place, **options})


class StopAfter:
    """Asks to stop once that many stretches are done."""

    def __init__(self, stretches: int) -> None:
        self.left = stretches

    def __call__(self) -> bool:
        self.left -= 1
        return self.left < 0


def same_files(one: Path, other: Path) -> bool:
    """Whether two runs hold the same numbers, the clock aside."""
    for name in (runs.CHECKPOINT, runs.AGENT):
        old, new = (checkpoints.read_entries(folder / name) for folder in (one, other))
        assert old.keys() == new.keys()
        for leaf in old.keys() - {checkpoints.HEADER}:
            np.testing.assert_array_equal(old[leaf], new[leaf], err_msg=leaf)
    rows = [[str(row._replace(seconds=0)) for row in runs.read_rows(folder)] for folder in (one, other)]
    return rows[0] == rows[1]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> TrainResult:
    """Two agents, trained to the end in one sitting."""
    return train(tmp_path_factory.mktemp("runs") / "whole", seeds=2)


@pytest.fixture
def whole(finished: TrainResult) -> Path:
    assert finished.run_dir is not None
    return finished.run_dir


def test_the_result_has_a_row_per_agent(finished: TrainResult) -> None:
    assert (finished.updates, finished.stopped, finished.cut) == (6, False, 0)
    assert finished.returns.shape == (2, 3)
    assert finished.steps.tolist() == [10 + 20, 10 + 40, 10 + 60]  # 2 x 5 fill the replay, then each update
    assert finished.greedy.shape == finished.sampled.shape == (2, 4)
    assert np.isin(finished.greedy, [-1, 1]).all()  # what a game of Catch can bring
    assert {leaf.shape[0] for leaf in jax.tree.leaves(finished.params)} == {2}


def test_the_run_folder_tells_the_same(finished: TrainResult, whole: Path) -> None:
    rows = [json.loads(line) for line in (whole / runs.METRICS).read_text().splitlines()]
    assert [row["update"] for row in rows] == [2, 4, 6]
    assert [row["steps"] for row in rows] == finished.steps.tolist()
    np.testing.assert_array_equal(np.array([row["returns"] for row in rows], float).T, finished.returns)
    assert all(math.isfinite(row["loss"]) and row["logs"] for row in rows)
    assert rows[-1]["seconds"] == pytest.approx(finished.seconds, abs=1e-3)
    ended = json.loads((whole / runs.SUMMARY).read_text())
    assert ended["evaluation"]["greedy"]["mean"] == pytest.approx(finished.greedy.mean())
    assert runs.read_settings(whole) == finished.settings
    assert (whole / runs.CURVE).read_bytes().startswith(b"\x89PNG")
    assert len(list(whole.glob("events.out.tfevents.*"))) == 1
    assert checkpoints.read_entries(whole / runs.CHECKPOINT)[".updates"].tolist() == [6, 6]


def test_a_stopped_run_goes_on_as_if_it_had_never_stopped(tmp_path: Path, whole: Path) -> None:
    part = train(tmp_path / "part", seeds=2, stop=StopAfter(1))
    assert part.stopped
    assert part.updates == 2
    assert not part.greedy.size
    rest = trainer.resume(tmp_path / "part")
    assert (rest.updates, rest.stopped) == (6, False)
    assert same_files(tmp_path / "part", whole)


def test_a_crash_loses_only_what_followed_the_checkpoint(tmp_path: Path, whole: Path) -> None:
    """Metrics beyond the checkpoint, as a power cut would leave them, are computed anew."""
    train(tmp_path / "part", seeds=2, stop=StopAfter(1))
    shutil.copy(whole / runs.METRICS, tmp_path / "part" / runs.METRICS)
    trainer.resume(tmp_path / "part")
    assert same_files(tmp_path / "part", whole)


def test_ctrl_c_in_a_notebook_keeps_the_finished_stretches(tmp_path: Path, whole: Path) -> None:
    def interrupt(progress: Progress) -> None:
        if progress.updates == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "part", seeds=2, progress=interrupt)
    trainer.resume(tmp_path / "part")
    assert same_files(tmp_path / "part", whole)


def test_other_seeds_give_other_numbers_and_the_same_seed_the_same(tmp_path: Path, whole: Path) -> None:
    train(tmp_path / "again", seeds=2, eval_episodes=0)
    assert same_files(tmp_path / "again", whole)
    train(tmp_path / "other", seeds=2, seed=7, eval_episodes=0)
    with pytest.raises(AssertionError):
        same_files(tmp_path / "other", whole)


def test_agent_i_of_many_has_the_key_of_the_agent_trained_alone() -> None:
    def keys(**options: int) -> np.ndarray:
        made = experiment.build(tiny.ENV, tiny.RULE, "mlp", settings.make({**tiny.SIZES, **options}))
        return np.asarray(jax.random.key_data(made.program.start().key))

    np.testing.assert_array_equal(keys(seed=5, seeds=3)[2], keys(seed=7))


def test_a_run_is_not_continued_with_other_settings(whole: Path) -> None:
    with pytest.raises(DiscorlError, match=r"other settings \(envs: 2 -> 4; learning_rate: .* -> 0\.1\)"):
        trainer.resume(whole, envs=4, learning_rate=0.1, updates=8)
    with pytest.raises(DiscorlError, match=r"env: catch:4x3 -> probe/action"):
        trainer.resume(whole, env="probe/action")
    assert runs.read_settings(whole).updates == 6


def test_a_complete_run_can_be_lengthened(tmp_path: Path, whole: Path) -> None:
    with pytest.raises(DiscorlError, match="has its 6 updates already; give more updates"):
        trainer.resume(whole)
    shutil.copytree(whole, tmp_path / "longer")
    result = trainer.resume(tmp_path / "longer", updates=8, eval_episodes=0)
    assert result.updates == 8
    assert [row.update for row in runs.read_rows(tmp_path / "longer")] == [2, 4, 6, 8]
    assert runs.read_settings(tmp_path / "longer").updates == 8


def test_a_run_is_not_continued_with_another_rule(tmp_path: Path, whole: Path) -> None:
    shutil.copytree(whole, tmp_path / "copy")
    path = tmp_path / "copy" / runs.CHECKPOINT
    entries: dict[str, Any] = checkpoints.read_entries(path)
    entries[checkpoints.HEADER] = np.asarray(json.dumps({"updates": 6, "rule": "0123"}))
    np.savez(path, **entries)
    with pytest.raises(DiscorlError, match="the rule actor_critic is not the one"):
        trainer.resume(tmp_path / "copy", updates=8)


def test_a_run_that_died_before_its_first_checkpoint_starts_over(tmp_path: Path, whole: Path) -> None:
    runs.create(str(tmp_path / "new"), runs.read_settings(whole))
    trainer.resume(tmp_path / "new", eval_episodes=0)
    assert same_files(tmp_path / "new", whole)


def test_checkpoints_come_as_often_as_asked(tmp_path: Path) -> None:
    seen: list[int] = []

    def look(progress: Progress) -> None:
        path = tmp_path / "run" / runs.CHECKPOINT
        seen.append(checkpoints.read_about(path)["updates"] if path.exists() else 0)

    train(tmp_path / "run", checkpoint_every=4, updates=10, eval_episodes=0, progress=look)
    assert seen == [0, 0, 0, 0, 4, 4, 8]  # twice compiling, then five stretches, each seen before its own checkpoint


@pytest.mark.parametrize("seeds", [1, 2])
def test_a_loss_that_is_not_finite_ends_training_and_keeps_the_last_good_state(tmp_path: Path, seeds: int) -> None:
    with pytest.raises(DiscorlError, match=r"not finite .*from update (\d+) on .*smaller learning rate") as error:
        train(tmp_path / "run", learning_rate=1e38, max_update=1e38, seeds=seeds)
    done = checkpoints.read_about(tmp_path / "run" / runs.CHECKPOINT)["updates"]
    assert f"the state after update {done} is kept" in str(error.value)
    entries = checkpoints.read_entries(tmp_path / "run" / runs.AGENT)
    assert all(np.isfinite(x).all() for name, x in entries.items() if name != checkpoints.HEADER)


def test_the_first_bad_update_and_seed_are_named() -> None:
    made = experiment.build(tiny.ENV, tiny.RULE, "mlp", settings.make({**tiny.SIZES, "seeds": 2, "seed": 5}))
    sitting = trainer._Sitting(made, None, None, None)
    sitting.done = 10
    good = np.zeros((2, 4))
    sitting._check(good, np.array([True, True]))
    bad = good.copy()
    bad[1, 2:] = np.nan
    with pytest.raises(DiscorlError, match="the loss is not finite for seed 6 from update 13 on"):
        sitting._check(bad, np.array([True, False]))
    with pytest.raises(DiscorlError, match="the parameters are not finite for seed 5 from update 14 on"):
        sitting._check(good, np.array([False, True]))


def test_objects_stand_in_for_names(tmp_path: Path) -> None:
    def mine(spec: EnvSpec, needs: Needs) -> networks.AgentNetwork:
        return networks.mlp(spec, needs, hidden=(8,))

    env, rule = envs.catch(4, 3), library.load_rule(tiny.RULE)
    result = train(tmp_path / "run", env=env, rule=rule, agent=mine, hidden=(99,), eval_episodes=0)
    assert (1, 12, 8) in [x.shape for x in jax.tree.leaves(result.params)]  # 4 x 3 cells into 8 units, not 99
    assert (result.settings.env, result.settings.rule, result.settings.agent) == (tiny.ENV, tiny.RULE, "custom")
    with pytest.raises(DiscorlError, match="given as an object"):
        trainer.resume(tmp_path / "run", updates=8)
    assert trainer.resume(tmp_path / "run", agent=mine, updates=8, eval_episodes=0).updates == 8


def test_steps_are_rounded_up_to_updates() -> None:
    for steps, updates in ((1, 1), (10 + 30, 3), (10 + 31, 4)):
        asked = settings.make({**tiny.SIZES, "updates": None, "steps": steps})
        assert experiment.build(tiny.ENV, tiny.RULE, "mlp", asked).updates == updates
        often = replace(asked, updates_per_rollout=4)
        made = experiment.build(tiny.ENV, tiny.RULE, "mlp", often)
        assert (made.updates, made.steps(made.updates)) == (4 * updates, 10 + 10 * updates)


@pytest.mark.parametrize(
    ("done", "total", "longest", "expected"),
    [
        (0, 100, 25, [25] * 4),
        (0, 70, 20, [14] * 5),  # a little shorter, no second program
        (0, 101, 50, [50, 50, 1]),  # a prime: no divisor will do
        (0, 7, 50, [7]),
        (28, 70, 20, [14] * 3),
        (50, 60, 20, [10]),
        (60, 60, 20, []),
    ],
)
def test_stretches_cover_the_rest_in_few_lengths(done: int, total: int, longest: int, expected: list[int]) -> None:
    assert list(trainer.stretches(done, total, longest)) == expected


def test_unknown_names_are_met_with_near_ones() -> None:
    with pytest.raises(DiscorlError, match="unknown agent 'mpl'; did you mean 'mlp'"):
        train(agent="mpl")
    with pytest.raises(DiscorlError, match="unknown setting 'learningrate'; did you mean 'learning_rate'"):
        train(learningrate=1)


@pytest.mark.parametrize(
    ("rule", "options", "same_as"),
    [
        ("actor_critic", {"discount": 0.5}, "actor_critic:discount=0.5"),
        ("actor_critic:entropy_cost=0.1", {"discount": 0.5}, "actor_critic:entropy_cost=0.1,discount=0.5"),
        ("actor_critic:discount=0.9", {"discount": 0.5}, "actor_critic:discount=0.9"),  # the rule's word is closer
        ("disco-mini", {"discount": 0.5}, "disco-mini:discount=0.5"),
    ],
)
def test_a_discount_is_that_of_the_rule(rule: str, options: dict[str, Any], same_as: str) -> None:
    def weights(rule: str, **options: Any) -> float:
        done = trainer.train(tiny.ENV, rule, **{**tiny.SIZES, "updates": 2, "eval_episodes": 0, **options})
        return float(np.abs(np.concatenate([x.ravel() for x in jax.tree.leaves(done.params)])).sum())

    assert weights(rule, **options) == weights(same_as)
    assert weights(same_as) != weights("actor_critic" if "critic" in rule else "disco-mini")


def test_a_discount_cannot_change_a_rule_that_is_made() -> None:
    with pytest.raises(DiscorlError, match="discount belongs to the rule, which was given as an object"):
        train(rule=library.load_rule("actor_critic"), discount=0.5)
