"""Judging a saved run: the episodes of training again, other environments, intervals, and what is kept on disk."""

import json
from pathlib import Path
from typing import Any

import host_worlds as worlds
import jax
import numpy as np
import pytest
import tiny

import discorl
from discorl import console, evaluation, experiment, judging, play, runs, settings, trainer
from discorl.envs.adapters import atari_scores
from discorl.errors import DiscorlError
from discorl.results import TrainResult

EPISODES = 6


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> TrainResult:
    sizes = {**tiny.SIZES, "updates": 2, "eval_episodes": EPISODES, "seeds": 2}
    return trainer.train(tiny.ENV, tiny.RULE, run_dir=str(tmp_path_factory.mktemp("runs") / "run"), **sizes)


def newborn(folder: Path, env: Any) -> Path:
    """A run that has not learnt anything, and has compiled nothing."""
    made = experiment.build(env, tiny.RULE, "mlp", settings.make(tiny.SIZES))
    params = jax.tree.map(lambda x: x[None], made.network.init(jax.random.key(0)))
    runs.save_agents(runs.create(str(folder), made.settings), params, made.settings, made.rule.needs)
    return folder


def test_without_a_seed_the_end_of_training_is_repeated_and_another_seed_differs(trained: TrainResult) -> None:
    assert trained.run_dir is not None
    again = discorl.evaluate(trained.run_dir, episodes=EPISODES)
    np.testing.assert_array_equal(again.greedy.returns, trained.greedy)
    np.testing.assert_array_equal(again.sampled.returns, trained.sampled)
    np.testing.assert_array_equal(again.sampled.lengths, np.full((2, EPISODES), 3))  # 4 rows: the ball falls 3 times
    other = judging.judge(trained.run_dir, episodes=EPISODES, seed=11)
    assert (other.sampled.returns != trained.sampled).any()
    mean = trained.sampled.mean()
    assert again.sampled.score.mean == pytest.approx(mean)
    assert again.sampled.score.low <= mean <= again.sampled.score.high
    assert again.sampled.score.median == np.median(trained.sampled)


def test_results_on_several_environments_are_kept_side_by_side(tmp_path: Path) -> None:
    run = newborn(tmp_path / "run", "grid/goals:3")
    own, other = discorl.evaluate(run, episodes=3), discorl.evaluate(run, episodes=4, env="grid/goals:4")
    kept = json.loads((run / runs.EVALUATION).read_text())
    assert list(kept) == ["grid/goals:3", "grid/goals:4"]
    assert kept["grid/goals:3"]["greedy"]["returns"] == own.greedy.returns.tolist()
    assert kept["grid/goals:4"]["sampled"]["mean"] == other.sampled.returns.mean()
    assert kept["grid/goals:4"]["trained_on"] == "grid/goals:3"
    assert kept["grid/goals:4"]["sampled"]["length"]["greatest"] == other.sampled.lengths.max()
    assert [path.name for path in run.glob(".*")] == []  # no draft is left


def test_where_python_steps_the_same_holds(tmp_path: Path) -> None:
    run = newborn(tmp_path / "run", worlds.Counter)
    result = judging.judge(run, episodes=3, env=worlds.Counter)
    for judged in (result.greedy, result.sampled):
        lengths = judged.lengths
        np.testing.assert_array_equal(judged.returns, lengths * (lengths + 1) / 2)  # Counter pays 1, 2, 3, ...
        assert set(lengths.ravel().tolist()) <= {3, 4, 5}
        assert judged.cut == 0
    with pytest.raises(DiscorlError, match="unknown environment 'Counter'"):
        judging.judge(run)  # objects must be given again


def test_an_endless_episode_is_cut_where_python_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lanes cannot be made to begin anew: pieces of the same length count, none is missing."""
    monkeypatch.setattr(evaluation, "MAX_STEPS", 2)
    monkeypatch.setattr(evaluation, "HOST_LANES", 1)
    monkeypatch.setattr(worlds.Counter, "step", lambda self, action: (self.seen(), 1.0, False, False, {}))
    result = judging.judge(newborn(tmp_path / "run", worlds.Counter), episodes=3, env=worlds.Counter)
    assert (result.greedy.returns.tolist(), result.greedy.cut) == ([[2.0, 2.0, 2.0]], 3)


def test_games_of_atari_are_compared_with_people(trained: TrainResult) -> None:
    pong = atari_scores.yardstick("atari:pong")
    assert pong is not None
    assert (pong.normalised(-20.7), pong.normalised(14.6)) == (0.0, 1.0)
    for name in ("atari:up_n_down/full", "ALE/UpNDown-v5"):
        assert atari_scores.yardstick(name) == (533.4, 11693.2)
    assert [atari_scores.yardstick(name) for name in ("atari:adventure", "minatar:breakout", "pong")] == [None] * 3
    assert len(atari_scores.SCORES) == 57
    assert all(scores.human > scores.random for scores in atari_scores.SCORES.values())
    assert sum(scores.human for scores in atari_scores.SCORES.values()) == pytest.approx(606_494.2)  # no digit slips
    assert sum(scores.random for scores in atari_scores.SCORES.values()) == pytest.approx(50_864.9)
    played = evaluation.Episodes(
        returns=np.full((1, 2), 14.6), finished=np.array([[True, False]]), lengths=np.array([[900, 2]])
    )
    judged = judging._judged(played, "atari:pong")
    assert judged.human is not None
    assert (judged.human.mean, judged.human.low, judged.human.median) == pytest.approx((1, 1, 1))
    assert judged.cut == 1
    assert trained.run_dir is not None
    config = runs.read_settings(trained.run_dir)
    result = judging.Evaluation(trained.run_dir, config, "atari:pong", 2, 0, judged, judged)
    lines = console.evaluation_lines(result)
    assert [line.split() for line in lines[2:4]] == [
        ["greedy", "14.600", "[14.600,", "14.600]", "14.600", "451.0", "2", "-", "900"],
        ["human", "=", "1", "1.000", "[1.000,", "1.000]", "1.000"],
    ]
    assert lines[-1] == "2 of these episodes did not end within 900 steps and were cut"
    assert judging.summary(result)["greedy"]["human_normalised"]["mean"] == pytest.approx(1)


def test_mistakes_are_one_sentence(trained: TrainResult, tmp_path: Path) -> None:
    run = trained.run_dir
    assert run is not None
    with pytest.raises(DiscorlError, match=r"know 3 actions and see float32\[4, 3\], but 'catch:5x3' has 3 and shows"):
        judging.judge(run, env="catch:5x3")
    with pytest.raises(DiscorlError, match="seed must lie between 0 and"):
        judging.judge(run, seed=-1)
    (tmp_path / runs.CONFIG).write_text("envs = 2\n")
    with pytest.raises(DiscorlError, match="has saved no agent yet"):
        judging.judge(tmp_path)
    (tmp_path / runs.AGENT).write_bytes((run / runs.AGENT).read_bytes())
    (tmp_path / runs.EVALUATION).write_text("[1]")
    with pytest.raises(DiscorlError, match="was not written by discorl; move it away"):
        judging.judge(tmp_path)


@pytest.mark.parametrize("env", [tiny.ENV, "host_worlds:Counter"])
def test_agents_that_see_several_observations_are_judged_and_shown_the_same_way(tmp_path: Path, env: str) -> None:
    sizes = {**tiny.SIZES, "updates": 2, "eval_episodes": EPISODES, "frame_stack": 3}
    done = trainer.train(env, tiny.RULE, run_dir=str(tmp_path / "run"), **sizes)
    assert done.run_dir is not None
    again = discorl.evaluate(done.run_dir, episodes=EPISODES)
    np.testing.assert_array_equal(again.greedy.returns, done.greedy)
    other = discorl.evaluate(done.run_dir, episodes=EPISODES, env=env)
    np.testing.assert_array_equal(other.greedy.returns, done.greedy)
    frames = list(play.play(play.load(done.run_dir), episodes=1))
    assert frames[-1].action is None
