"""Pictures of training."""

import textwrap
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from discorl.errors import DiscorlError

LINE, BAND = "#1f5fa8", "#9bbfe5"
TITLE_WIDTH = 66  # characters; a rule with numbers of its own has a long name


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
    axes.set(xlabel="environment steps of each agent", ylabel="episode return")
    axes.set_title("\n".join(textwrap.wrap(title, TITLE_WIDTH)))
    _write(figure, [axes], path)


def discovery_curves(path: Path, steps: np.ndarray, curves: Mapping[str, np.ndarray], title: str) -> None:
    """Return early and late in life against meta-steps, one picture per family; `curves` are [2, rows]."""
    from matplotlib.figure import Figure

    columns = min(4, len(curves))
    rows = -(-len(curves) // columns)
    figure = Figure(figsize=(max(7, 3.2 * columns), 1.2 + 2.6 * rows), layout="constrained")
    panels = np.atleast_1d(figure.subplots(rows, columns)).ravel()
    for axes, (name, (early, late)) in zip(panels, curves.items(), strict=False):
        for values, colour, label in ((early, BAND, "first third of life"), (late, LINE, "last third")):
            known = ~np.isnan(values)
            axes.plot(steps[known], values[known], color=colour, linewidth=1.2, label=label)
        axes.set(title=name)
    panels[0].legend(frameon=False, fontsize=8)
    for axes in panels[len(curves) :]:
        axes.set_visible(False)
    figure.suptitle(title)
    figure.supxlabel("meta-steps")
    figure.supylabel("episode return")
    _write(figure, panels, path)


def _write(figure: Any, panels: Iterable[Any], path: Path) -> None:
    for axes in panels:
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    try:
        figure.savefig(path, dpi=120, format="png")
    except OSError as error:
        raise DiscorlError(f"cannot write {path}: {error.strerror}") from error
