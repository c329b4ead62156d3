"""Training where Python steps: threads change no number, and going on, stopping and failing are in good order."""

from functools import partial
from pathlib import Path
from typing import Any

import host_worlds as worlds
import jax
import numpy as np
import pytest
import tiny
from PIL import Image

from discorl import checkpoints, envs, evaluation, experiment, play, runs, settings, trainer
from discorl.errors import DiscorlError
from discorl.host_acting import Collector, example_rollout, make_policy
from discorl.host_training import HostState
from discorl.learner import make_learner
from discorl.replay import HostReplay
from discorl.results import TrainResult

SIZES = {**tiny.SIZES, "envs": 3, "groups": 2, "replay_size": 9, "eval_episodes": 0}


def train(env: Any = worlds.Counter, **options: Any) -> TrainResult:
    return trainer.train(env, tiny.RULE, **{**SIZES, **options})


def leaves(tree: Any) -> list[np.ndarray]:
    return [np.asarray(x) for x in jax.tree.leaves(tree)]


def assert_same(one: Any, other: Any) -> None:
    for a, b in zip(leaves(one), leaves(other), strict=True):
        np.testing.assert_array_equal(a, b)


def one_by_one(updates: int, lag: int, per_rollout: int = 1, **options: Any) -> Any:
    """The same training without threads, written down as plainly as possible."""
    asked = settings.make({**SIZES, **options, "updates": updates})
    made = experiment.build(worlds.Counter, tiny.RULE, "mlp", asked)
    env, network, config = made.env, made.network, experiment.training_config(made.settings)
    assert isinstance(env, envs.HostEnvironment)
    learner = make_learner(network, made.rule, config.mask)
    example = partial(example_rollout, network, env.spec, config.rollout, 1)
    groups = [Collector(network, make_policy(network), env.open(n), example(n)) for n in (2, 1)]
    for i, group in enumerate(groups):
        group.begin(int(np.random.SeedSequence((0, i, 0)).generate_state(1)[0]))
    obs = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), env.spec.observation)
    state = jax.jit(learner.init)(jax.random.key(0), obs)
    history = [state.params]
    step, replay = jax.jit(learner.step), None
    hypers = experiment.optimizer_numbers(made.settings)
    for update in range(1 - config.prefill, updates):  # before the first there are rollouts to fill the replay
        for group in groups if update < 0 or update % per_rollout == 0 else ():
            got, _ = group.collect(history[max(0, update - lag * per_rollout)])
            replay = replay or HostReplay(got, config.replay_size)
            replay.add(got)
        if update >= 0:
            assert replay is not None
            batch = replay.sample(np.random.default_rng((0, update)), config.batch, config.fresh_count)
            state, _ = step(made.eta, hypers, state, batch)
            history.append(state.params)
    return history[-1]


@pytest.mark.parametrize("lag", [0, 2])
def test_threads_change_no_number_and_acting_lags_by_exactly_what_is_said(lag: int) -> None:
    trained = train(lag=lag, replay_share=0.5)
    assert_same(jax.tree.map(lambda x: x[0], trained.params), one_by_one(6, lag, replay_share=0.5))


def test_storing_each_frame_once_changes_no_number() -> None:
    """Episodes that a clock ends are among them. The plain loop stores stacks as they are seen."""
    trained = train(frame_stack=3, replay_share=0.5)
    assert_same(jax.tree.map(lambda x: x[0], trained.params), one_by_one(6, 1, frame_stack=3, replay_share=0.5))


@pytest.mark.parametrize("lag", [0, 1])
def test_several_updates_may_follow_a_rollout(lag: int) -> None:
    trained = train(lag=lag, updates_per_rollout=4)  # 6 updates, in stretches of 2
    assert_same(jax.tree.map(lambda x: x[0], trained.params), one_by_one(6, lag, per_rollout=4))
    assert trained.steps[-1] == 15 * (2 - 1 + 2)  # 3 environments of 5 steps: a batch takes 2 rollouts, updates 2 more


def test_actions_are_drawn_from_the_policy() -> None:
    """In a world whose observations do not matter: how often each action is taken, against softmax(logits)."""
    made = experiment.build(worlds.Counter, tiny.RULE, "mlp", settings.make(SIZES))
    env = made.env
    assert isinstance(env, envs.HostEnvironment)
    logits = np.linspace(0, 3, env.spec.num_actions, dtype=np.float32)
    example = example_rollout(made.network, env.spec, 400, 1, 5)
    group = Collector(made.network, lambda *_: (np.tile(logits, (5, 1)), ()), env.open(5), example)
    group.begin(0)
    rollout, _ = group.collect(())
    share = np.bincount(rollout.action.ravel(), minlength=len(logits)) / rollout.action.size
    np.testing.assert_allclose(share, np.exp(logits) / np.exp(logits).sum(), atol=0.015)
    np.testing.assert_array_equal(rollout.behaviour_logits[0, 0], logits)


def test_agents_of_many_seeds_are_those_trained_alone() -> None:
    together, alone = train(seeds=2), train(seed=1)
    assert_same(jax.tree.map(lambda x: x[1], together.params), jax.tree.map(lambda x: x[0], alone.params))
    np.testing.assert_array_equal(together.returns[1], alone.returns[0])
    assert any((x[0] != x[1]).any() for x in leaves(together.params))


def test_returns_and_lengths_are_those_of_whole_episodes() -> None:
    rows = train().returns[0]
    possible = [1 + 2 + 3, 1 + 2 + 3 + 4, 1 + 2 + 3 + 4 + 5]
    assert all(min(possible) <= x <= max(possible) for x in rows if np.isfinite(x))


@pytest.mark.parametrize("stack", [1, 3])
def test_a_run_goes_on_with_its_replay_and_new_episodes(tmp_path: Path, stack: int) -> None:
    """The environments cannot be saved; everything else can, and a resume repeats itself."""
    first = train(run_dir=tmp_path / "run", updates=4, frame_stack=stack)
    entries = checkpoints.read_entries(tmp_path / "run" / runs.CHECKPOINT)
    assert entries["[0].updates"] == 4
    assert entries["[0].replay.size"] == 9
    params = []
    for copy in range(2):
        folder = tmp_path / f"copy{copy}"
        folder.mkdir()
        for file in (tmp_path / "run").iterdir():
            (folder / file.name).write_bytes(file.read_bytes())
        result = trainer.resume(folder, env=worlds.Counter, updates=6)
        assert result.updates == 6
        params.append(result.params)
    assert_same(*params)
    assert any((a != b).any() for a, b in zip(leaves(first.params), leaves(params[0]), strict=True))


def test_an_environment_that_raises_ends_training_and_the_last_good_state_is_kept(tmp_path: Path) -> None:
    with pytest.raises(DiscorlError, match="'Raising': step raised RuntimeError: the simulator is gone"):
        train(worlds.Raising, run_dir=tmp_path / "run", updates=100, log_every=1)
    saved = checkpoints.read_entries(tmp_path / "run" / runs.CHECKPOINT)
    assert 0 < saved["[0].updates"] < 100


def test_evaluation_plays_equally_many_episodes_in_every_lane() -> None:
    env = envs.as_environment(worlds.Counter)
    made = experiment.build(env, tiny.RULE, "mlp", settings.make(SIZES))
    params = made.network.init(jax.random.key(0))
    played = evaluation.run_host_episodes(env, made.network, params, jax.random.key(0), True, episodes=40)
    assert played.finished.all()
    # lanes x 3 episodes: 3, 4 and 5 steps each once, whichever comes first, but for the 8 that are too many
    counts = [int((played.returns == total).sum()) for total in (6, 10, 15)]
    assert sum(counts) == 40
    assert min(counts) >= 16 - 8


def test_the_right_action_is_learned() -> None:
    """Episodes of one step: all of them are first ones, so the mask must count those."""
    sizes = {"updates": 60, "envs": 8, "replay_size": 64, "batch": 16, "learning_rate": 1e-2, "log_every": 30}
    assert train(worlds.Bandit, mask="all", eval_episodes=20, **sizes).greedy.mean() == 1


def test_a_trained_agent_plays_and_what_it_sees_is_shown(tmp_path: Path) -> None:
    train(run_dir=tmp_path / "run", updates=2)
    player = play.load(tmp_path / "run", env=worlds.Counter)
    frames = list(play.play(player, episodes=2))
    ends = [frame for frame in frames if frame.action is None]
    assert [frame.episode for frame in ends] == [1, 2]
    for end in ends:
        episode, t = map(float, str(end.picture).split())
        assert t == end.step == 3 + episode % 3  # the final observation, not the next episode's first
        assert end.episode_return == sum(range(end.step + 1))
    drawn = [frame._replace(picture=np.full((4, 5, 3), 40 * i, np.uint8)) for i, frame in enumerate(frames[:3])]
    play.write_gif(tmp_path / "a.gif", drawn)
    with Image.open(tmp_path / "a.gif") as image:
        assert (image.size, getattr(image, "n_frames")) == ((5, 4), 3)  # noqa: B009


def test_states_are_arrays_only() -> None:
    made = experiment.build(worlds.Counter, tiny.RULE, "mlp", settings.make(SIZES))
    (state,) = made.program.start()
    try:
        assert isinstance(state, HostState)
        like = made.program.like()[0]
        assert [(x.shape, x.dtype) for x in leaves(state)] == [(x.shape, x.dtype) for x in jax.tree.leaves(like)]
    finally:
        made.program.close()
