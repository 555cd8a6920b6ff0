"""Figures of attention and bonds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from geomatt.drawing import FAINT, INK, SERIES, colour_bar, frame_cells, label_atoms, new_figure, show_matrix

BOND = "#00b7eb"  # seen on light and on dark cells
SCALE = "|α|, or 1 / distance, divided by its largest value"


def matrices_figure(name: str, item: Mapping[str, Any]) -> Any:
    """|α| with orders down and layers across, then 1 / distance and bonds."""
    shown = sorted({row["order"] for row in item["rows"]})
    if len(shown) == 1:
        return transfer_figure({name: item}, shown[0])
    layers = max(row["layer"] for row in item["rows"])
    figure = new_figure(1.85 * (layers + 1), 2.05 * len(shown) + 0.75)
    axes = figure.subplots(len(shown), layers + 1, squeeze=False)
    for i, row in enumerate(item["rows"]):
        image = _draw_attention(axes[shown.index(row["order"]), row["layer"] - 1], item, i)
    _draw_references(axes[0, layers], axes[1, layers], item)
    for (_, column), axis in np.ndenumerate(axes):
        axis.set_visible(bool(axis.images))
        label_atoms(axis, item["symbols"], rows=column == 0)
    colour_bar(figure, image, axes, SCALE)
    figure.suptitle(name.replace("_", " "), fontsize=9)
    return figure


def transfer_figure(items: Mapping[str, Mapping[str, Any]], order: int = 2) -> Any:
    """|α| of one order by the same model, a row for each molecule, with 1 / distance and bonds."""
    layers = max(row["layer"] for item in items.values() for row in item["rows"])
    figure = new_figure(1.85 * (layers + 2), 2.15 * len(items) + 0.75)
    axes = figure.subplots(len(items), layers + 2, squeeze=False)
    for line, (name, item) in zip(axes, items.items(), strict=True):
        for i, row in enumerate(item["rows"]):
            if row["order"] == order:
                image = _draw_attention(line[row["layer"] - 1], item, i)
        _draw_references(line[-2], line[-1], item)
        for column, axis in enumerate(line):
            label_atoms(axis, item["symbols"], rows=column == 0)
        line[0].set_ylabel(name.replace("_", " "), fontsize=9)
    colour_bar(figure, image, axes, SCALE)
    return figure


def _draw_attention(axis: Any, item: Mapping[str, Any], i: int) -> Any:
    """One attention matrix, scaled, with its precision."""
    row = item["rows"][i]
    title = f"k = {row['order']}, layer {row['layer']}   AP {row['ap']:.2f}"
    return _panel(axis, item, np.array(item["matrices"][i]), title)


def _draw_references(near: Any, known: Any, item: Mapping[str, Any]) -> None:
    """1 / distance and the covalent bonds."""
    ap = item["controls"]["1 / distance"]["ap"]
    closeness = 1.0 / (_distances(item) + 1e9 * np.eye(len(item["symbols"])))
    _panel(near, item, closeness / closeness.max(), f"1 / distance   AP {ap:.2f}")
    bonded = np.zeros((len(item["symbols"]),) * 2)
    bonded[tuple(_cells(item).T)] = 1.0
    known.set_title("covalent bonds", fontsize=7.5)
    show_matrix(known, bonded, "Greys", 0.0, 1.2)


def _panel(axis: Any, item: Mapping[str, Any], matrix: np.ndarray, title: str) -> Any:
    axis.set_title(title, fontsize=7.5)
    image = show_matrix(axis, matrix, "magma_r", 0.0, 1.0)
    frame_cells(axis, _cells(item), BOND)
    return image


def _cells(item: Mapping[str, Any]) -> np.ndarray:
    """The cells of a matrix that are bonds, in both directions."""
    pairs = np.array(item["bonded"])
    return np.vstack([pairs, pairs[:, ::-1]])


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
