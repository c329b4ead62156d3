"""A whole discovery, tiny: what it leaves behind, that it goes on exactly, that mistakes and faults are met."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
from tiny_discovery import FLAGS, SIZES

from discorl import cli, options, rule_files
from discorl.discovery import discover, records
from discorl.discovery.build import Discovery, build
from discorl.discovery.life import WindowInfo
from discorl.discovery.objective import ObjectiveInfo
from discorl.discovery.population import MetaInfo, PopulationConfig, PopulationState, _meta_update
from discorl.discovery.settings import PRESETS, DiscoverySettings, preset
from discorl.envs import suites
from discorl.errors import DiscorlError
from discorl.optim import Hypers, init_adam

STRETCH = SIZES["log_every"]
RATE = DiscoverySettings().meta_learning_rate


@cache
def built() -> Discovery:
    return build(options.make(DiscoverySettings, SIZES))


@cache
def begun() -> PopulationState:
    return built().begin()


@cache
def advance() -> Any:
    return jax.jit(built().population.advance, static_argnums=2).lower(built().hypers, begun(), STRETCH).compile()


def test_agents_die_and_are_born_at_different_times() -> None:
    state, ages, lifetimes = begun(), [], []
    for _ in range(4):
        state, info = advance()(built().hypers, state)
        ages.append(info.windows[0].age)
        lifetimes.append(info.windows[0].lifetime)
    ages, lifetimes = np.concatenate(ages), np.concatenate(lifetimes)
    window = SIZES["window"]
    assert (ages[0] == 0).all()
    for agent in range(SIZES["agents"]):
        for before, after, life in zip(ages[:-1, agent], ages[1:, agent], lifetimes[:-1, agent], strict=True):
            assert after == (before + window if before + window < life else 0)
    assert (lifetimes[0] <= SIZES["lifetimes"][0]).all()
    assert lifetimes[0, 0] != lifetimes[0, 1] or (lifetimes[0] < SIZES["lifetimes"][0]).any()
    assert (ages[1:] == 0).any(axis=0).all(), "everybody was reborn at least once"


def test_an_agent_that_is_not_finite_is_left_out_and_replaced() -> None:
    state = begun()
    sick = state.lives[0].train
    params = jax.tree.map(lambda x: x.at[1].set(jnp.nan), sick.learner.params)
    lives = state.lives[0]._replace(train=sick._replace(learner=sick.learner._replace(params=params)))
    state, info = advance()(built().hypers, state._replace(lives=(lives,)))
    np.testing.assert_array_equal(info.skipped[0][0], [False, True])
    np.testing.assert_array_equal(info.skipped[0][1], [False, False])
    assert info.windows[0].age[1, 1] == 0
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(state.eta))
    steps = state.optimizers[0].steps
    np.testing.assert_array_equal(steps, [STRETCH, STRETCH - 1])  # its optimizer has not moved


def test_every_agent_has_a_say() -> None:
    """The rule moves by the mean of the agents' own Adam steps: at first each moves by ± the learning rate."""
    one = begun()
    state, info = advance()(built().hypers, one)
    moved = jax.tree.map(lambda a, b: np.abs(np.asarray(a - b)), state.eta, one.eta)
    assert 0 < max(x.max() for x in jax.tree.leaves(moved)) <= STRETCH * RATE * 1.01
    assert (info.gradient_norm[0] > 0).all()


def test_the_rule_moves_by_the_mean_of_sound_agents() -> None:
    rng = np.random.default_rng(0)
    grads = [jnp.asarray(rng.standard_normal((n, 5)), jnp.float32) for n in (3, 2)]
    healthy = [jnp.asarray([True, False, True]), jnp.asarray([True, True])]
    eta, hypers = jnp.zeros(5), Hypers(learning_rate=0.1)
    one = init_adam(eta)
    each = tuple(jax.tree.map(lambda x, n=n: jnp.stack([x] * n), one) for n in (3, 2))
    change, _ = _meta_update(PopulationConfig(), hypers, each, eta, grads, healthy)
    sound = np.concatenate([grads[0][np.array([0, 2])], grads[1]])
    # a first Adam step is a sign
    np.testing.assert_allclose(change, -0.1 * np.sign(sound).mean(0), rtol=1e-4, atol=1e-7)
    zeroed = [jnp.where(good[:, None], g, 0) for g, good in zip(grads, healthy, strict=True)]
    change, _ = _meta_update(PopulationConfig(optimizer="single"), hypers, (one,), eta, zeroed, healthy)
    np.testing.assert_allclose(change, -0.1 * np.sign(sound.mean(0)), rtol=1e-4)


def rows(folder: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if k != "seconds"} for line in lines]


def test_windows_that_overlap_move_on_by_their_stride() -> None:
    made = build(options.make(DiscoverySettings, SIZES | {"stride": 1, "lifetimes": (20,)}))
    _, info = jax.jit(made.population.advance, static_argnums=2)(made.hypers, made.begin(), 3)
    np.testing.assert_array_equal(info.windows[0].age, [[0, 0], [1, 1], [2, 2]])
    assert (np.asarray(info.gradient_norm[0]) > 0).all()


def test_evolution_moves_a_rule_without_a_backward_pass() -> None:
    sizes = SIZES | {"gradient": "evolution", "pairs": 2, "suite": "bandit/contextual"}
    made = build(options.make(DiscoverySettings, sizes))
    begun = made.begin()
    state, info = jax.jit(made.population.advance, static_argnums=2)(made.hypers, begun, 2)
    assert not np.asarray(info.skipped[0]).any()
    moved = [
        np.abs(np.asarray(a - b)).max() for a, b in zip(*map(jax.tree.leaves, (state.eta, begun.eta)), strict=True)
    ]
    assert min(moved) > 0, "noise reaches every array"


def test_families_share_a_cohort_and_keep_their_names() -> None:
    made = build(options.make(DiscoverySettings, SIZES | {"suite": "small-worlds"}))
    assert sorted(made.families) == sorted(family.name for family in suites.families("small-worlds"))
    assert len(made.cohorts) == 4
    names = [("a", "b"), ("c",)]
    ages = [np.array([[0, 0, 9, 9]]), np.array([[9, 0]])]  # two agents of each family

    def window(age: np.ndarray) -> WindowInfo:
        some = np.ones(age.shape)
        worth = np.arange(age.shape[1], dtype=float)[None]
        info = ObjectiveInfo(*[some] * 5)
        return WindowInfo(some, some, age, 9 * some, some, worth, some, info, some)

    info = MetaInfo(
        windows=tuple(window(age) for age in ages),
        gradient_norm=(np.array([[1.0, 3.0, 5.0, 7.0]]), np.array([[2.0, 2.0]])),
        skipped=(np.array([[True, False, False, False]]), np.array([[False, False]])),
        update_norm=np.ones(1),
    )
    row = records.make_row(info, names, 1, 1.0)
    assert {name: (c.early, c.late, c.gradient_norm, c.skipped) for name, c in row.cohorts.items() if name != "c"} == {
        "a": (0.5, pytest.approx(np.nan, nan_ok=True), 2.0, 1),
        "b": (pytest.approx(np.nan, nan_ok=True), 2.5, 6.0, 0),
    }
    assert (row.cohorts["c"].early, row.cohorts["c"].late) == (1.0, 0.0)


def test_a_run_leaves_its_files_and_goes_on_exactly(tmp_path: Path) -> None:
    whole = discover.discover(**SIZES, run_dir=str(tmp_path / "whole"))
    names = {p.name.split(".tfevents")[0] for p in (tmp_path / "whole").iterdir()}
    assert names >= {"config.toml", "metrics.jsonl", "events.out", "checkpoint.npz", "rule.npz", "curve.png", "rules"}
    file = rule_files.load(tmp_path / "whole" / "rule.npz")
    assert file.provenance["meta_steps"] == SIZES["meta_steps"]
    assert file.provenance["settings"]["suite"] == "catch"
    assert sorted(p.name for p in (tmp_path / "whole" / "rules").iterdir()) == ["step-000002.npz", "step-000004.npz"]

    child = build(DiscoverySettings(**(SIZES | {"rule": str(tmp_path / "whole" / "rule.npz")})))
    records.save_rule(tmp_path / "child.npz", child, child.begin(), seconds=1.0)
    assert rule_files.load(tmp_path / "child.npz").provenance["began_with"] == file.provenance

    asked = iter([False, True])
    part = discover.discover(**SIZES, run_dir=str(tmp_path / "part"), stop=lambda: next(asked))
    assert part.stopped and part.meta_steps == STRETCH
    seen: list[records.Progress] = []
    rest = discover.resume(tmp_path / "part", progress=seen.append)
    assert not rest.stopped and [p.updates for p in seen][-1] == SIZES["meta_steps"]
    for name, expected in whole.rule.arrays.items():
        np.testing.assert_array_equal(rest.rule.arrays[name], expected, err_msg=name)
    assert rows(tmp_path / "part") == rows(tmp_path / "whole")

    with pytest.raises(DiscorlError, match=r"other settings \(window: 2 -> 3\)"):
        discover.resume(tmp_path / "part", window=3)
    with pytest.raises(DiscorlError, match="has its 4 meta-steps already"):
        discover.resume(tmp_path / "part")


def test_nothing_sound_for_long_stops_the_run() -> None:
    sitting = discover._Sitting(built(), None, None, None)
    info = MetaInfo(windows=(), gradient_norm=(), skipped=(np.ones((10, 2), bool),), update_norm=np.zeros(10))
    sitting._check(info, sound=True)
    with pytest.raises(DiscorlError, match="no agent had a finite meta-gradient at meta-step 10"):
        sitting._check(info, sound=True)
    with pytest.raises(DiscorlError, match="the rule is no longer finite"):
        discover._Sitting(built(), None, None, None)._check(info, sound=False)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--suite", "held-out"], "is held out"),
        (["--suite", "cacth"], "unknown suite 'cacth'"),
        (["--preset", "smal"], "unknown preset 'smal'"),
        (["--gradient", "forward"], "gradient cannot be 'forward'; it is one of mixed, reverse, evolution"),
        (["--agents", "0"], "agents must be positive, got 0"),
        (["--stride", "9"], "stride 9 would leave out updates"),
        (["--learning-rates", "1e-2,1e-3"], "learning_rates are a least and a greatest"),
        (["--batch", "8", "--envs", "4", "--replay-share", "0"], "there are only 4 environments"),
        (["--meta-steps", "20", "--meta-decay", "10"], "step size is zero from meta-step 10 on"),
        (["--lifetimes", "1"], "every lifetime must hold a window"),
        (["--rule", "nowhere.npz"], "nowhere.npz does not exist"),
        (["--resume", "nowhere"], "nowhere is no run of discovery"),
        (["--windw", "3"], "unknown argument '--windw'"),
        (["--devices", "99"], "devices is 99, but JAX sees"),
        (["--distributed", "here"], "cannot join the other processes"),
    ],
)
def test_mistakes(flags: list[str], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    given = ["--cache-dir", tiny.CACHE, *([] if "--resume" in flags else ["--run-dir", str(tmp_path / "run")])]
    assert cli.main(["discover", *given, *flags]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


def test_presets_are_settings() -> None:
    for name in PRESETS:
        assert options.make(DiscoverySettings, preset(name))
    notebook = options.make(DiscoverySettings, preset("notebook"))
    assert notebook.rule_config.predictions == 600
    assert (notebook.clip, notebook.mask, notebook.meta_decay) == ("none", "reference", 0)
    assert (notebook.envs, notebook.batch, notebook.rollout, notebook.replay_share) == (32, 32, 16, 0.0)


def test_the_command_writes_a_rule(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["discover", *FLAGS, "--cache-dir", tiny.CACHE, "--run-dir", str(tmp_path / "run")]) == 0
    out = capsys.readouterr().out
    assert "compiling" in out and "meta-step 4/4" in out and "discovered a rule on catch" in out
    assert rule_files.load(tmp_path / "run" / "rule.npz").config.predictions == SIZES["predictions"]


def test_a_rule_keeps_its_constants_unless_others_are_written_behind_it() -> None:
    bundled = rule_files.named("disco-mini").config
    assert build(DiscoverySettings(rule="disco-mini")).settings.entropy_cost == bundled.entropy_cost > 0
    assert build(DiscoverySettings(rule="disco-mini:entropy_cost=0")).config.entropy_cost == 0
    assert build(DiscoverySettings(entropy_cost=0.3)).config.entropy_cost == 0.3
    with pytest.raises(DiscorlError, match=r"is 0\.1; for another, start from disco-mini:entropy_cost=0\.3"):
        build(DiscoverySettings(rule="disco-mini", entropy_cost=0.3))
