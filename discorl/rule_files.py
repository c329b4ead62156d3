"""Rules on disk: one `.npz` per rule, found by name or path, checked before use. Knows no framework.

A file holds float arrays under their published names (`rule_config.array_shapes`) and, optionally, one text entry
`config`: JSON with a format number, the fields of `DiscoConfig`, and where the rule comes from. A file without it has
the sizes of Disco103.
"""

import contextlib
import hashlib
import http.client
import json
import math
import os
import secrets
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import IO, Any, NamedTuple, get_args

import numpy as np

from discorl import rule_numbers
from discorl.errors import DiscorlError, near_matches
from discorl.rule_config import CONSTANTS, SHARES, Activation, DiscoConfig, array_shapes

FORMAT = 1
BUNDLED = Path(__file__).parent / "data"
DISCO103_FILES = ("disco_103.npz", "disco103.npz")
DISCO103_SHA256 = "dac840a15b81e8805326363458c33979626172618f620d9e6e170315388530aa"
DISCO103_URLS = (
    "https://raw.githubusercontent.com/google-deepmind/disco_rl/main/disco_rl/update_rules/weights/disco_103.npz",
    "https://raw.githubusercontent.com/google-deepmind/disco_rl/main/update_rules/weights/disco_103.npz",
)
DOWNLOAD_TIMEOUT = 30.0  # seconds without an answer
NAMES = {
    "disco-mini": "discovered by this project, small, works offline",
    "disco103": "the published rule of Oh et al. 2025, discovered on 103 environments",
}
PLACE_IT = "place the published disco_103.npz in a folder named by the environment variable DISCORL_RULES"


@dataclass(frozen=True)
class RuleFile:
    """A rule as data: what fixes it, its weights, and how it came to be."""

    config: DiscoConfig
    arrays: dict[str, np.ndarray]  # float32, in the order of `array_shapes`
    provenance: dict[str, Any] = field(default_factory=dict)  # anything JSON can hold
    path: Path | None = None

    @property
    def name(self) -> str:
        return self.path.stem if self.path else "unnamed"


class KnownRule(NamedTuple):
    name: str
    where: str
    description: str


# Reading -------------------------------------------------------------------------------------------------------------


def named(rule: str | os.PathLike[str], also: Iterable[str] = ()) -> RuleFile:
    """A rule by name or path, with other constants if they follow a colon: `disco103:entropy_cost=0.01`."""
    name, numbers = rule_numbers.split(os.fspath(rule))
    file = load(find(name, also))
    given = rule_numbers.parse(name, numbers, CONSTANTS)
    if not given:
        return file
    return replace(file, config=_parse_config(asdict(file.config) | given, os.fspath(rule)))


def load(path: str | os.PathLike[str]) -> RuleFile:
    """Reads and checks a rule file; see `find` for names."""
    path = Path(path)
    entries = _read_entries(path)
    config, provenance = DiscoConfig(), {}
    if "config" in entries:
        config, provenance = _parse_header(entries.pop("config"), path)
    return RuleFile(config, _checked(entries, config, str(path)), provenance, path)


def _read_entries(path: Path) -> dict[str, np.ndarray]:
    if not path.is_file():
        problem = "is a folder, not a rule file" if path.is_dir() else "does not exist"
        raise DiscorlError(f"{path} {problem}; give the path of a .npz rule file, or one of {', '.join(NAMES)}")
    name = None
    try:
        if not zipfile.is_zipfile(path):
            raise zipfile.BadZipFile("no zip archive")
        entries = {}
        with np.load(path, allow_pickle=False) as archive:
            for name in archive.files:
                entries[name] = archive[name]
        return entries
    except PermissionError as error:
        raise DiscorlError(f"{path} may not be read; change its permissions") from error
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError) as error:
        if "allow_pickle" in str(error):
            raise DiscorlError(
                f"{path}: array {name!r} holds pickled Python objects, which are never loaded; save it as plain float32"
            ) from error
        at = f" at array {name!r}" if name else ""
        raise DiscorlError(f"{path} is not a .npz rule file or is damaged{at}; fetch or save it again") from error


def _checked(entries: dict[str, Any], config: DiscoConfig, source: str) -> dict[str, np.ndarray]:
    shapes = array_shapes(config)
    if missing := [name for name in shapes if name not in entries]:
        raise DiscorlError(f"{source}: {_listed('array', missing)} missing; this is no complete rule of these sizes")
    if extra := [name for name in entries if name not in shapes]:
        raise DiscorlError(
            f"{source}: {_listed('array', extra)} unknown to this rule; remove what does not belong to it"
        )
    arrays = {}
    for name, shape in shapes.items():
        got = np.asarray(entries[name])
        if got.shape != shape:
            raise DiscorlError(
                f"{source}: array {name!r} has shape {got.shape} where its config needs {shape}; "
                "save the rule with the config it was made with"
            )
        if not np.issubdtype(got.dtype, np.floating):
            raise DiscorlError(f"{source}: array {name!r} has dtype {got.dtype}, not a float; save it as float32")
        with np.errstate(over="ignore"):  # what does not fit float32 is refused below, as infinite
            arrays[name] = got.astype(np.float32)
        if not np.isfinite(arrays[name]).all():
            raise DiscorlError(
                f"{source}: array {name!r} holds NaN or infinite values; use an earlier save of this rule"
            )
    return arrays


def _listed(noun: str, names: list[str], most: int = 3) -> str:
    shown = ", ".join(repr(name) for name in names[:most])
    if len(names) > most:
        shown += f" and {len(names) - most} more"
    return f"{noun} {shown} is" if len(names) == 1 else f"{noun}s {shown} are"


def _parse_header(entry: np.ndarray, path: Path) -> tuple[DiscoConfig, dict[str, Any]]:
    way_out = "save the rule again with discorl, or remove the entry if it has the sizes of Disco103"
    try:
        header = json.loads(entry.item()) if entry.shape == () and entry.dtype.kind == "U" else None
    except ValueError as error:
        raise DiscorlError(f"{path}: its 'config' entry is not valid JSON ({error}); {way_out}") from error
    parts = header if isinstance(header, dict) else {}
    if not isinstance(parts.get("config"), dict) or type(parts.get("format")) is not int:
        raise DiscorlError(f"{path}: its 'config' entry must be JSON text with a format number and a config; {way_out}")
    if parts["format"] > FORMAT:
        raise DiscorlError(
            f"{path} has format {parts['format']} and this version of discorl reads up to {FORMAT}; upgrade discorl"
        )
    provenance = parts.get("provenance", {})
    if not isinstance(provenance, dict):
        raise DiscorlError(f"{path}: provenance in its 'config' entry must be a JSON object; {way_out}")
    return _parse_config(parts["config"], str(path)), provenance


def _parse_config(values: dict[str, Any], source: str) -> DiscoConfig:
    defaults = asdict(DiscoConfig())
    parsed = {}
    for name, value in values.items():
        if name not in defaults:
            raise DiscorlError(
                f"{source}: its config has the unknown field {name!r} ({near_matches(name, defaults)}); "
                "upgrade discorl if a newer one wrote it"
            )
        parsed[name] = tuple(value) if isinstance(value, list) else value
        if not _fits(parsed[name], defaults[name]):
            example = json.dumps(defaults[name])
            raise DiscorlError(f"{source}: config field {name!r} cannot be {value!r}; it is of the kind of {example}")
        if name in SHARES and parsed[name] > 1:
            raise DiscorlError(f"{source}: {name} lies between 0 and 1, it cannot be {value!r}")
        if isinstance(defaults[name], float):
            parsed[name] = float(parsed[name])
    return DiscoConfig(**parsed)


def _fits(value: Any, default: Any) -> bool:
    if isinstance(default, tuple):
        return isinstance(value, tuple) and bool(value) and all(_fits(v, 1) for v in value)
    if isinstance(default, int):
        return type(value) is int and value > 0
    if isinstance(default, float):
        return type(value) in (int, float) and math.isfinite(value) and value >= 0
    return value in get_args(Activation)


# Writing -------------------------------------------------------------------------------------------------------------


def save(path: str | os.PathLike[str], rule: RuleFile) -> None:
    """Writes a rule so that `path` holds the old file or the whole new one, whatever happens in between.

    The same rule always gives the same bytes.
    """
    path = Path(path)
    arrays = _checked(rule.arrays, _parse_config(asdict(rule.config), str(path)), str(path))
    try:
        header = {"format": FORMAT, "config": _config_json(rule.config), "provenance": rule.provenance}
        text = json.dumps(header, sort_keys=True, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise DiscorlError(f"{path}: the provenance of a rule must be plain JSON data ({error})") from error
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _write_atomically(path, lambda file: _write_entries(file, {"config": np.array(text), **arrays}))
    except OSError as error:
        raise DiscorlError(f"{path} cannot be written ({error.strerror or error}); choose another place") from error


def _config_json(config: DiscoConfig) -> dict[str, Any]:
    return {f.name: getattr(config, f.name) for f in fields(config)}


def _write_entries(file: IO[bytes], entries: dict[str, np.ndarray]) -> None:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, array in entries.items():
            info = zipfile.ZipInfo(f"{name}.npy", date_time=(1980, 1, 1, 0, 0, 0))  # the clock would change the bytes
            with archive.open(info, "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, np.ascontiguousarray(array).reshape(array.shape), allow_pickle=False)


def _write_atomically(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        with open(part, "xb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # some systems cannot open a folder; then the rename is as safe as it gets
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


# Finding -------------------------------------------------------------------------------------------------------------


def find(name_or_path: str | os.PathLike[str], also: Iterable[str] = ()) -> Path:
    """The file of a named rule, downloaded if need be, or the path itself if that is what was given.

    `also` are names the caller knows besides. A known name is never taken for a path: write
    `./disco103` for a file of that name.
    """
    text = os.fspath(name_or_path)
    if text == "disco-mini":
        if (path := BUNDLED / "disco-mini.npz").is_file():
            return path
        raise DiscorlError("this copy of discorl carries no rule 'disco-mini'; use disco103 or the path of a rule file")
    if text == "disco103":
        return _find_disco103() or _download_disco103()
    path = Path(text).expanduser()
    looks_like_path = os.sep in text or (os.altsep and os.altsep in text) or text.endswith(".npz")
    if looks_like_path or path.exists():
        if path.exists():
            return path
        raise DiscorlError(f"{path} does not exist; give the path of a .npz rule file, or one of {', '.join(NAMES)}")
    raise DiscorlError(f"there is no rule {text!r}; {near_matches(text, [*NAMES, *also])}")


def known() -> list[KnownRule]:
    """The named rules and where they are now; downloads nothing."""
    mini = BUNDLED / "disco-mini.npz"
    try:
        published = str(_find_disco103() or "not present")
    except DiscorlError as error:
        published = f"refused: {error}"
    where = {"disco-mini": str(mini) if mini.is_file() else "not present", "disco103": published}
    return [KnownRule(name, where[name], description) for name, description in NAMES.items()]


def default_rule() -> str:
    return "disco-mini" if (BUNDLED / "disco-mini.npz").is_file() else "disco103"


def _cache() -> Path:
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "discorl" / "rules"


def _find_disco103() -> Path | None:
    folders = [Path(f).expanduser() for f in os.environ.get("DISCORL_RULES", "").split(os.pathsep) if f]
    for folder in [*folders, _cache()]:
        for file in DISCO103_FILES:
            if (path := folder / file).is_file():
                if hashlib.sha256(path.read_bytes()).hexdigest() != DISCO103_SHA256:
                    raise DiscorlError(
                        f"{path} is not the published Disco103 (its checksum differs); "
                        "remove it, or give its path if you mean that very file"
                    )
                return path
    return None


def _download_disco103() -> Path:
    target = _cache() / DISCO103_FILES[0]
    content = _fetch_disco103()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _write_atomically(target, lambda file: file.write(content))
    except OSError as error:
        raise DiscorlError(f"{target} cannot be written ({error.strerror or error}); {PLACE_IT}") from error
    return target


def _fetch_disco103() -> bytes:
    failure: Exception | None = None
    for url in DISCO103_URLS:
        try:
            with urllib.request.urlopen(url, timeout=DOWNLOAD_TIMEOUT) as response:
                content = response.read()
        except (OSError, http.client.HTTPException, ValueError) as error:
            if isinstance(error, urllib.error.HTTPError):
                error.close()  # it holds the connection
            failure = error
            continue
        if hashlib.sha256(content).hexdigest() == DISCO103_SHA256:
            return content
        failure = ValueError("the checksum of what arrived differs")
    raise DiscorlError(f"disco103 is not here and could not be downloaded ({failure}); {PLACE_IT}") from failure
