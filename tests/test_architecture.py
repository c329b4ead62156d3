"""The tree is the data flow: a module may import what stands above it in this list, and nothing else of ours."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

LAYERS = [
    "errors",
    "rule_config",
    "rule_numbers",
    "rule_files",
    "options",
    "settings",
    "presets",
    "discovery.settings",
    "types",
    "distributions",
    "nn",
    "convolution",
    "envs.base",
    "envs.compliance",
    "envs.spaces",
    "envs.host",
    "envs.stacking",
    "envs.adapters",
    "envs.adapters.libraries",
    "envs.adapters.gym_masks",
    "envs.adapters.gym",
    "envs.adapters.crafter",
    "envs.adapters.dm_env",
    "envs.adapters.envpool",
    "envs.adapters.atari",
    "envs.adapters.atari_scores",
    "envs.adapters.pure",
    "envs.adapters.gymnax",
    "envs.adapters.pgx",
    "envs.adapters.minigrid",
    "envs.adapters.jumanji",
    "envs.adapters.craftax",
    "envs.catch",
    "envs.t_maze",
    "envs.probes",
    "envs.families",
    "envs.catch_tasks",
    "envs.grid",
    "envs.grid_tasks",
    "envs.chains",
    "envs.bandits",
    "envs.control",
    "envs.motion",
    "envs.acrobot",
    "envs.games",
    "envs.suites",
    "envs.together",
    "envs.names",
    "envs",
    "networks.base",
    "networks.observations",
    "networks.assembly",
    "networks.mlp",
    "networks.impala",
    "networks.encoders",
    "networks.recurrent",
    "networks.normalise",
    "networks.flat",
    "networks.masked",
    "networks",
    "agents",
    "acting",
    "host_acting",
    "frames",
    "replay",
    "optim",
    "rules",
    "rules.base",
    "rules.moments",
    "rules.values",
    "rules.features",
    "rules.meta_network",
    "rules.disco",
    "rules.actor_critic",
    "rules.value_function",
    "rules.policy_gradient",
    "rules.library",
    "learner",
    "training",
    "evaluation",
    "programs",
    "host_training",
    "experiment",
    "results",
    "checkpoints",
    "events",
    "runs",
    "plots",
    "play",
    "judging",
    "trainer",
    "discovery",
    "discovery.objective",
    "discovery.gradients",
    "discovery.window",
    "discovery.life",
    "discovery.population",
    "discovery.placement",
    "discovery.compiling",
    "discovery.build",
    "discovery.records",
    "discovery.discover",
    "console",
    "interrupts",
    "cli",
    "__main__",
]
NO_JAX = [
    "errors",
    "rule_config",
    "rule_files",
    "options",
    "settings",
    "presets",
    "discovery.settings",
    "cli",
    "interrupts",
]
MOST_LINES = 400


def files() -> dict[str, Path]:
    found = {}
    for path in sorted((ROOT / "discorl").rglob("*.py")):
        name = ".".join(path.relative_to(ROOT / "discorl").with_suffix("").parts).removesuffix(".__init__")
        found[name] = path
    found.pop("__init__")  # lists public names, loaded when asked for
    return found


def imports(path: Path, *, lazy: bool) -> set[str]:
    """Absolute names a file imports; `lazy` ones stand inside functions. Nothing is run."""
    tree = ast.parse(path.read_text("utf-8"))
    inside = {n for f in ast.walk(tree) if isinstance(f, ast.FunctionDef) for n in ast.walk(f)}
    names = set()
    for node in ast.walk(tree):
        if node in inside and not lazy:
            continue
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names} | {node.module or ""}
    return names


def ours(names: set[str]) -> set[str]:
    """Of all imported names, the modules of ours that they mean."""
    known = files()
    parts = {n.removeprefix("discorl.") for n in names if n.startswith("discorl.")}
    deepest = set()
    for part in parts:
        if part in known and not any(p != part and p.startswith(f"{part}.") and p in known for p in parts):
            deepest.add(part)
    return deepest


def test_the_list_is_complete() -> None:
    assert sorted(files()) == sorted(LAYERS)


@pytest.mark.parametrize("module", LAYERS)
def test_imports_point_one_way(module: str) -> None:
    above = set(LAYERS[: LAYERS.index(module)])
    extra = ours(imports(files()[module], lazy=True)) - above
    assert not extra, f"{module} may not import {extra}"


@pytest.mark.parametrize("module", NO_JAX)
def test_what_must_start_quickly_does_not_import_jax(module: str) -> None:
    heavy = {n for n in imports(files()[module], lazy=False) if re.match(r"(jax|matplotlib|torch|rich)\b", n)}
    assert not heavy


def test_the_pytorch_front_never_imports_jax() -> None:
    allowed = {"errors", "rule_config", "rule_files"}
    for path in (ROOT / "discorl_torch").rglob("*.py"):
        names = imports(path, lazy=True)
        assert not {n for n in names if re.match(r"jax\b", n)}, path
        assert ours(names) <= allowed, path


def test_files_are_short_and_nothing_is_called_utils() -> None:
    for path in [*(ROOT / "discorl").rglob("*.py"), *(ROOT / "discorl_torch").rglob("*.py")]:
        assert len(path.read_text("utf-8").splitlines()) <= MOST_LINES, path
        assert path.stem not in {"utils", "common", "helpers", "misc"}, path


def test_no_pickle_is_ever_loaded() -> None:
    for path in [*(ROOT / "discorl").rglob("*.py"), *(ROOT / "discorl_torch").rglob("*.py")]:
        text = path.read_text("utf-8")
        assert "allow_pickle=True" not in text, path
        assert "import pickle" not in text, path


def test_public_names_are_few_and_exist() -> None:
    import discorl

    assert len(dir(discorl)) <= 25
    for name in dir(discorl):
        assert getattr(discorl, name) is not None
