"""Pictures of training."""

from pathlib import Path

import numpy as np
from jaxtyping import Float, Int

from discorl.errors import DiscorlError

LINE, BAND = "#1f5fa8", "#9bbfe5"


def learning_curve(path: Path, steps: Int[np.ndarray, " N"], returns: Float[np.ndarray, "S N"], title: str) -> None:
    """Return against environment steps: every agent a thin line, their mean a thick one. NaNs are left out."""
    from matplotlib.figure import Figure  # not pyplot: no global state, no display

    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.add_subplot()
    agents = len(returns)
    for one in returns:
        axes.plot(steps[~np.isnan(one)], one[~np.isnan(one)], color=BAND, linewidth=0.8)
    known = ~np.isnan(returns).all(axis=0)
    if known.any():
        label = f"mean of {agents} agents" if agents > 1 else "return"
        axes.plot(steps[known], np.nanmean(returns[:, known], axis=0), color=LINE, linewidth=2, label=label)
    if agents > 1 and known.any():
        axes.legend(frameon=False)
    axes.set(xlabel="environment steps of each agent", ylabel="episode return", title=title)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    try:
        figure.savefig(path, dpi=120, format="png")
    except OSError as error:
        raise DiscorlError(f"cannot write {path}: {error.strerror}") from error
