"""Checkpoints: exact both ways, whole or not at all, and no pickles."""

from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from discorl import checkpoints
from discorl.errors import DiscorlError


class Tree(NamedTuple):
    key: Any
    half: Any
    nested: Any


def make_tree() -> Tree:
    return Tree(
        key=jax.random.split(jax.random.key(3), 2),
        half=jnp.asarray([1.5, -0.25], jnp.bfloat16),
        nested=({"b": jnp.asarray([True, False]), "n": jnp.asarray(7, jnp.int32)}, (), jnp.zeros((2, 0))),
    )


def test_a_tree_comes_back_exactly(tmp_path: Path) -> None:
    tree = make_tree()
    checkpoints.save(tmp_path / "a.npz", tree, {"updates": 3})
    back = checkpoints.load(tmp_path / "a.npz", jax.eval_shape(make_tree))
    assert jax.tree.structure(back) == jax.tree.structure(tree)
    for old, new in zip(jax.tree.leaves(tree), jax.tree.leaves(back), strict=True):
        assert old.dtype == new.dtype
        is_key = jnp.issubdtype(old.dtype, jax.dtypes.prng_key)
        old, new = (jax.random.key_data(old), jax.random.key_data(new)) if is_key else (old, new)
        np.testing.assert_array_equal(old, new)
    assert checkpoints.read_about(tmp_path / "a.npz") == {"updates": 3}


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    checkpoints.write_atomically(path, lambda file: file.write(b"old"))

    def fail(file: Any) -> None:
        file.write(b"half of the n")
        raise OSError(28, "No space left on device")

    with pytest.raises(DiscorlError, match="No space left on device"):
        checkpoints.write_atomically(path, fail)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_whoever_reads_while_it_is_replaced_reads_the_old_file_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    checkpoints.write_atomically(path, lambda file: file.write(b"the old file"))
    with path.open("rb") as reader:
        checkpoints.write_atomically(path, lambda file: file.write(b"new"))
        assert reader.read() == b"the old file"
    assert path.read_bytes() == b"new"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda tree: tree._replace(half=jnp.zeros(3, jnp.bfloat16)), r"\.half is bfloat16\[2\] .* bfloat16\[3\]"),
        (lambda tree: tree._replace(nested=jnp.zeros(())), r"does not fit this program"),
        (lambda tree: tree._replace(key=jax.random.key(0)), r"\.key is uint32\[2, 2\]"),
    ],
)
def test_what_does_not_fit_is_named(tmp_path: Path, change: Any, message: str) -> None:
    checkpoints.save(tmp_path / "a.npz", make_tree(), {})
    with pytest.raises(DiscorlError, match=message):
        checkpoints.load(tmp_path / "a.npz", change(make_tree()))


def test_a_truncated_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    checkpoints.save(path, make_tree(), {})
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(DiscorlError, match="damaged"):
        checkpoints.load(path, make_tree())


def test_pickles_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, about=np.array({"updates": 1}, dtype=object))
    with pytest.raises(DiscorlError, match="damaged or was not written by discorl"):
        checkpoints.read_about(path)


def test_a_missing_file_and_a_missing_header_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(DiscorlError, match=r"there is no a\.npz"):
        checkpoints.read_about(tmp_path / "a.npz")
    np.savez(tmp_path / "a.npz", other=np.zeros(2))
    with pytest.raises(DiscorlError, match="no readable header"):
        checkpoints.read_about(tmp_path / "a.npz")
