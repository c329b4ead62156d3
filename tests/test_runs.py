"""A run's folder: who may use it, and that its metrics say what happened."""

import json
import math
import struct
from pathlib import Path

import jax.numpy as jnp
import pytest

from discorl import runs
from discorl.errors import DiscorlError
from discorl.settings import Settings


def row(update: int, *returns: float) -> runs.Row:
    many = len(returns)
    return runs.Row(update, 10 * update, 0.5 * update, returns, (4.0,) * many, (0.25,) * many, {"entropy": 1.5})


def test_rows_come_back_and_unknown_returns_are_null(tmp_path: Path) -> None:
    recorder = runs.open_recorder(tmp_path, [])
    runs.record(recorder, row(1, math.nan, math.nan))
    runs.record(recorder, row(2, 0.5, math.nan))
    first, second = (json.loads(line) for line in (tmp_path / runs.METRICS).read_text().splitlines())
    assert (first["update"], first["steps"], first["seconds"], first["return"]) == (1, 10, 0.5, None)
    assert (second["return"], second["returns"], second["loss"]) == (0.5, [0.5, None], 0.25)
    back = runs.read_rows(tmp_path)
    assert back[1]._replace(returns=()) == row(2, 0.5, 0.5)._replace(returns=())
    assert back[1].returns[0] == 0.5
    assert math.isnan(back[1].returns[1])
    assert math.isnan(back[0].mean_return)


def test_tensorboard_gets_the_same_numbers(tmp_path: Path) -> None:
    recorder = runs.open_recorder(tmp_path, [])
    runs.record(recorder, row(3, 0.5, math.nan))
    data = recorder.events.read_bytes()
    for tag, value in (("train/return", 0.5), ("train/loss", 0.25), ("learner/entropy", 1.5), ("agents/return_0", 0.5)):
        assert tag.encode() + b"\x15" + struct.pack("<f", value) in data
    assert b"agents/return_1" not in data


def test_going_on_drops_what_lies_beyond_the_checkpoint(tmp_path: Path) -> None:
    recorder = runs.open_recorder(tmp_path, [])
    for update in (2, 4, 6):
        runs.record(recorder, row(update, 0.0))
    with (tmp_path / runs.METRICS).open("a") as file:
        file.write('{"update": 8, "ste')  # cut off by a crash
    assert [r.update for r in runs.read_rows(tmp_path)] == [2, 4, 6]
    recorder = runs.open_recorder(tmp_path, runs.read_rows(tmp_path, until=4))
    runs.record(recorder, row(6, 1.0))
    assert [(r.update, r.returns) for r in runs.read_rows(tmp_path)] == [(2, (0.0,)), (4, (0.0,)), (6, (1.0,))]


def test_a_run_has_its_settings_and_no_number_is_given_twice(tmp_path: Path) -> None:
    name = str(tmp_path / runs.default_folder("catch:5x5", "disco103"))
    first, second = (runs.create(name, Settings(envs=3)) for _ in range(2))
    assert (first.name, second.name) == ("catch-5x5-disco103-1", "catch-5x5-disco103-2")
    assert runs.read_settings(first) == Settings(envs=3, run_dir=str(first))


def test_an_empty_folder_may_be_used_and_a_full_one_may_not(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    runs.create(str(mine), Settings())
    with pytest.raises(DiscorlError, match=r"is not empty; go on with it by --resume .*mine, or choose another"):
        runs.create(str(mine), Settings())
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.tex").touch()
    with pytest.raises(DiscorlError, match="is not empty; choose another"):
        runs.create(str(other), Settings())


@pytest.mark.parametrize("name", ["file/run", "file/run-{n}", "file"])
def test_a_folder_that_cannot_be_is_one_sentence(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DiscorlError, match=r"cannot write to the run folder .* choose another with --run-dir"):
        runs.create(str(tmp_path / name), Settings())


def test_what_is_no_run_is_said_to_be_none(tmp_path: Path) -> None:
    with pytest.raises(DiscorlError, match=r"is no run: it has no config\.toml"):
        runs.read_settings(tmp_path)
    with pytest.raises(DiscorlError, match="is no run: it does not exist"):
        runs.read_agents(tmp_path / "absent")
    folder = runs.create(str(tmp_path / "new"), Settings())
    with pytest.raises(DiscorlError, match="has saved no agent yet"):
        runs.read_agents(folder)


def test_fingerprints_tell_weights_apart() -> None:
    weights = {"w": jnp.arange(3.0)}
    assert runs.fingerprint(weights) == runs.fingerprint({"w": jnp.arange(3.0)})
    assert runs.fingerprint(weights) != runs.fingerprint({"w": jnp.arange(3.0) + 1e-6})
    assert runs.fingerprint(weights) != runs.fingerprint({"v": jnp.arange(3.0)})
