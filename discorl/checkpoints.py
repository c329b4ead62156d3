"""A tree of arrays in one `.npz` and back, exactly: leaves under their paths, typed keys as their data, no pickles."""

import json
import os
import secrets
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from discorl.errors import DiscorlError

HEADER = "about"  # the one entry that is no leaf: JSON. Paths of leaves start with '.' or '['


def save(path: Path, tree: PyTree, about: dict[str, Any]) -> None:
    """Writes the tree and a JSON header."""
    entries: dict[str, Any] = {HEADER: np.asarray(json.dumps(about))}
    entries |= {jax.tree_util.keystr(at): _plain(leaf) for at, leaf in jax.tree_util.tree_leaves_with_path(tree)}
    write_atomically(path, lambda file: np.savez(file, **entries))


def load(path: Path, like: PyTree) -> PyTree:
    """The tree of a file; `like` says its structure, shapes and dtypes, and may be of ShapeDtypeStructs."""
    stored = read_entries(path)
    stored.pop(HEADER, None)
    paths, treedef = jax.tree_util.tree_flatten_with_path(like)
    wanted = {jax.tree_util.keystr(at): leaf for at, leaf in paths}
    if wanted.keys() != stored.keys():
        odd = sorted(wanted.keys() ^ stored.keys())
        raise DiscorlError(
            f"{path} does not fit this program: only one of them has {', '.join(odd[:3])}; "
            "it was written with other settings or another version"
        )
    return jax.tree.unflatten(treedef, [_restored(path, name, stored[name], leaf) for name, leaf in wanted.items()])


def read_about(path: Path) -> dict[str, Any]:
    """The JSON header of a file."""
    try:
        return json.loads(read_entries(path, only=HEADER)[HEADER].item())
    except (KeyError, ValueError) as error:
        raise DiscorlError(f"{path} has no readable header: it was not written by discorl") from error


def read_entries(path: Path, only: str | None = None) -> dict[str, np.ndarray]:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files if only in (None, name)}
    except FileNotFoundError as error:
        raise DiscorlError(f"there is no {path.name} in {path.parent}") from error
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise DiscorlError(f"{path} is damaged or was not written by discorl: {error}") from error


def write_atomically(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Whoever looks sees the old file or the new one, whole, also after a crash."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with draft.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError as error:
        raise DiscorlError(
            f"cannot write {path}: {error.strerror}; free some space or choose another folder"
        ) from error
    finally:
        draft.unlink(missing_ok=True)


def _plain(leaf: Any) -> np.ndarray:
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    array = np.asarray(leaf)
    # bfloat16 and its kin are unknown to the file format
    return array.view(f"u{array.dtype.itemsize}") if array.dtype.kind == "V" else array


def _restored(path: Path, name: str, array: np.ndarray, like: Any) -> jax.Array:
    if jnp.issubdtype(like.dtype, jax.dtypes.prng_key):
        data = jax.eval_shape(jax.random.key_data, like)
        _check(path, name, array, data.shape, data.dtype)
        return jax.random.wrap_key_data(jnp.asarray(array))
    dtype = np.dtype(like.dtype)
    if dtype.kind == "V":
        array = array.view(dtype)
    _check(path, name, array, like.shape, dtype)
    return jnp.asarray(array)


def _check(path: Path, name: str, array: np.ndarray, shape: tuple[int, ...], dtype: Any) -> None:
    if array.shape != shape or array.dtype != dtype:
        raise DiscorlError(
            f"{path}: {name} is {array.dtype}{list(array.shape)} where this program has {dtype}{list(shape)}; "
            "it was written with other settings or another version"
        )
