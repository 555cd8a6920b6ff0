"""Figures of the shape experiment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from geomatt.analysis import flat_view
from geomatt.drawing import FAINT, INK, SERIES, new_figure

SHOWN = ("2body_dojo", "3body_fig1a_circle", "3body_fig1b_generic", "4body_nonchiral_milad")
COLOURS = (SERIES[1], SERIES[0])  # of the two shapes


def embedding_figure(result: Mapping[str, Any], models: Sequence[str]) -> Any:
    """The two shapes of some pairs, and their embeddings in each model."""
    figure = new_figure(7.6, 1.35 * len(SHOWN) + 0.5)
    grid = figure.subplots(len(SHOWN), 2 + len(models), width_ratios=[1.25, 1.25] + [1.0] * len(models))
    for row, name in zip(grid, SHOWN, strict=True):
        pair = result["pairs"][name]
        for axis, side, colour in zip(row[:2], ("plus", "minus"), COLOURS, strict=True):
            _draw_shape(axis, np.array(pair[side]), colour)
        row[0].set_title(f"{name}\nsame {pair['shared']}", loc="left", fontsize=7)
        for axis, model in zip(row[2:], models, strict=True):
            _draw_embedding(axis, pair["models"][model])
    for top, bottom, model in zip(grid[0, 2:], grid[-1, 2:], models, strict=True):
        top.set_title(model, fontsize=8)
        bottom.set_xlabel("embedding,\nstandardised", fontsize=7)
        bottom.set_xticks((-1.0, 0.0, 1.0), ("−1", "0", "1"), fontsize=6.5)
        bottom.tick_params(length=2, pad=1.5)
    return figure


def gap_figure(result: Mapping[str, Any], models: Sequence[str]) -> Any:
    """All pairs and models: the gap as a colour, the accuracy as a number."""
    import matplotlib

    names = list(result["pairs"])
    cells = [[result["pairs"][name]["models"][model] for model in models] for name in names]
    gaps = np.array([[cell["gap_median"] for cell in row] for row in cells])
    figure = new_figure(6.4, 0.29 * len(names) + 0.95)
    axis = figure.subplots()
    shown = np.ma.masked_less(np.log10(np.maximum(gaps, 1e-20)), -9.0)
    colours = matplotlib.colormaps["YlGnBu"].with_extremes(bad="#eceef1")
    image = axis.imshow(shown, cmap=colours, vmin=-5.0, vmax=0.0, aspect="auto")
    for (i, j), masked in np.ndenumerate(np.ma.getmaskarray(shown)):
        colour = "white" if not masked and shown[i, j] > -1.9 else INK
        accuracy = f"{100 * np.mean(cells[i][j]['accuracy']):.0f}"
        axis.text(j, i, accuracy, ha="center", va="center", color=colour)
    axis.set_xticks(range(len(models)), models)
    axis.set_yticks(range(len(names)), names)
    axis.set_xticks(np.arange(len(models) - 1) + 0.5, minor=True)
    axis.set_yticks(np.arange(len(names) - 1) + 0.5, minor=True)
    axis.grid(which="minor", color="white", linewidth=1.5)
    axis.tick_params(which="both", length=0)
    axis.set(xlabel="aggregation step", ylabel="pair of shapes")
    axis.spines[:].set_visible(False)
    bar = figure.colorbar(image, ax=axis, pad=0.02, shrink=0.8)
    bar.set_label("relative gap, log₁₀ (grey: rounding)")
    bar.outline.set_visible(False)
    return figure


def _draw_shape(axis: Any, cloud: np.ndarray, colour: str) -> None:
    """Lines from the centre to all atoms; nearer atoms are larger. Planar shapes are seen from above."""
    flat = flat_view(cloud - cloud[0])
    flat = flat - flat[0]
    size = np.abs(flat[:, :2]).max()
    depth = flat[:, 2] / (np.abs(flat[:, 2]).max() or 1.0)
    for x, y, _ in flat[1:]:
        axis.plot([0, x], [0, y], color=FAINT, linewidth=1.0, zorder=1)
    edge = {"edgecolor": INK, "lw": 0.5}
    axis.scatter(flat[1:, 0], flat[1:, 1], s=26 + 12 * depth[1:], color=colour, zorder=2, **edge)
    axis.scatter(0, 0, s=30, color="white", edgecolor=INK, lw=0.9, zorder=3)
    axis.set(xlim=(-1.2 * size, 1.2 * size), ylim=(-1.2 * size, 1.2 * size), aspect="equal")
    axis.axis("off")


def _draw_embedding(axis: Any, cell: Mapping[str, Any]) -> None:
    """Embeddings of both shapes as two rows of dots, accuracy, and the gap before standardising."""
    rng = np.random.default_rng(0)
    for values, colour, level in zip(cell["embedding"], COLOURS, (0.28, -0.28), strict=True):
        height = level + 0.12 * rng.uniform(-1, 1, len(values))
        axis.scatter(values, height, s=9, color=colour, alpha=0.75, linewidth=0)
    right, gap = 100 * np.mean(cell["accuracy"]), cell["gap_median"]
    text = f"{right:.0f} %, gap {f'{gap:.0e}' if gap > 1e-9 else '0'}"
    axis.text(0.5, 0.02, text, transform=axis.transAxes, ha="center", va="bottom", fontsize=6.5)
    axis.set(xlim=(-1.8, 1.8), ylim=(-0.95, 0.7), xticks=[], yticks=[])
    axis.axhline(0, color=FAINT, linewidth=0.4, zorder=0)
    axis.spines[:].set_color("#c9cdd3")
