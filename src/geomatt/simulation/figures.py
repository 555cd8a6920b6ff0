"""The look of the figures of simulations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from geomatt.data.files import atomic_output, require_writable

COLOURS = ("#2b59a8", "#d1495b", "#4f9d69", "#e08e45", "#6c4f9d", "#2b2d42", "#8d99ae")


def new_figure(rows: int, columns: int, *, size: tuple[float, float], **rest: Any) -> tuple[Any, np.ndarray]:
    """A figure that needs no display, and its axes in one row."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, columns, squeeze=False, **rest).reshape(-1)
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
    return figure, axes


def save_figure(figure: Any, path: Path) -> None:
    """Write a figure atomically, in the format of its suffix."""
    target = require_writable(path)
    with atomic_output(target) as temporary:
        figure.savefig(temporary, format=target.suffix.lower().lstrip("."))
