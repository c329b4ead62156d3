"""A rule that was discovered is used as it was discovered, unless one says otherwise."""

from pathlib import Path

import jax
import pytest
import small
import tiny

from discorl import experiment, rule_files, settings
from discorl.errors import DiscorlError
from discorl.rules import library
from discorl.rules.meta_network import to_arrays

RECORD = {
    "envs": 3,
    "batch": 4,
    "rollout": 5,
    "replay_size": 8,
    "replay_share": 0.5,
    "mask": "all",
    "hidden": [7, 6],
    "model_width": 5,
    "head_hidden": [4],
    "learning_rates": [1e-3, 1e-2],
    "window": 20,
}


def saved(folder: Path, provenance: dict) -> str:
    arrays = to_arrays(jax.device_get(small.small().eta), small.CONFIG)
    path = folder / "rule.npz"
    rule_files.save(path, rule_files.RuleFile(small.CONFIG, arrays, provenance))
    return str(path)


def test_training_takes_over_what_the_rule_was_discovered_with(tmp_path: Path) -> None:
    rule = saved(tmp_path, {"settings": RECORD})
    full = experiment.build(tiny.ENV, rule, "mlp", settings.make({})).settings
    assert {name: getattr(full, name) for name in library.DISCOVERED_WITH} == {
        n: RECORD[n] for n in library.DISCOVERED_WITH
    }
    assert full.learning_rate == 1e-2
    assert (full.hidden, full.head_hidden) == ((7, 6), (4,))
    other = experiment.build(tiny.ENV, rule, "lstm", settings.make({"agent": "lstm"})).settings
    assert (other.hidden, other.model_width) == (settings.AGENT_DEFAULTS["lstm"]["hidden"], 128), "sizes of its own"
    own = experiment.build(tiny.ENV, rule, "mlp", settings.make({"envs": 6, "mask": "reference"})).settings
    assert (own.envs, own.mask, own.batch) == (6, "reference", 4)
    many = experiment.build(tiny.ENV, rule, "mlp", settings.make({"envs": 12})).settings
    assert many.replay_size == 12, "what is left open makes room for what was asked for"


def test_what_was_found_better_since_comes_before_how_it_was_discovered(tmp_path: Path) -> None:
    rule = saved(tmp_path, {"settings": RECORD, "training": {"envs": 2, "learning_rate": 3e-3, "suite": "held-out"}})
    full = experiment.build(tiny.ENV, rule, "mlp", settings.make({})).settings
    assert (full.envs, full.learning_rate, full.batch) == (2, 3e-3, RECORD["batch"])
    assert library.advice({"training": [1]}) == {}


@pytest.mark.parametrize(
    "record", [None, [], {"envs": [1], "hidden": 3, "learning_rates": [1]}, {"learning_rates": [0.0, -1.0]}]
)
def test_a_record_that_says_nothing_useful_is_passed_over(record: object) -> None:
    assert library.advice({"settings": record}) == {}


def test_a_record_that_makes_no_sense_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(DiscorlError, match="envs"):
        experiment.build(tiny.ENV, saved(tmp_path, {"settings": RECORD | {"envs": -1}}), "mlp", settings.make({}))


def test_rules_without_a_record_have_the_usual_defaults() -> None:
    full = experiment.build(tiny.ENV, "actor_critic", "mlp", settings.make({})).settings
    assert full.mask == "reference"
    assert full.learning_rate == settings.RULE_DEFAULTS["actor_critic"]["learning_rate"]


def test_a_rule_written_by_hand_takes_numbers_of_its_own() -> None:
    assert library.load_rule("actor_critic").rule.needs.y == 601
    assert library.load_rule("actor_critic:value_bins=5,entropy_cost=0").rule.needs.y == 5
    obs = jax.numpy.zeros(2)
    state = library.load_rule("policy_gradient:hidden=[3],entropy_cost=0.1").rule.start(jax.random.key(0), obs)
    assert [layer.w.shape for layer in state.params] == [(2, 3), (3, 1)]


def test_a_discovered_rule_takes_other_constants(tmp_path: Path) -> None:
    path = saved(tmp_path, {})
    plain, other = library.load_rule(path), library.load_rule(f"{path}:target_keep=0.5,entropy_cost=1")
    assert (plain.rule.needs.target_keep, other.rule.needs.target_keep) == (0.9, 0.5)
    assert other.rule.name == path
    full = experiment.build(tiny.ENV, f"{path}:entropy_cost=1", "mlp", settings.make({})).settings
    assert full.rule == f"{path}:entropy_cost=1"
    assert full.rule_label == f"{Path(path).stem}:entropy_cost=1"


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("disco-mini:entropy=1", "disco-mini has no 'entropy'; did you mean 'entropy_cost'"),
        ("disco-mini:predictions=5", "disco-mini has no 'predictions'; known: discount, entropy_cost"),
        ("disco-mini:discount=2", "discount lies between 0 and 1"),
        ("disco-mini:entropy_cost=-1", "'entropy_cost' cannot be -1"),
        ("disco-mini:entropy_cost", "not understood: 'entropy_cost'; write disco-mini:name=number"),
        ("actor_critic:entropy=1", "no 'entropy'; did you mean 'entropy_cost'"),
        ("actor_critic:entropy_cost", "not understood: 'entropy_cost'; write actor_critic:name=number"),
        ("policy_gradient:entropy_cost='much'", "entropy_cost must be a number, got 'much'"),
        ("actor_critik:entropy_cost=1", "did you mean 'actor_critic'"),
    ],
)
def test_numbers_that_a_rule_does_not_have_are_refused(rule: str, message: str) -> None:
    with pytest.raises(DiscorlError, match=message):
        library.load_rule(rule)
