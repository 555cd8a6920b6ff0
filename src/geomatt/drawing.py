"""Common parts of all figures: style, figures without pyplot, and matrices over pairs of atoms."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from geomatt.errors import GeomAttError
from geomatt.files import atomic_output, require_writable

INK, FAINT, EMPTY = "#22252b", "#8a8f98", "#e4e6ea"
# In the order of use. They differ for colour-blind readers too: a test simulates the three kinds.
SERIES = ("#2f6db5", "#d9782d", "#58b98b", "#a64d79", "#4a1d4f")
FORMATS = (".png", ".pdf", ".svg")
# Without dates and versions, so that the same numbers give the same file.
_METADATA = {".png": {"Software": None}, ".pdf": {"CreationDate": None}, ".svg": {"Date": None}}
_STYLE: Any = {
    "font.family": "sans-serif",
    "font.size": 8,
    "axes.titlesize": 8.5,
    "axes.linewidth": 0.6,
    "legend.frameon": False,
    "svg.hashsalt": "geomatt",
    **dict.fromkeys(("axes.edgecolor", "axes.labelcolor", "text.color", "xtick.color", "ytick.color"), INK),
}


def style() -> Any:
    """A context in which figures are drawn and saved in the package's style."""
    import matplotlib

    return matplotlib.rc_context(_STYLE)


def new_figure(width: float, height: float, dpi: float = 160) -> Any:
    """A figure outside pyplot: nothing to close, and no display needed. Sizes in inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=dpi, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def figure_path(path: str | os.PathLike[str]) -> Path:
    """The path of a figure; an error before anything is drawn if it cannot be written."""
    target = require_writable(Path(path))
    if target.suffix.lower() not in FORMATS:
        raise GeomAttError(f"Cannot draw {target}: the name must end in .png, .pdf or .svg.")
    return target


def save_figure(figure: Any, path: str | os.PathLike[str]) -> Path:
    """Write a figure, complete or not at all, in the format of the suffix."""
    target = figure_path(path)
    suffix = target.suffix.lower()
    with atomic_output(target) as temporary:
        figure.savefig(temporary, format=suffix[1:], metadata=_METADATA[suffix])
    return target


def show_matrix(
    axis: Any, matrix: np.ndarray, colours: str, low: float | None = None, high: float | None = None
) -> Any:
    """A matrix over pairs of atoms as an image; the diagonal is left empty."""
    import matplotlib

    shown = np.ma.masked_array(matrix, np.eye(len(matrix), dtype=bool))
    colour_map = matplotlib.colormaps[colours].with_extremes(bad=EMPTY)
    return axis.imshow(shown, cmap=colour_map, vmin=low, vmax=high, interpolation="nearest")


def frame_cells(axis: Any, cells: Any, colour: str = INK, width: float = 0.6, halo: bool = True) -> None:
    """Frames around cells (i, j) of a matrix shown as an image; `halo` makes them visible on dark cells."""
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import Rectangle

    boxes = [Rectangle((j - 0.5, i - 0.5), 1, 1) for i, j in cells]
    for edge, line in [("white", 2.5 * width)] * halo + [(colour, width)]:
        axis.add_collection(PatchCollection(boxes, facecolor="none", edgecolor=edge, linewidth=line))


def label_atoms(axis: Any, symbols: Sequence[str], rows: bool = True) -> None:
    """Symbols with numbers (from 0) along both sides, or along the bottom alone; not all of many atoms."""
    stride = -(-len(symbols) // 36)
    ticks = range(0, len(symbols), stride)
    names = [f"{symbols[i]}{i}" for i in ticks]
    size = 6 if len(ticks) <= 12 else 4.5
    axis.set_xticks(ticks, names, fontsize=size, rotation=90)
    axis.set_yticks(ticks, names if rows else [""] * len(ticks), fontsize=size)
    axis.tick_params(length=0, pad=1.5)


def colour_bar(figure: Any, image: Any, axes: Any, label: str) -> None:
    """A horizontal colour bar below the axes."""
    bar = figure.colorbar(image, ax=axes, location="bottom", shrink=0.5, aspect=36, pad=0.02)
    bar.set_label(label)
    bar.outline.set_linewidth(0.5)
