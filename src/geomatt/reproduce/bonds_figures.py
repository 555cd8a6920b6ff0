"""Figures of attention and bonds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from geomatt.drawing import FAINT, INK, SERIES, colour_bar, frame_cells, label_atoms, new_figure, show_matrix

BOND = "#00b7eb"  # seen on light and on dark cells


def matrices_figure(name: str, item: Mapping[str, Any], orders: Sequence[int] | None) -> Any:
    """|α| with orders down and layers across, then 1 / distance and bonds; only `orders` if given."""
    chosen = [i for i, row in enumerate(item["rows"]) if orders is None or row["order"] in orders]
    shown = sorted({item["rows"][i]["order"] for i in chosen})
    layers = max(item["rows"][i]["layer"] for i in chosen)
    alone = len(shown) == 1  # one row: both references beside it
    columns = layers + (2 if alone else 1)
    figure = new_figure(1.85 * columns, 2.05 * len(shown) + (1.1 if alone else 0.75))
    axes = figure.subplots(len(shown), columns, squeeze=False)
    pairs = np.array(item["bonded"])
    cells = np.vstack([pairs, pairs[:, ::-1]])
    bonded = np.zeros((len(item["symbols"]),) * 2)
    bonded[tuple(cells.T)] = 1.0

    def panel(axis: Any, matrix: np.ndarray, title: str, colours: str = "magma_r", high: float = 1.0) -> Any:
        axis.set_title(title, fontsize=7.5)
        return show_matrix(axis, matrix, colours, 0.0, high)

    for i in chosen:
        row = item["rows"][i]
        axis = axes[shown.index(row["order"]), row["layer"] - 1]
        title = f"k = {row['order']}, layer {row['layer']}   AP {row['ap']:.2f}"
        image = panel(axis, np.array(item["matrices"][i]), title)
        frame_cells(axis, cells, BOND)
    near, known = axes[0, layers], axes[0, layers + 1] if alone else axes[1, layers]
    ap = item["controls"]["1 / distance"]["ap"]
    closeness = 1.0 / (_distances(item) + 1e9 * np.eye(len(bonded)))
    panel(near, closeness / closeness.max(), f"1 / distance   AP {ap:.2f}")
    frame_cells(near, cells, BOND)
    panel(known, bonded, "covalent bonds", "Greys", 1.2)
    for (_, column), axis in np.ndenumerate(axes):
        axis.set_visible(bool(axis.images))
        label_atoms(axis, item["symbols"], rows=column == 0)
    colour_bar(figure, image, axes, "|α|, or 1 / distance, divided by its largest value")
    figure.suptitle(name.replace("_", " "), fontsize=9)
    return figure


def curves_figure(items: Mapping[str, Any]) -> Any:
    """α^(2)(d) of every molecule's model, with the distances that occur."""
    columns = min(4, len(items))
    rows = -(-len(items) // columns)
    figure = new_figure(2.3 * columns + 0.9, 1.9 * rows + 0.35)
    axes = figure.subplots(rows, columns, squeeze=False)
    for axis, (name, item) in zip(axes.ravel(), items.items(), strict=False):
        d = np.array(item["curves"]["distance"])
        seen = d >= 0.8  # there are no closer atoms in the data
        for layer, (alpha, colour) in enumerate(zip(item["curves"]["alpha"], SERIES, strict=False), 1):
            axis.plot(d[seen], np.array(alpha)[seen], color=colour, lw=1.1, label=f"layer {layer}")
        _mark_distances(axis, item)
        axis.axhline(0, color=FAINT, lw=0.5, zorder=0)
        axis.set(title=name.replace("_", " "), xlim=(0.8, 6.0))
        axis.spines[["top", "right"]].set_visible(False)
    for axis in axes.ravel()[len(items) :]:
        axis.set_visible(False)
    for axis in axes[-1]:
        axis.set_xlabel("distance (Å)")
    for row in axes:
        row[0].set_ylabel("$\\alpha^{(2)}$")
    axes[0, 0].legend(fontsize=6.5)
    return figure


def _distances(item: Mapping[str, Any]) -> np.ndarray:
    positions = np.array(item["positions"])
    result: np.ndarray = np.linalg.norm(positions[:, None] - positions, axis=-1)
    return result


def _mark_distances(axis: Any, item: Mapping[str, Any]) -> None:
    """Ticks at the bottom at the distances of all pairs, longer and darker for bonds."""
    distance = _distances(item)
    bonds = {tuple(pair) for pair in item["bonded"]}
    for pair in zip(*np.triu_indices(len(distance), 1), strict=True):
        height, colour, alpha = (0.09, INK, 1.0) if pair in bonds else (0.05, FAINT, 0.5)
        axis.axvline(distance[pair], ymax=height, color=colour, lw=0.8, alpha=alpha)
