"""The learning curve: a picture that shows what the numbers say."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from discorl import plots
from discorl.errors import DiscorlError


def colours(path: Path) -> set[tuple[int, ...]]:
    with Image.open(path) as image:
        return set(map(tuple, np.asarray(image.convert("RGB")).reshape(-1, 3).tolist()))


def rgb(text: str) -> tuple[int, ...]:
    return tuple(bytes.fromhex(text[1:]))


@pytest.mark.parametrize("agents", [1, 4])
def test_the_mean_is_drawn_and_agents_only_if_there_are_several(tmp_path: Path, agents: int) -> None:
    steps = np.arange(10) * 100
    returns = np.sin(np.arange(10.0))[None] + np.arange(agents)[:, None]
    returns[0, :3] = np.nan  # no episode had ended
    plots.learning_curve(tmp_path / "curve.png", steps, returns, "a rule on an environment")
    seen = colours(tmp_path / "curve.png")
    assert rgb(plots.LINE) in seen
    assert (rgb(plots.BAND) in seen) == (agents > 1)


def test_a_run_without_any_finished_episode_still_has_its_picture(tmp_path: Path) -> None:
    plots.learning_curve(tmp_path / "a.png", np.arange(3), np.full((2, 3), np.nan), "nothing yet")
    plots.learning_curve(tmp_path / "b.png", np.zeros(0, int), np.zeros((2, 0)), "nothing at all")
    assert rgb(plots.LINE) not in colours(tmp_path / "a.png") | colours(tmp_path / "b.png")


def test_a_long_title_stays_inside_the_picture(tmp_path: Path) -> None:
    """The outermost columns are white: nothing was cut off there."""
    plots.learning_curve(tmp_path / "a.png", np.arange(3), np.zeros((1, 3)), "actor_critic " * 8)
    with Image.open(tmp_path / "a.png") as image:
        pixels = np.asarray(image.convert("L"))
    assert (pixels[:, [0, 1, 2, -3, -2, -1]] == 255).all()


def test_a_picture_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(DiscorlError, match=r"cannot write .*curve\.png"):
        plots.learning_curve(tmp_path / "absent" / "curve.png", np.arange(2), np.zeros((1, 2)), "title")
