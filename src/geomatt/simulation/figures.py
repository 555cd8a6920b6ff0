"""Figures of simulations: panels one below the other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from geomatt.drawing import new_figure, save_figure, style


@contextmanager
def panels(path: Path, rows: int, width: float, height: float) -> Iterator[list[Any]]:
    """Axes to draw on, which share their x axis; the figure is written at the end. Sizes in inches."""
    with style():
        figure = new_figure(width, height)
        axes = list(figure.subplots(rows, 1, squeeze=False, sharex=True)[:, 0])
        for axis in axes:
            axis.spines[["top", "right"]].set_visible(False)
        yield axes
        save_figure(figure, path)
