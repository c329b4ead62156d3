"""Tensors in nested tuples, lists and dicts: observations, and the memory of recurrent agents."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from discorl_torch.types import Tree


def tree_map(function: Callable[..., Any], tree: Tree, *others: Tree) -> Tree:
    """The same structure with `function` of the leaves; `others` have the structure of `tree`."""
    if isinstance(tree, dict):
        return {key: tree_map(function, x, *(other[key] for other in others)) for key, x in tree.items()}
    if isinstance(tree, tuple | list):
        parts = [tree_map(function, *xs) for xs in zip(tree, *others, strict=True)]
        return type(tree)(*parts) if hasattr(tree, "_fields") else type(tree)(parts)
    return function(tree, *others)


def leaves(tree: Tree) -> Iterator[Any]:
    if isinstance(tree, dict):
        tree = tuple(tree.values())
    if isinstance(tree, tuple | list):
        for part in tree:
            yield from leaves(part)
    else:
        yield tree


def stack(trees: list[Tree]) -> Tree:
    return tree_map(lambda *xs: torch.stack(xs), *trees)


def as_tensors(tree: Tree, device: torch.device | str | None = None) -> Tree:
    """NumPy arrays and numbers to tensors on `device`; float64, which nobody wants, to float32."""

    def convert(x: Any) -> Tensor:
        x = x if isinstance(x, Tensor) else torch.as_tensor(np.asarray(x))
        return x.to(device=device, dtype=torch.float32 if x.dtype == torch.float64 else x.dtype)

    return tree_map(convert, tree)


def shapes(tree: Tree, skip: int = 0) -> Tree:
    """For messages."""
    return tree_map(lambda x: list(x.shape[skip:]), tree)
