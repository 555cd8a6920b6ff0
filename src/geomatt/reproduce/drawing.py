"""What the figures of the experiments share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from geomatt.data.files import atomic_output

INK, FAINT = "#22252b", "#8a8f98"
PAIR = ("#d9782d", "#2f6db5")  # two of a kind, also for eyes that confuse red and green
SERIES = ("#2f6db5", "#d9782d", "#1b7f5c", "#8f6bb0", "#d64550")


@contextmanager
def style() -> Iterator[None]:
    """The look of all figures."""
    import matplotlib

    with matplotlib.rc_context(
        {
            "font.size": 8,
            "axes.titlesize": 8.5,
            "axes.linewidth": 0.6,
            "axes.edgecolor": INK,
            "text.color": INK,
            "axes.labelcolor": INK,
            "xtick.color": INK,
            "ytick.color": INK,
            "legend.frameon": False,
        }
    ):
        yield


def new_figure(width: float, height: float) -> Any:
    """A figure of its own, outside pyplot: nothing to close, and no display needed."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=160, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def save_figure(figure: Any, path: Path) -> Path:
    """Write whole or not at all, without the date, so that the same result gives the same file."""
    with atomic_output(path) as temporary:
        figure.savefig(temporary, format="png", metadata={"Software": None})
    return path
