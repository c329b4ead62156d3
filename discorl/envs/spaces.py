"""Action spaces of other libraries, recognised by what they have: nothing is imported here to look at them."""

from typing import Any

import numpy as np

from discorl.errors import DiscorlError


def require_discrete(space: Any, owner: str) -> int:
    """The number of actions of a discrete space; any other kind is refused in one sentence about `owner`.

    A Gymnasium space may number its actions from `space.start`; ours start at 0, so an adapter adds it.
    """
    kind = _kind(space)
    if kind is not None:
        raise DiscorlError(
            f"{owner} has {kind}, but update rules choose one of a fixed number of actions: "
            "wrap it so that its action space is Discrete"
        )
    if int(space.n) < 1:
        raise DiscorlError(f"{owner} has a discrete action space of {int(space.n)} actions, it needs at least 1")
    return int(space.n)


def _kind(space: Any) -> str | None:
    """What is wrong with a space, in words; None if it is discrete."""
    name = type(space).__name__
    if hasattr(space, "nvec"):
        return f"a multi-dimensional action space ({name} of sizes {np.asarray(space.nvec).tolist()})"
    if hasattr(space, "low") and hasattr(space, "high"):
        shape = np.shape(space.low)
        if np.issubdtype(np.asarray(space.low).dtype, np.integer):
            return f"a multi-dimensional action space ({name} of shape {shape})"
        return f"a continuous action space ({name} of shape {shape})"
    if hasattr(space, "spaces"):
        return f"a composite action space ({name})"
    if not hasattr(space, "n"):
        return f"an action space of unknown kind ({name})"
    # MultiBinary has `n` too, but a choice of one number has no axes.
    if np.ndim(space.n) > 0 or tuple(getattr(space, "shape", None) or ()) != ():
        return f"a multi-dimensional action space ({name} of {np.asarray(space.n).tolist()})"
    return None
