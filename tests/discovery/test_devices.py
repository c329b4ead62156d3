"""One population on several devices, and in several processes: the same rule, but for the last bits."""

import os
import socket
import subprocess
import sys
from functools import cache
from pathlib import Path

import jax
import numpy as np
import pytest
import tiny
from tiny_discovery import FLAGS, SIZES

from discorl import rule_files
from discorl.discovery import discover, placement
from discorl.errors import DiscorlError

RATE = 5e-3  # of the rule; Adam makes a step of this size out of the smallest gradient, so noise is seen through it
COMMAND = [sys.executable, "-m", "discorl", "discover", *FLAGS, "--meta-decay", "0", "--cache-dir", tiny.CACHE]


@cache
def by_one() -> rule_files.RuleFile:
    return discover.discover(**SIZES, meta_decay=0).rule


def start(folder: Path, *flags: str, devices: int = 1) -> subprocess.Popen[str]:
    own = {"XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}", "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    command = [*COMMAND, "--run-dir", str(folder), *flags]
    return subprocess.Popen(command, env=os.environ | own, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def check_rule(folder: Path) -> None:
    found = rule_files.load(folder / "rule.npz")
    assert found.provenance is not None
    assert found.provenance["devices"].startswith("2 ")
    for name, array in by_one().arrays.items():
        np.testing.assert_allclose(found.arrays[name], array, rtol=0, atol=0.1 * RATE, err_msg=name)


def test_devices_share_the_agents(tmp_path: Path) -> None:
    process = start(tmp_path / "run", devices=2)
    said, _ = process.communicate(timeout=600)
    assert process.returncode == 0, said
    check_rule(tmp_path / "run")


@pytest.mark.parametrize(
    ("before", "flags", "found"),
    [("", "", "cores"), ("", "--xla_force_host_platform_device_count=3", "3"), ("jax.devices();", "", "1")],
)
def test_every_core_is_a_device_unless_somebody_has_decided(before: str, flags: str, found: str) -> None:
    code = f"import jax; {before} from discorl.discovery import placement; placement.use_every_core();"
    code += "import os; print(jax.device_count(), len(os.sched_getaffinity(0)))"
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"XLA_FLAGS": flags}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    devices, cores = done.stdout.split()
    assert devices == (cores if found == "cores" else found)


def test_processes_share_the_agents_and_one_goes_on_alone(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        at = f"localhost:{free.getsockname()[1]}"
    processes = [start(tmp_path / "run", "--distributed", f"{at},2,{i}") for i in range(2)]
    said = [process.communicate(timeout=600)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], said
    assert "discovered a rule" in said[0] and "discovered a rule" not in said[1]  # one speaks and writes for all
    check_rule(tmp_path / "run")
    later = discover.resume(tmp_path / "run", meta_steps=SIZES["meta_steps"] + SIZES["log_every"])
    assert [row.step for row in later.rows] == [2, 4, 6]


def test_agents_that_cannot_be_shared_evenly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax, "device_count", lambda: 4)
    with pytest.raises(DiscorlError, match=r"4 devices cannot share cohorts of 6, 12 agents evenly.*devices: 1, 2, 3"):
        placement.make_mesh([12, 6, 6], 4)
    monkeypatch.setattr(placement, "alone", lambda: False)
    with pytest.raises(DiscorlError, match="processes that work together use all 4"):
        placement.make_mesh([12, 8], 2)
    with pytest.raises(DiscorlError, match="4 devices cannot share"):
        placement.make_mesh([6], None)
