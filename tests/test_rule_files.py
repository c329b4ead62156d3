import contextlib
import functools
import hashlib
import http.server
import json
import os
import subprocess
import sys
import threading
import urllib.error
import zipfile
from dataclasses import asdict, replace
from http.client import IncompleteRead
from pathlib import Path

import numpy as np
import pytest

from discorl import rule_files
from discorl.errors import DiscorlError
from discorl.rule_config import DiscoConfig, array_shapes
from discorl.rule_files import RuleFile

TINY = DiscoConfig(
    predictions=5, value_bins=7, max_value=3.0, trajectory_width=4, lifetime_width=3,
    prediction_embedding=(2, 1), action_channels=(3, 2), policy_channels=(2,), lifetime_inputs=2, activation="silu",
)  # fmt: skip
GATE = "lstm/linear/w"
PUBLISHED_ENV = os.environ.get("DISCORL_RULES", "")
PUBLISHED = Path(__file__).parents[2] / "shared" / "weights"


def make_rule(config: DiscoConfig = TINY) -> RuleFile:
    rng = np.random.default_rng(0)
    arrays = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in array_shapes(config).items()}
    return RuleFile(config, arrays, {"suite": "probes", "seed": 3, "über": [1, 2.5, None]})


def write(path: Path, arrays: dict, config: dict | None = None, **header) -> Path:
    text = {"format": 1, "config": asdict(TINY) if config is None else config, "provenance": {}, **header}
    np.savez(path, config=np.array(json.dumps(text)), **arrays)
    return path


def refusal(call, *args) -> str:
    with pytest.raises(DiscorlError) as error:
        call(*args)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.fixture
def rule() -> RuleFile:
    return make_rule()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "rule.npz"


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test may see the cache of whoever runs it, or reach the network."""
    monkeypatch.delenv("DISCORL_RULES", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(rule_files, "DISCO103_URLS", ())


# Round trip ----------------------------------------------------------------------------------------------------------


def test_load_gives_back_what_save_was_given(rule, file):
    rule_files.save(file, rule)
    back = rule_files.load(file)
    assert back.config == rule.config
    assert back.provenance == rule.provenance
    assert back.name == "rule"
    assert list(back.arrays) == list(array_shapes(TINY))
    for name, array in rule.arrays.items():
        assert back.arrays[name].dtype == np.float32
        np.testing.assert_array_equal(back.arrays[name], array)


def test_the_same_rule_always_gives_the_same_bytes(rule, tmp_path, monkeypatch):
    rule_files.save(tmp_path / "a.npz", rule)
    monkeypatch.setattr("time.time", lambda: 2e9)
    monkeypatch.setattr("time.localtime", lambda *_: (2033, 5, 18, 3, 33, 20, 2, 138, 0))
    shuffled = replace(
        rule, arrays=dict(reversed(rule.arrays.items())), provenance=dict(reversed(rule.provenance.items()))
    )
    rule_files.save(tmp_path / "b.npz", shuffled)
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


def test_a_file_without_config_has_the_sizes_of_disco103(file):
    published = make_rule(DiscoConfig())
    np.savez(file, allow_pickle=False, **published.arrays)
    assert rule_files.load(file).config == DiscoConfig()
    assert sum(a.size for a in published.arrays.values()) == 754_778
    assert len(published.arrays) == 42


def test_wider_floats_are_narrowed(rule, file):
    write(file, {name: array.astype(np.float64) for name, array in rule.arrays.items()})
    assert {a.dtype for a in rule_files.load(file).arrays.values()} == {np.dtype(np.float32)}


def test_the_published_file_loads():
    folders = [PUBLISHED, *(Path(f) for f in PUBLISHED_ENV.split(os.pathsep) if f)]
    paths = [f / n for f in folders for n in rule_files.DISCO103_FILES if (f / n).is_file()]
    if not paths:
        pytest.skip("the published weights are not on this machine (set DISCORL_RULES)")
    rule = rule_files.load(paths[0])
    assert rule.config == DiscoConfig()
    assert rule.arrays["lstm/linear/b"].std() == pytest.approx(0.036, abs=1e-3)


def test_reading_rules_needs_no_framework():
    program = "import sys; import discorl.rule_files; print([m for m in ('jax', 'torch') if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[1]
    )
    assert done.stdout.strip() == "[]"


# Files that are refused ----------------------------------------------------------------------------------------------


def test_a_missing_file_is_named(file):
    message = refusal(rule_files.load, file)
    assert str(file) in message and "does not exist" in message and "disco103" in message


def test_a_folder_is_not_a_rule(tmp_path):
    assert "is a folder" in refusal(rule_files.load, tmp_path)


@pytest.mark.parametrize("content", [b"", b"not a rule at all", b"PK\x03\x04 but no archive"])
def test_what_is_no_archive_is_refused(file, content):
    file.write_bytes(content)
    assert "not a .npz rule file or is damaged" in refusal(rule_files.load, file)


def test_a_bare_array_is_refused(tmp_path):
    np.save(tmp_path / "rule.npy", np.zeros(3))
    assert "not a .npz rule file" in refusal(rule_files.load, tmp_path / "rule.npy")


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.99])
def test_a_truncated_file_is_refused(rule, file, share):
    rule_files.save(file, rule)
    content = file.read_bytes()
    file.write_bytes(content[: int(len(content) * share)])
    assert "damaged" in refusal(rule_files.load, file)


def test_a_flipped_bit_is_noticed(rule, file):
    rule_files.save(file, rule)
    content = bytearray(file.read_bytes())
    at = content.index(rule.arrays[GATE].tobytes())
    content[at] ^= 1
    file.write_bytes(bytes(content))
    message = refusal(rule_files.load, file)
    assert "damaged" in message and GATE in message


class Mark:
    """Leaves a trace if anyone unpickles it."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def test_pickled_objects_are_never_loaded(rule, file):
    mark = file.with_name("mark")
    write(file, {**rule.arrays, GATE: np.array([Mark(mark)], dtype=object)})
    message = refusal(rule_files.load, file)
    assert "holds pickled Python objects" in message and GATE in message
    assert not mark.exists()


def test_missing_arrays_are_named(rule, file):
    del rule.arrays[GATE]
    message = refusal(rule_files.load, write(file, rule.arrays))
    assert GATE in message and "is missing" in message


def test_many_missing_arrays_are_counted(file):
    message = refusal(rule_files.load, write(file, {}))
    assert "and 39 more are missing" in message


def test_extra_arrays_are_named(rule, file):
    message = refusal(rule_files.load, write(file, {**rule.arrays, "lstm/surplus": np.zeros(2)}))
    assert "'lstm/surplus' is unknown" in message


def test_wrong_shapes_show_both_sides(rule, file):
    message = refusal(rule_files.load, write(file, {**rule.arrays, GATE: np.zeros((3, 9), np.float32)}))
    assert GATE in message and "(3, 9)" in message and "(3, 4)" in message


def test_sizes_of_another_config_are_refused(rule, file):
    np.savez(file, **rule.arrays)  # no config entry: Disco103's sizes
    assert "(600, 16)" in refusal(rule_files.load, file)


@pytest.mark.parametrize("dtype", [np.int32, bool, np.complex64, "U3"])
def test_arrays_that_are_no_floats_are_refused(rule, file, dtype):
    message = refusal(rule_files.load, write(file, {**rule.arrays, GATE: np.zeros((3, 4), dtype)}))
    assert GATE in message and str(np.dtype(dtype)) in message and "float32" in message


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e300])
def test_non_finite_values_are_refused(rule, file, bad):
    array = rule.arrays[GATE].astype(np.float64)
    array[1, 2] = bad
    message = refusal(rule_files.load, write(file, {**rule.arrays, GATE: array}))
    assert GATE in message and "NaN or infinite" in message


@pytest.mark.parametrize("entry", [np.array("{no json"), np.array("[]"), np.array(3.0), np.array(["{}"])])
def test_a_bad_config_entry_is_refused(rule, file, entry):
    np.savez(file, config=entry, **rule.arrays)
    message = refusal(rule_files.load, file)
    assert "'config'" in message and "JSON" in message


def test_unknown_config_fields_are_named_with_what_was_meant(rule, file):
    message = refusal(rule_files.load, write(file, rule.arrays, {"predictoins": 5}))
    assert "'predictoins'" in message and "did you mean 'predictions'" in message


@pytest.mark.parametrize(
    "name, value",
    [("predictions", 0), ("predictions", 5.5), ("predictions", True), ("discount", "high"), ("discount", float("nan")),
     ("action_channels", []), ("action_channels", [3, 2.5]), ("action_channels", 3), ("activation", "gelu")],
)  # fmt: skip
def test_impossible_config_values_are_refused(rule, file, name, value):
    message = refusal(rule_files.load, write(file, rule.arrays, {**asdict(TINY), name: value}))
    assert repr(name) in message and repr(value) in message


def test_a_newer_format_says_upgrade(rule, file):
    message = refusal(rule_files.load, write(file, rule.arrays, format=2))
    assert "format 2" in message and "upgrade" in message


def test_provenance_must_be_an_object(rule, file):
    assert "provenance" in refusal(rule_files.load, write(file, rule.arrays, provenance=[1]))


# Saving --------------------------------------------------------------------------------------------------------------


def test_a_crash_while_saving_leaves_the_old_file(rule, file, monkeypatch):
    rule_files.save(file, rule)
    before = file.read_bytes()
    calls = []

    def crash(*args, **kwargs):
        calls.append(1)
        if len(calls) > 5:
            raise KeyboardInterrupt
        return write_array(*args, **kwargs)

    write_array = np.lib.format.write_array
    monkeypatch.setattr(np.lib.format, "write_array", crash)
    changed = {name: array + 1 for name, array in rule.arrays.items()}
    with pytest.raises(KeyboardInterrupt):
        rule_files.save(file, replace(rule, arrays=changed))
    assert len(calls) == 6
    assert file.read_bytes() == before
    assert list(file.parent.iterdir()) == [file]


def test_what_could_not_be_loaded_is_not_saved(rule, file):
    rule.arrays[GATE][0, 0] = np.nan
    assert GATE in refusal(rule_files.save, file, rule)
    assert not file.exists()


def test_provenance_that_is_no_json_is_refused(rule, file):
    message = refusal(rule_files.save, file, replace(rule, provenance={"when": object()}))
    assert "provenance" in message and not file.exists()


def test_a_place_that_cannot_be_written_is_named(rule, file):
    file.write_text("a file where a folder is needed")
    assert "cannot be written" in refusal(rule_files.save, file / "rule.npz", rule)


# Finding -------------------------------------------------------------------------------------------------------------


def test_paths_are_paths(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine").write_bytes(b"x")
    assert rule_files.find("mine") == Path("mine")
    assert rule_files.find(tmp_path / "mine") == tmp_path / "mine"
    assert "does not exist" in refusal(rule_files.find, "other.npz")
    assert "does not exist" in refusal(rule_files.find, f"no{os.sep}where")


def test_unknown_names_say_what_was_meant():
    assert "did you mean 'disco103'" in refusal(rule_files.find, "disco130")
    assert "known: disco-mini, disco103" in refusal(rule_files.find, "xyz")


def test_disco_mini_is_the_default_once_it_is_bundled(tmp_path, monkeypatch):
    monkeypatch.setattr(rule_files, "BUNDLED", tmp_path)
    assert rule_files.default_rule() == "disco103"
    assert "disco-mini" in refusal(rule_files.find, "disco-mini")
    rule_files.save(tmp_path / "disco-mini.npz", make_rule())
    assert rule_files.default_rule() == "disco-mini"
    assert rule_files.find("disco-mini") == tmp_path / "disco-mini.npz"
    assert rule_files.load(rule_files.find("disco-mini")).config == TINY


CONTENT = b"what the published file would hold"


@pytest.fixture
def published(monkeypatch) -> bytes:
    monkeypatch.setattr(rule_files, "DISCO103_SHA256", hashlib.sha256(CONTENT).hexdigest())
    return CONTENT


@pytest.mark.parametrize("name", ["disco_103.npz", "disco103.npz"])
def test_named_folders_come_before_the_cache(tmp_path, monkeypatch, published, name):
    cached = tmp_path / "cache" / "discorl" / "rules" / "disco_103.npz"
    cached.parent.mkdir(parents=True)
    cached.write_bytes(published)
    assert rule_files.find("disco103") == cached
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / name).write_bytes(published)
    monkeypatch.setenv("DISCORL_RULES", os.pathsep.join([str(tmp_path / "empty"), str(tmp_path / "own")]))
    assert rule_files.find("disco103") == tmp_path / "own" / name


def test_another_file_under_the_name_is_refused(tmp_path, monkeypatch, published):
    (tmp_path / "disco_103.npz").write_bytes(published + b"!")
    monkeypatch.setenv("DISCORL_RULES", str(tmp_path))
    message = refusal(rule_files.find, "disco103")
    assert str(tmp_path / "disco_103.npz") in message and "checksum" in message


def test_known_tells_where_rules_are_without_fetching(tmp_path, monkeypatch, published):
    rows = {row.name: row for row in rule_files.known()}
    assert rows["disco103"].where == "not present"
    (tmp_path / "disco_103.npz").write_bytes(published)
    monkeypatch.setenv("DISCORL_RULES", str(tmp_path))
    rows = {row.name: row for row in rule_files.known()}
    assert rows["disco103"].where == str(tmp_path / "disco_103.npz")
    assert all(row.description for row in rows.values())


# Downloading ---------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def serving(folder: Path):
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format, *args):
            asked.append(self.path)

    asked: list[str] = []
    handler = functools.partial(Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", asked
        server.shutdown()
        thread.join()


@pytest.fixture
def direct(monkeypatch):
    monkeypatch.setenv("no_proxy", "*")


def test_disco103_is_downloaded_once(tmp_path, monkeypatch, published, direct):
    (tmp_path / "web").mkdir()
    (tmp_path / "web" / "older.npz").write_bytes(published)
    with serving(tmp_path / "web") as (url, asked):
        monkeypatch.setattr(rule_files, "DISCO103_URLS", (f"{url}/moved.npz", f"{url}/older.npz"))
        path = rule_files.find("disco103")
        assert path == tmp_path / "cache" / "discorl" / "rules" / "disco_103.npz"
        assert path.read_bytes() == published
        fetched = len(asked)
        assert any("older.npz" in line for line in asked)
        assert rule_files.find("disco103") == path
        assert len(asked) == fetched
    assert list(path.parent.iterdir()) == [path]


def test_a_download_with_another_checksum_is_not_kept(tmp_path, monkeypatch, published, direct):
    (tmp_path / "web").mkdir()
    (tmp_path / "web" / "rule.npz").write_bytes(published[:-1])
    with serving(tmp_path / "web") as (url, _):
        monkeypatch.setattr(rule_files, "DISCO103_URLS", (f"{url}/rule.npz",))
        message = refusal(rule_files.find, "disco103")
    assert "checksum" in message and "DISCORL_RULES" in message
    assert not list((tmp_path / "cache").rglob("*.npz"))


@pytest.mark.parametrize(
    "failure",
    [urllib.error.URLError("no route"), TimeoutError("timed out"), ConnectionResetError(), IncompleteRead(b"half")],
)
def test_without_a_network_the_way_out_is_told(monkeypatch, failure):
    def fail(url, timeout):
        assert timeout > 0
        raise failure

    monkeypatch.setattr(rule_files, "DISCO103_URLS", ("https://example.invalid/a", "https://example.invalid/b"))
    monkeypatch.setattr("urllib.request.urlopen", fail)
    message = refusal(rule_files.find, "disco103")
    assert "could not be downloaded" in message and "DISCORL_RULES" in message


def test_archives_hold_plain_arrays_only(rule, file):
    rule_files.save(file, rule)
    with zipfile.ZipFile(file) as archive:
        assert archive.namelist()[0] == "config.npy"
        assert len(archive.namelist()) == 43
        for name in archive.namelist():
            with archive.open(name) as entry:
                np.lib.format.read_array(entry, allow_pickle=False)
