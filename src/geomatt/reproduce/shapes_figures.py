"""Figures of the shape experiment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from geomatt.analysis.projection import flat_view
from geomatt.reproduce.drawing import FAINT, INK, PAIR, new_figure, save_figure, style

SHOWN = ("2body_dojo", "3body_fig1a_circle", "3body_fig1b_generic", "4body_nonchiral_milad")


def embedding_figure(result: Mapping[str, Any], models: Sequence[str], path: Path) -> Path:
    """For a few pairs: the two shapes, and where each model puts them."""
    with style():
        figure = new_figure(7.2, 1.25 * len(SHOWN) + 0.5)
        grid = figure.subplots(len(SHOWN), 2 + len(models), width_ratios=[1.25, 1.25] + [1.0] * len(models))
        for row, name in zip(grid, SHOWN, strict=True):
            pair = result["pairs"][name]
            for axis, side, colour in zip(row[:2], ("plus", "minus"), PAIR, strict=True):
                _draw_shape(axis, np.array(pair[side]), colour)
            row[0].set_title(f"same {pair['shared']}", loc="left", fontsize=8)
            for axis, model in zip(row[2:], models, strict=True):
                _draw_embedding(axis, pair["models"][model])
        for axis, model in zip(grid[0, 2:], models, strict=True):
            axis.set_title(model, fontsize=8)
        grid[0, 0].set_title(f"same {result['pairs'][SHOWN[0]]['shared']}", loc="left", fontsize=8)
        return save_figure(figure, path)


def gap_figure(result: Mapping[str, Any], models: Sequence[str], path: Path) -> Path:
    """All pairs against all models: the gap as a colour, the accuracy as a number."""
    import matplotlib

    names = list(result["pairs"])
    gaps = np.array([[result["pairs"][n]["models"][m]["gap_median"] for m in models] for n in names])
    with style():
        figure = new_figure(6.4, 0.29 * len(names) + 0.95)
        axis = figure.subplots()
        shown = np.ma.masked_less(np.log10(np.maximum(gaps, 1e-20)), -9.0)
        colours = matplotlib.colormaps["YlGnBu"].with_extremes(bad="#eceef1")
        image = axis.imshow(shown, cmap=colours, vmin=-5.0, vmax=0.0, aspect="auto")
        for i, name in enumerate(names):
            for j, model in enumerate(models):
                accuracy = 100 * np.mean(result["pairs"][name]["models"][model]["accuracy"])
                dark = not np.ma.is_masked(shown[i, j]) and shown[i, j] > -1.9
                axis.text(j, i, f"{accuracy:.0f}", ha="center", va="center", color="white" if dark else INK)
        axis.set_xticks(range(len(models)), models)
        axis.set_yticks(range(len(names)), names)
        axis.tick_params(length=0)
        axis.set_xticks(np.arange(len(models) - 1) + 0.5, minor=True)
        axis.set_yticks(np.arange(len(names) - 1) + 0.5, minor=True)
        axis.grid(which="minor", color="white", linewidth=1.5)
        axis.tick_params(which="minor", length=0)
        axis.spines[:].set_visible(False)
        bar = figure.colorbar(image, ax=axis, pad=0.02, shrink=0.8)
        bar.set_label("relative gap, log₁₀ (grey: rounding)")
        bar.outline.set_visible(False)
        return save_figure(figure, path)


def _draw_shape(axis: Any, cloud: np.ndarray, colour: str) -> None:
    """Spokes from the centre; nearer atoms are larger. Planar shapes are seen from above."""
    flat = flat_view(cloud - cloud[0])
    flat = flat - flat[0]
    size = np.abs(flat[:, :2]).max()
    depth = flat[:, 2] / (np.abs(flat[:, 2]).max() or 1.0)
    for x, y, _ in flat[1:]:
        axis.plot([0, x], [0, y], color=FAINT, linewidth=1.0, zorder=1)
    axis.scatter(
        flat[1:, 0], flat[1:, 1], s=26 + 12 * depth[1:], color=colour, edgecolor=INK, lw=0.5, zorder=2
    )
    axis.scatter(0, 0, s=30, color="white", edgecolor=INK, lw=0.9, zorder=3)
    axis.set(xlim=(-1.2 * size, 1.2 * size), ylim=(-1.2 * size, 1.2 * size), aspect="equal")
    axis.axis("off")


def _draw_embedding(axis: Any, cell: Mapping[str, Any]) -> None:
    """Both classes' embeddings as two rows of dots, and the accuracy."""
    rng = np.random.default_rng(0)
    for values, colour, level in zip(cell["embedding"], PAIR, (0.28, -0.28), strict=True):
        height = level + 0.12 * rng.uniform(-1, 1, len(values))
        axis.scatter(values, height, s=9, color=colour, alpha=0.75, linewidth=0)
    right = 100 * np.mean(cell["accuracy"])
    axis.text(0.5, 0.02, f"{right:.0f} %", transform=axis.transAxes, ha="center", va="bottom", fontsize=8)
    axis.set(xlim=(-1.8, 1.8), ylim=(-0.95, 0.7), xticks=[], yticks=[])
    axis.axhline(0, color=FAINT, linewidth=0.4, zorder=0)
    axis.spines[:].set_color("#c9cdd3")
