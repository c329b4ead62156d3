import ast
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch.nn", reason="needs PyTorch: pip install 'discorl[torch]'")

ROOT = Path(__file__).parents[2]

# what each module may import of this package: a table of the data flow, read from top to bottom
LAYERS = [
    {"types"},
    {"trees", "distributions", "moments"},
    {"values"},
    {"features"},
    {"meta_network", "losses"},
    {"rule", "torsos"},
    {"agent", "optim", "environments"},
    {"own_network", "views", "replay"},
    {"learner", "rollout", "credit"},
    {"trainer"},
]


def test_imports_follow_the_data_flow():
    level = {name: i for i, layer in enumerate(LAYERS) for name in layer}
    files = [f for f in (ROOT / "discorl_torch").glob("*.py") if f.stem != "__init__"]
    assert {f.stem for f in files} == set(level)
    for file in files:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("discorl_torch."):
                other = (node.module or "").removeprefix("discorl_torch.")
                assert level[other] < level[file.stem], f"{file.stem} may not import {other}"


def test_the_torch_front_needs_no_jax():
    program = """
import sys
for name in ("jax", "jaxlib", "optax", "gymnasium"):
    sys.modules[name] = None  # importing it fails
import discorl_torch, discorl_torch.credit
print(sorted(m for m in sys.modules if m.startswith("discorl.")))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert (
        done.stdout.strip() == "['discorl.errors', 'discorl.rule_config', 'discorl.rule_files', 'discorl.rule_numbers']"
    )


def test_the_package_offers_what_its_documentation_says():
    import discorl_torch

    offered = {name for name in vars(discorl_torch) if name[0].isupper() or name == "collect_rollout"}
    assert offered >= {"DiscoAgent", "DiscoRule", "DiscoTrainer", "Rollout", "collect_rollout"}
    text = (ROOT / "docs" / "torch.md").read_text()
    assert all(name in text for name in offered)
