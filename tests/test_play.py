"""Playing: saved agents act again, and what is shown is what happens."""

import ast
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import jax
import numpy as np
import pytest
import tiny
from PIL import Image

from discorl import envs, play, runs, trainer
from discorl.errors import DiscorlError


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    trainer.train(tiny.ENV, tiny.RULE, run_dir=str(folder), seeds=2, **{**tiny.SIZES, "eval_episodes": 0})
    return folder


def test_agents_come_back_as_they_were_saved(run: Path, tmp_path: Path) -> None:
    result = trainer.train(tiny.ENV, tiny.RULE, run_dir=str(tmp_path / "r"), **{**tiny.SIZES, "eval_episodes": 0})
    player = play.load(tmp_path / "r")
    for saved, loaded in zip(jax.tree.leaves(result.params), jax.tree.leaves(player.params), strict=True):
        np.testing.assert_array_equal(saved, loaded)


def test_episodes_are_whole_and_their_frames_follow_the_rules_of_the_game(run: Path) -> None:
    frames = list(play.play(play.load(run), episodes=2, which=1))
    assert [(frame.episode, frame.step) for frame in frames] == [(e, s) for e in (1, 2) for s in range(4)]
    first, *_, last = frames[:4]
    assert str(first.picture).splitlines()[0].count("o") == 1  # the ball starts at the top of 4 x 3
    assert first.action in ("left", "stay", "right")
    assert last.action is None
    assert last.episode_return == (1 if "@" in last.picture else -1)


def test_the_same_seed_shows_the_same_and_greedy_needs_no_luck(run: Path) -> None:
    player = play.load(run)
    drawn = [[f.picture for f in play.play(player, episodes=4, seed=seed)] for seed in (3, 3, 4)]
    assert drawn[0] == drawn[1] != drawn[2]
    by_start: dict[str, set[str | None]] = {}
    for frame in play.play(player, episodes=20, greedy=True):
        by_start.setdefault(frame.picture, set()).add(frame.action)
    assert all(len(actions) == 1 for actions in by_start.values())


def test_each_agent_of_a_run_plays_its_own_way(run: Path) -> None:
    player = play.load(run)
    ways = [[f.action for f in play.play(player, episodes=12, greedy=True, which=which)] for which in (0, 1)]
    assert ways[0] != ways[1]


def test_an_endless_episode_is_left_after_max_steps(run: Path) -> None:
    frames = list(play.play(play.load(run), episodes=1, max_steps=2))
    assert [frame.step for frame in frames] == [0, 1, 2]


def test_a_gif_has_a_picture_per_frame_with_the_ball_in_its_colour(run: Path, tmp_path: Path) -> None:
    frames = list(play.play(play.load(run), episodes=2))
    play.write_gif(tmp_path / "a.gif", frames, 10.0)
    with Image.open(tmp_path / "a.gif") as image:
        assert getattr(image, "n_frames") == 8  # noqa: B009, Pillow types only what all formats have
        pixels = np.asarray(image.convert("RGB"))
    assert pixels.shape == (4 * play.CELL, 3 * play.CELL, 3)
    column = str(frames[0].picture).splitlines()[0].index("o")
    middle = play.CELL // 2
    row = [tuple(pixels[middle, middle + i * play.CELL].tolist()) for i in range(3)]
    assert row[column] in play.COLOURS
    assert [row[i] for i in range(3) if i != column] == [play.BACKGROUND] * 2


def test_a_gif_of_text_is_readable_text(tmp_path: Path) -> None:
    env = envs.probes.action()
    state, _ = env.reset(jax.random.key(0))
    play.write_gif(tmp_path / "a.gif", [play.Frame(1, 0, env.render(state), None, 0.0)], 10.0)
    with Image.open(tmp_path / "a.gif") as image:
        pixels = np.asarray(image.convert("RGB"))
    assert pixels.max() > 150  # bright on a dark ground
    assert np.ptp(pixels.astype(int), axis=-1).max() < 20  # and grey: no coloured cells


RECORDER = """#!{python}
import sys
from pathlib import Path
sent = sys.stdin.buffer.read()
Path({record!r}).write_text(repr((sys.argv[1:], len(sent), sent[:3])))
Path(sys.argv[-1]).write_bytes(b"film")
"""


def test_a_film_is_every_frame_in_its_size_and_its_end_lingers(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without ffmpeg: a program in its place writes down what it was given."""
    program, record = tmp_path / "ffmpeg", tmp_path / "record"
    program.write_text(RECORDER.format(python=sys.executable, record=str(record)))
    program.chmod(0o700)
    finder = ModuleType("imageio_ffmpeg")
    setattr(finder, "get_ffmpeg_exe", lambda: str(program))  # noqa: B010, a module has no such attribute to assign
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", finder)
    frames = list(play.play(play.load(run), episodes=2))
    play.film_writer(tmp_path / "a.mp4")(frames, 12.5)
    assert (tmp_path / "a.mp4").read_bytes() == b"film"
    arguments, length, first = ast.literal_eval(record.read_text())
    width, height = 3 * play.CELL, 4 * play.CELL
    assert length == width * height * 3 * (2 * 3 + 2 * 4)  # 3 steps, and an end that is seen 4 times as long
    assert first == bytes(play.BACKGROUND)
    assert [arguments[arguments.index(flag) + 1] for flag in ("-s", "-r")] == [f"{width}x{height}", "12.5"]
    assert f"scale={width * 7}:{height * 7}:" in arguments[arguments.index("-vf") + 1]
    program.write_text("#!/bin/sh\necho 'no such codec' >&2\nexit 1\n")
    with pytest.raises(DiscorlError, match=r"could not make .*a\.mp4: no such codec; a GIF needs no ffmpeg"):
        play.write_mp4(tmp_path / "a.mp4", frames)
    program.unlink()
    with pytest.raises(DiscorlError, match=r"needs ffmpeg, but .* is none"):
        play.film_writer(tmp_path / "a.mp4")
    assert (tmp_path / "a.mp4").read_bytes() == b"film"


def test_a_film_can_be_seen(run: Path, tmp_path: Path) -> None:
    ffmpeg = pytest.importorskip("imageio_ffmpeg")
    odd = np.zeros((241, 301, 3), np.uint8)
    odd[:, :, 0] = 200
    play.film_writer(tmp_path / "a.mp4")([play.Frame(1, i, odd, None if i else "left", 0.0) for i in range(2)], 10.0)
    shown = subprocess.run(
        [
            ffmpeg.get_ffmpeg_exe(),
            "-loglevel",
            "error",
            "-i",
            tmp_path / "a.mp4",
            *["-f", "rawvideo", "-pix_fmt", "rgb24", "-"],
        ],
        capture_output=True,
        check=True,
    )
    pixels = np.frombuffer(shown.stdout, np.uint8).reshape(5, 242, 302, 3)
    assert abs(pixels[:, 100, 100].astype(int) - [200, 0, 0]).max() < 12


def test_films_that_nobody_can_write_are_refused_before_playing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    with pytest.raises(DiscorlError, match=r"install it with: pip install 'discorl\[video\]'"):
        play.film_writer(tmp_path / "a.mp4")
    with pytest.raises(DiscorlError, match=r"films end in \.gif or \.mp4"):
        play.film_writer(tmp_path / "a.avi")
    play.film_writer(tmp_path / "a.gif")


def test_mistakes_are_one_sentence(run: Path, tmp_path: Path) -> None:
    with pytest.raises(DiscorlError, match="is no run"):
        play.load(tmp_path)
    player = play.load(run)
    with pytest.raises(DiscorlError, match="there is no agent 2 in this run: it has 2, counted from 0"):
        next(play.play(player, which=2))
    with pytest.raises(DiscorlError, match="episodes must be positive"):
        next(play.play(player, episodes=0))
    with pytest.raises(DiscorlError, match="cannot write"):
        play.write_gif(tmp_path / "absent" / "a.gif", [play.Frame(1, 0, "x", None, 0.0)], 10.0)
    with pytest.raises(DiscorlError, match="frames per second must be positive"):
        play.write_gif(tmp_path / "a.gif", [play.Frame(1, 0, "x", None, 0.0)], 0.0)


def test_a_damaged_agent_is_refused(run: Path, tmp_path: Path) -> None:
    (tmp_path / runs.AGENT).write_bytes((run / runs.AGENT).read_bytes()[:200])
    with pytest.raises(DiscorlError, match="damaged"):
        play.load(tmp_path)
