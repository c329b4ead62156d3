"""The rule in the box: it is there, it says where it comes from, and agents learn by it."""

import pytest

import discorl
from discorl import rule_files
from discorl.rules import library

PATH = rule_files.BUNDLED / "disco-mini.npz"


def test_it_is_small_and_knows_its_origin() -> None:
    assert PATH.stat().st_size <= 2_000_000
    file = rule_files.load(rule_files.find("disco-mini"))
    assert rule_files.default_rule() == "disco-mini"
    record = file.provenance
    while True:
        assert record["settings"]["suite"] == "small-worlds"
        assert record["meta_steps"] > 1000 and record["seconds"] > 0
        if record["settings"]["rule"] is None:  # from random weights
            break
        record = record["began_with"]
    assert {"envs", "rollout", "learning_rate", "hidden"} <= library.load_rule("disco-mini").rule.advice.keys()


@pytest.mark.slow
def test_a_fresh_agent_learns_catch_by_it() -> None:
    """Two seeds; chance is 0.2 of the balls, a return of -0.6."""
    result = discorl.train("catch:5x5", updates=300, seeds=2, eval_episodes=50)
    assert result.greedy.mean(axis=-1).min() > 0.9
