"""What people read: lines that are true, not too many of them, and a summary that says how sure it is."""

import math
from pathlib import Path

import numpy as np
import pytest

from discorl import console, envs, networks
from discorl.results import Progress, TrainResult
from discorl.settings import Settings
from discorl.types import Needs


def result(agents: int = 1, stopped: bool = False, cut: int = 0, run_dir: Path | None = Path("runs/x")) -> TrainResult:
    env = envs.make("probe/action")
    scores = np.tile([[1.0, 0.0, 1.0, 0.0]], (agents, 1)) + np.arange(agents)[:, None]
    return TrainResult(
        settings=Settings(env="catch", rule="/some/mine.npz", seeds=agents),
        env=env,
        network=networks.mlp(env.spec, Needs(), hidden=(2,)),
        params=(),
        updates=1200,
        stopped=stopped,
        steps=np.array([600, 1_200_000]),
        returns=np.zeros((agents, 2)),
        greedy=scores,
        sampled=scores[:, :0],
        cut=cut,
        seconds=125.0,
        run_dir=run_dir,
    )


def test_a_line_says_all_that_was_promised() -> None:
    p = Progress("training", 1200, 5000, 60_000, 0.51234, 1234.5, 3723.0)
    assert console.progress_line(p) == "update 1,200/5,000  steps 60,000  return 0.512  1,234 steps/s  1:02:03 left"
    assert "return -  " in console.progress_line(p._replace(episode_return=math.nan))


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0:00"), (59.6, "1:00"), (125, "2:05"), (3600, "1:00:00"), (math.nan, "?")]
)
def test_durations(seconds: float, text: str) -> None:
    assert console.duration(float(seconds)) == text


def test_plain_lines_start_with_compiling_and_then_come_now_and_then() -> None:
    clock, lines = [0.0], []
    show = console.plain_lines(lines.append, lambda: clock[0])
    show(Progress("compiling", 0, 1000, 0))
    show(Progress("compiling", 0, 1000, 0))
    for update in range(1, 1001):
        clock[0] += 0.1
        show(Progress("training", update, 1000, update, 0.0, 1.0, 1.0))
    show(Progress("evaluating", 1000, 1000, 1000))
    assert lines[0].startswith("compiling")
    assert lines[1].startswith("update 1/")
    assert lines[2].startswith("update 21/")  # two seconds later
    assert lines[-2].startswith("update 1,000/")
    assert lines[-1] == "evaluating"
    assert 30 < len(lines) < 60


def test_a_closed_pipe_is_no_reason_to_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    silenced: list[int] = []

    def broken(*_: object, **__: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr("builtins.print", broken)
    monkeypatch.setattr(console, "deafen", lambda: silenced.append(1))
    console.say("hello?")
    assert silenced == [1]


def test_the_summary_of_one_agent() -> None:
    assert console.summary_lines(result()) == [
        "trained an agent by mine on catch: 1,200 updates, 1,200,000 environment steps, 2:05",
        "return greedy   0.500 (mean of 4 episodes, standard error 0.289)",
        "curve: runs/x/curve.png",
        "watch it with: discorl play runs/x",
    ]


def test_the_summary_of_several_says_how_sure_it_is() -> None:
    lines = console.summary_lines(result(agents=3, cut=2))
    assert lines[0].startswith("trained 3 agents by mine on catch: 1,200 updates, 1,200,000 environment steps each")
    assert lines[1].startswith(
        "return greedy   1.500 [0.500, 2.500] (mean of 3 seeds with its 95 % bootstrap interval; "
    )
    assert "worst 0.500, best 2.500; 4 episodes each" in lines[1]
    assert lines[2].startswith("2 of these episodes did not end within")


def test_the_summary_of_a_stopped_run_says_how_to_go_on() -> None:
    lines = console.summary_lines(result(stopped=True))
    assert lines[0].startswith("stopped training")
    assert lines[-1] == "go on with: discorl train --resume runs/x"
    assert not any("runs" in line for line in console.summary_lines(result(run_dir=None)))
