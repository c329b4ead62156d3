"""Presets: each makes a training, what is said wins, and the schedule spans the training that is asked for."""

from pathlib import Path

import pytest

from discorl import experiment, presets, settings
from discorl.errors import DiscorlError

COLUMNS = ("agent", "envs", "batch", "rollout", "replay_share", "replay_size", "learning_rate", "weight_decay", "steps")


@pytest.mark.parametrize("name", presets.PRESETS)
def test_each_is_a_training_that_holds_together(name: str) -> None:
    full = settings.resolve(settings.make(presets.preset(name)), "disco103")
    config = experiment.training_config(full)  # refuses sizes that do not fit each other
    assert config.batch - config.fresh_count == round(config.batch * config.replay_share)
    assert full.agent in settings.AGENT_DEFAULTS
    small = name.endswith("-small")
    assert (full.agent == "impala-paper") == (f"{name}-small" in presets.PRESETS)
    if small:
        paper = settings.make(presets.preset(name.removesuffix("-small")))
        assert (full.batch or 0) < (paper.batch or 0)
        assert (full.weight_decay, full.learning_rate) == (paper.weight_decay, paper.learning_rate)


def test_the_table_of_the_paper() -> None:
    """Step size, weight decay, bound, discount, frames, batch, share of replay, rollout; after Oh et al. 2025."""
    wanted = {
        "atari": (3e-4, 0.1, 1.0, 0.997, 1, 96, 0.95, 29),
        "procgen": (3e-4, 0.1, 1.0, 0.997, 4, 192, 0.9, 29),
        "crafter": (3e-4, 0.3, 1.0, 0.997, 32, 24, 0.99, 29),
        "dmlab": (5e-4, 0.01, 1.0, 0.99, 1, 96, 0.9, 100),
        "nethack": (1e-4, 0.03, 0.3, 0.997, 4, 96, 0.95, 29),
        "sokoban": (3e-4, 0.1, 1.0, 0.997, 4, 96, 0.9, 29),
    }
    for domain, values in wanted.items():
        s = settings.make(presets.preset(domain))
        learning = (s.learning_rate, s.weight_decay, s.max_update, s.discount)
        assert (*learning, s.frame_stack, s.batch, s.replay_share, s.rollout) == values


@pytest.mark.parametrize(("name", "steps"), [("procgen", 1e6), ("crafter", 0), ("dmlab", 1e6), ("nethack", 1e7)])
def test_the_warm_up_of_the_paper_in_steps(name: str, steps: float) -> None:
    made = settings.make(presets.preset(name))
    assert abs((made.warmup_updates or 0) * (made.envs or 0) * (made.rollout or 0) - steps) <= 0.001 * steps


def test_the_schedule_spans_the_training_that_is_asked_for() -> None:
    whole = presets.preset("atari")
    assert whole["decay_updates"] == -(-50_000_000 // (5 * 29))
    assert whole["warmup_updates"] == round(0.025 * whole["decay_updates"])  # 5 of 200 million frames
    short = presets.preset("atari", updates=400)
    assert (short["warmup_updates"], short["decay_updates"], short["updates"]) == (10, 400, 400)
    assert "steps" not in short
    assert presets.preset("atari", steps=2900, envs=10)["decay_updates"] == 10
    assert presets.preset("atari", warmup_updates=3, decay_updates=0)["decay_updates"] == 0
    steady = presets.preset("crafter", updates=400)
    assert (steady["warmup_updates"], steady["decay_updates"]) == (0, 0)


def test_what_is_said_wins_and_another_agent_brings_its_own_sizes() -> None:
    own = presets.preset("minatar", envs=3, replay_share=None, agent="mlp")
    assert (own["envs"], own["replay_share"], own["agent"]) == (3, 0.75, "mlp")
    assert not set(own) & set(settings.SIZES)
    assert presets.preset("minatar", agent="mlp", hidden=(7,))["hidden"] == (7,)
    assert presets.preset("minatar", agent="impala-small")["channels"] == (16,)


def test_mistakes_are_one_sentence() -> None:
    with pytest.raises(DiscorlError, match="unknown preset 'mintar'; did you mean 'minatar'"):
        presets.preset("mintar")
    with pytest.raises(DiscorlError, match="batch must be positive, got 0"):
        presets.preset("atari", batch=0)


def test_the_docs_say_what_each_sets() -> None:
    text = (Path(__file__).parents[1] / "docs" / "presets.md").read_text("utf-8")
    rows = [
        [cell.strip(" `") for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:3] == "| `"
    ]
    assert [row[0] for row in rows] == list(presets.PRESETS)
    for name, *cells in rows:
        values = presets.PRESETS[name].values
        assert cells[:9] == [f"{values[c]:,}" if c == "steps" else str(values[c]) for c in COLUMNS]
        warmup = presets.PRESETS[name].warmup
        assert cells[9] == (f"{warmup * 100:g} %" if warmup else "none")
        assert cells[10] == ("cosine to 0" if presets.PRESETS[name].cosine else "none")
        assert cells[11] == str(values.get("frame_stack", 1))
        assert cells[12] == str(values.get("discount", "the rule's"))
        assert cells[13] == str(values.get("max_update", settings.DEFAULTS["max_update"]))
