"""The command line: every mistake is one sentence and exit code 2, and the machine around it may be unkind."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np
import pytest
import tiny
from jax.experimental.compilation_cache import compilation_cache

from discorl import cli, runs, trainer
from discorl.settings import Settings

TRAIN = ["train", tiny.ENV, "--rule", tiny.RULE, *tiny.FLAGS]
CACHE_OPTIONS = (
    "jax_enable_compilation_cache",
    "jax_compilation_cache_dir",
    "jax_persistent_cache_min_compile_time_secs",
    "jax_persistent_cache_min_entry_size_bytes",
)


@pytest.fixture(autouse=True)
def somewhere_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Runs go to a folder of the test, compiled programs to that of all tests, and JAX is left as it was."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", tiny.CACHE)
    monkeypatch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    monkeypatch.setenv("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
    monkeypatch.setattr(sys, "path", sys.path.copy())
    before = {name: getattr(jax.config, name) for name in CACHE_OPTIONS}
    yield tmp_path
    if before != {name: getattr(jax.config, name) for name in CACHE_OPTIONS}:
        for name, value in before.items():
            jax.config.update(name, value)
        compilation_cache.reset_cache()  # it is opened once and then keeps to its folder


def start(*arguments: str, **options: object) -> subprocess.Popen[str]:
    """The command in a process of its own."""
    root = str(Path(cli.__file__).parents[1])
    return subprocess.Popen(
        [sys.executable, "-m", "discorl", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        env={**os.environ, "PYTHONPATH": root, **{k: str(v) for k, v in options.items()}},
    )


def broken_rule(path: Path) -> str:
    np.savez(path, wrong=np.zeros(3))
    return str(path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "catsh"], "unknown environment 'catsh'; did you mean 'catch'"),
        (["train", tiny.ENV, "--rule", "actor-critic"], "did you mean 'actor_critic'"),
        (["train", tiny.ENV, "--rule", "BROKEN"], "array"),
        (["train", tiny.ENV, "--rule", "absent.npz"], "absent.npz does not exist"),
        (["train", tiny.ENV, "--rule", tiny.RULE, "--agent", "mpl"], "unknown agent 'mpl'; did you mean 'mlp'?"),
        (["train", tiny.ENV, "--envs", "0"], "envs must be positive, got 0"),
        (["train", tiny.ENV, "--envs", "-2"], "envs must be positive, got -2"),
        (
            ["train", tiny.ENV, "--envs", "two"],
            "argument --envs: invalid int value: 'two' (see `discorl train --help`)",
        ),
        (["train", tiny.ENV, "--hidden", "64,0"], "hidden must be positive, got 0"),
        (["train", tiny.ENV, "--hidden", "wide"], "argument --hidden: invalid numbers value: 'wide'"),
        (["train", tiny.ENV, "--updates", "3", "--steps", "4"], "give updates or steps, not both"),
        (
            ["train", tiny.ENV, "--learnign-rate", "1"],
            "unknown argument '--learnign-rate'; did you mean '--learning-rate'",
        ),
        (["train", tiny.ENV, "--env", "4"], "unknown argument '--env'; did you mean '--envs'"),
        (["train"], "no environment given; for example `discorl train catch`"),
        (["train", tiny.ENV, "--config", "absent.toml"], "cannot read the settings file absent.toml"),
        (["train", "--resume", "absent"], "absent is no run: it does not exist"),
        (["train", "--resume", "absent", "--run-dir", "other"], "leave out --run-dir"),
        (["train", "--resume", "absent", "--preset", "atari"], "leave out --preset"),
        (["train", tiny.ENV, "--preset", "atrai"], "unknown preset 'atrai'; did you mean 'atari'"),
        (["train", tiny.ENV, "--preset", "minatar", "--envs", "0"], "envs must be positive, got 0"),
        ([*TRAIN, "--run-dir", "file/run"], "cannot write to the run folder file/run: Not a directory"),
        ([*TRAIN, "--cache-dir", "file/cache"], "cannot use the cache file/cache: Not a directory"),
        ([*TRAIN, "--learning-rate", "1e38", "--max-update", "1e38"], "not finite from update"),
        (["evaluate", "absent"], "absent is no run: it does not exist"),
        (["evaluate", "absent", "--episodes", "0"], "episodes must be positive, got 0"),
        (["play", "absent"], "absent is no run: it does not exist"),
        (["plya"], "invalid choice: 'plya'"),
        ([], "the following arguments are required: COMMAND"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    arguments = [broken_rule(tmp_path / "broken.npz") if a == "BROKEN" else a for a in arguments]
    assert cli.main(arguments) == 2
    said = capsys.readouterr().err
    assert said.startswith("discorl: error: ")
    assert message in said
    assert len(said.splitlines()) == 1


def test_a_mistake_leaves_no_folder_behind(tmp_path: Path) -> None:
    assert cli.main(["train", "catsh"]) == 2
    assert not (tmp_path / "runs").exists()


def test_training_says_what_it_does_and_keeps_it(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "my.toml").write_text("envs = 3\nbatch = 4\nseed = 9\nhidden = [5]\n")
    assert cli.main([*TRAIN, "--config", "my.toml", "--envs", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("compiling")
    assert any(line.startswith("update 6/6 ") and "steps/s" in line and "left" in line for line in lines)
    assert lines[-1] == "watch it with: discorl play runs/catch-4x3-actor_critic-1"
    kept = runs.read_settings(tmp_path / "runs" / "catch-4x3-actor_critic-1")
    assert (kept.envs, kept.seed, kept.hidden, kept.learning_rate is not None) == (2, 9, (8,), True)
    assert cli.main(["evaluate", "runs/catch-4x3-actor_critic-1", "--episodes", "4"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == (
        "the agent of runs/catch-4x3-actor_critic-1, trained by actor_critic on catch:4x3: 4 episodes, seed 9"
    )
    assert [line.split()[0] for line in shown[1:]] == ["return", "greedy", "sampled"]
    assert cli.main(["evaluate", "runs/catch-4x3-actor_critic-1", "--episodes", "4", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    kept = json.loads((tmp_path / "runs" / "catch-4x3-actor_critic-1" / runs.EVALUATION).read_text())
    assert kept == {"catch:4x3": found}
    assert cli.main(["play", "runs/catch-4x3-actor_critic-1", "--episodes", "1", "--greedy"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("episode 1, step 0: action ")
    assert "end, return" in shown
    for flag in ("--gif", "--out"):
        assert cli.main(["play", "runs/catch-4x3-actor_critic-1", flag, f"a{flag}.gif"]) == 0
        assert (tmp_path / f"a{flag}.gif").read_bytes().startswith(b"GIF89a")
    assert cli.main(["play", "runs/catch-4x3-actor_critic-1", "--out", "a.avi"]) == 2


@pytest.mark.parametrize(("flags", "place"), [([], "cache/discorl/jax"), (["--cache-dir", "here"], "here")])
def test_compiled_programs_are_cached_where_told(
    flags: list[str], place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    compilation_cache.reset_cache()
    cli.prepare(cli.parse(["train", tiny.ENV, *flags]))
    jax.jit(lambda x: x * 2 + 1)(1.0)
    assert any((tmp_path / place).iterdir())


def test_the_cache_can_be_left_out_and_an_unusable_default_does_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    cli.prepare(cli.parse(["train", tiny.ENV, "--no-cache"]))
    assert not jax.config.jax_enable_compilation_cache  # type: ignore[attr-defined]
    (tmp_path / "cache").touch()
    cli.prepare(cli.parse(["train", tiny.ENV]))
    assert (tmp_path / "cache").read_bytes() == b""


@pytest.mark.parametrize(
    ("command", "line"), [("envs", "catch "), ("envs", "small-worlds "), ("rules", "actor_critic ")]
)
def test_listings(command: str, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([command]) == 0
    assert any(text.startswith(line) for text in capsys.readouterr().out.splitlines())


def test_every_setting_has_a_flag_and_a_help_text(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["train", "--help"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    for name in set(Settings.__dataclass_fields__) - {"env"}:
        flag = f"--{name.replace('_', '-')}"
        assert f"{flag} " in text or f"{flag}, --no-" in text
    assert "(default: 100)" in text


def test_help_is_quick_because_jax_is_not_loaded() -> None:
    code = "import sys; from discorl import cli\ntry: cli.main(sys.argv[1:])\nfinally: assert 'jax' not in sys.modules"
    root = str(Path(cli.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", code, "train", "--help"], capture_output=True, text=True, env={"PYTHONPATH": root}
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_is_saved_and_says_how_to_go_on(tmp_path: Path, number: signal.Signals) -> None:
    process = start("train", tiny.ENV, "--rule", tiny.RULE, *tiny.FLAGS, "--updates", "1000000", "--run-dir", "run")
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("update"):
            break
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert out.splitlines()[-1] == "go on with: discorl train --resume run"
    assert "stopping after this stretch" in err
    done = len(runs.read_rows(tmp_path / "run"))
    result = trainer.resume(tmp_path / "run", updates=2 * done + 2)
    assert result.updates == 2 * done + 2


@pytest.mark.slow
def test_nobody_needs_to_listen_and_terminals_may_know_few_characters(tmp_path: Path) -> None:
    process = start(*TRAIN, "--run-dir", "run", PYTHONIOENCODING="ascii")
    assert process.stdout is not None
    assert process.stdout.readline().startswith("compiling")
    process.stdout.close()
    assert process.wait(timeout=120) == 0
    assert process.stderr is not None
    assert process.stderr.read() == ""
    process.stderr.close()
    assert (tmp_path / "run" / runs.SUMMARY).exists()
    listing = start("envs")
    assert listing.stdout is not None
    assert listing.stderr is not None
    listing.stdout.close()
    assert listing.wait(timeout=60) == 0
    assert listing.stderr.read() == ""
    listing.stderr.close()


def test_asking_twice_ends_at_once() -> None:
    from discorl.interrupts import Interrupts

    before = signal.getsignal(signal.SIGTERM)
    with Interrupts() as interrupts:
        assert not interrupts()
        os.kill(os.getpid(), signal.SIGTERM)
        deadline = time.monotonic() + 5
        while not interrupts() and time.monotonic() < deadline:
            time.sleep(0.01)
        assert interrupts()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(5)
    assert signal.getsignal(signal.SIGTERM) == before
