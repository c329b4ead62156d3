"""Settings: what is refused, what wins, and that nothing is lost on the way to a file."""

import tomllib
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from discorl import options, settings
from discorl.errors import DiscorlError
from discorl.settings import Settings


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"envs": 0}, "envs must be positive, got 0"),
        ({"batch": -3}, "batch must be positive, got -3"),
        ({"updates": 0}, "updates must be positive"),
        ({"seeds": 0}, "seeds must be positive"),
        ({"log_every": 0}, "log_every must be positive"),
        ({"learning_rate": 0.0}, "learning_rate must be positive"),
        ({"learning_rate": float("nan")}, "learning_rate must be positive, got nan"),
        ({"weight_decay": -0.1}, "weight_decay must not be negative"),
        ({"eval_episodes": -1}, "eval_episodes must not be negative"),
        ({"replay_share": 1.5}, "replay_share must lie between 0 and 1"),
        ({"replay_share": -0.5}, "replay_share must not be negative"),
        ({"discount": 1.5}, "discount must lie between 0 and 1, got 1.5"),
        ({"discount": 0.0}, "discount must be positive"),
        ({"frame_stack": 0}, "frame_stack must be positive"),
        ({"hidden": (64, 0)}, "hidden must be positive, got 0"),
        ({"hidden": ()}, "hidden must name at least one layer"),
        ({"updates": 5, "steps": 10}, "updates or steps, not both"),
        ({"seed": 2**31}, "seed must be below"),
        ({"envs": "many"}, "envs must be a whole number, got 'many'"),
        ({"envs": 2.5}, "envs must be a whole number, got 2.5"),
        ({"envs": True}, "envs must be a whole number, got True"),
        ({"learning_rate": "fast"}, "learning_rate must be a number"),
        ({"learning_rate": True}, "learning_rate must be a number"),
        ({"hidden": 64}, "hidden must be a list of whole numbers"),
        ({"hidden": [64, "x"]}, "hidden must be a list of whole numbers"),
        ({"env": 3}, "env must be a text"),
        ({"learnign_rate": 1e-3}, "unknown setting 'learnign_rate'; did you mean 'learning_rate'"),
    ],
)
def test_a_mistake_is_named(values: dict[str, Any], message: str) -> None:
    with pytest.raises(DiscorlError) as error:
        settings.make(values)
    assert message in str(error.value)


def test_what_people_write_for_a_type_is_taken() -> None:
    made = settings.make({"learning_rate": 1, "hidden": [32, 16], "rule": Path("a.npz"), "updates": None})
    assert made.learning_rate == 1.0
    assert isinstance(made.learning_rate, float)
    assert made.hidden == (32, 16)
    assert made.rule == "a.npz"
    assert made.updates is None


def test_toml_round_trip_keeps_everything() -> None:
    made = settings.make({"env": 'odd "name" \\ \x7f é', "hidden": [3], "learning_rate": 1e-5, "steps": 7})
    assert settings.make(tomllib.loads(options.dump(made))) == made


def test_resolve_leaves_nothing_open_but_the_choice_between_updates_and_steps_and_what_is_the_rules() -> None:
    full = settings.resolve(Settings(rule="disco103"), "disco103")
    assert [name for name, value in asdict(full).items() if value is None] == ["steps", "discount", "run_dir"]
    by_steps = settings.resolve(Settings(rule="disco103", steps=100), "disco103")
    assert by_steps.updates is None


def test_a_rule_has_its_own_defaults_and_what_was_said_wins() -> None:
    own = settings.RULE_DEFAULTS["actor_critic"]["learning_rate"]
    assert own != settings.DEFAULTS["learning_rate"]
    assert settings.resolve(Settings(), "actor_critic").learning_rate == own
    assert settings.resolve(Settings(), "disco103").learning_rate == settings.DEFAULTS["learning_rate"]
    assert settings.resolve(Settings(learning_rate=0.5), "actor_critic").learning_rate == 0.5


def test_defaults_are_settings() -> None:
    for values in (settings.DEFAULTS, *settings.RULE_DEFAULTS.values()):
        settings.make(values)


def test_later_layers_win_and_steps_take_back_updates() -> None:
    assert settings.merge({"envs": 2, "seed": 1}, {"envs": 3, "seed": None}) == {"envs": 3, "seed": 1}
    assert settings.merge({"updates": 10}, {"steps": 50}) == {"steps": 50}
    assert settings.merge({"steps": 10}, {"updates": 50}) == {"updates": 50}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"envs = ", "is not valid TOML"),
        (b"\xff\xfe", "is not valid TOML"),
        (b"enviroments = 3", "unknown setting 'enviroments' in"),
        (None, "cannot read the settings file"),
    ],
)
def test_a_broken_file_is_named(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "my.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DiscorlError, match=r"my\.toml") as error:
        settings.read(path)
    assert message in str(error.value)


def test_differences_name_what_changes_numbers_and_only_that() -> None:
    old = Settings(envs=2, updates=10)
    assert settings.differences(old, replace(old, updates=20, run_dir="elsewhere", eval_episodes=3)) == []
    assert settings.differences(old, replace(old, envs=4, seed=1)) == ["envs: 2 -> 4", "seed: 0 -> 1"]


def test_a_rule_file_is_called_by_its_stem() -> None:
    assert Settings(rule="/a/b/mine.npz").rule_label == "mine"
    assert Settings(rule="disco103").rule_label == "disco103"
