"""Figures of attention against bonds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from geomatt.reproduce.drawing import FAINT, INK, SERIES, new_figure, save_figure, style


def matrices_figure(name: str, item: Mapping[str, Any], path: Path, orders: Sequence[int] | None) -> Path:
    """Symmetrised |α|, orders down and layers across, then distances and bonds; `orders`: only these."""
    chosen = [i for i, row in enumerate(item["rows"]) if orders is None or row["order"] in orders]
    shown = sorted({item["rows"][i]["order"] for i in chosen})
    layers = max(item["rows"][i]["layer"] for i in chosen)
    alone = len(shown) == 1
    count = len(item["symbols"])
    with style():
        figure = new_figure(1.85 * (layers + (2 if alone else 1)), 2.0 * len(shown) + 0.3)
        axes = figure.subplots(len(shown), layers + (2 if alone else 1), squeeze=False)
        bonded = np.zeros((count, count), dtype=bool)
        for i, j in item["bonded"]:
            bonded[i, j] = bonded[j, i] = True
        for i in chosen:
            row = item["rows"][i]
            axis = axes[shown.index(row["order"]), row["layer"] - 1]
            axis.imshow(_off(np.array(item["matrices"][i])), cmap=_map("magma_r"), vmin=0, vmax=1)
            _frames(axis, bonded)
            axis.set_title(f"k = {row['order']}, layer {row['layer']}   AP {row['ap']:.2f}", fontsize=7.5)
        positions = np.array(item["positions"])
        distance = np.linalg.norm(positions[:, None] - positions, axis=-1)
        references = [axes[0, layers], axes[0, layers + 1] if alone else axes[1, layers]]
        references[0].imshow(_off(1.0 / (distance + np.eye(count))), cmap=_map("magma_r"), vmin=0)
        _frames(references[0], bonded)
        ap = item["controls"]["1 / distance"]["ap"]
        references[0].set_title(f"1 / distance   AP {ap:.2f}", fontsize=7.5)
        references[1].imshow(_off(bonded.astype(float)), cmap=_map("Greys"), vmin=0, vmax=1.2)
        references[1].set_title("covalent bonds", fontsize=7.5)
        for (_, column), axis in np.ndenumerate(axes):
            axis.set_visible(bool(axis.images))
            _ticks(axis, item["symbols"], rows=column == 0)
        figure.suptitle(name.replace("_", " "), fontsize=9)
        return save_figure(figure, path)


def curves_figure(items: Mapping[str, Any], path: Path) -> Path:
    """α^(2)(d) of every molecule's model, above the distances that occur."""
    columns = min(4, len(items))
    rows = -(-len(items) // columns)
    with style():
        figure = new_figure(2.3 * columns + 0.9, 1.9 * rows + 0.35)
        axes = figure.subplots(rows, columns, squeeze=False)
        for axis, (name, item) in zip(axes.ravel(), items.items(), strict=False):
            d = np.array(item["curves"]["distance"])
            seen = d >= 0.8  # atoms come no closer: what the curve does there was never trained
            for layer, (alpha, colour) in enumerate(zip(item["curves"]["alpha"], SERIES, strict=False), 1):
                axis.plot(d[seen], np.array(alpha)[seen], color=colour, lw=1.1, label=f"layer {layer}")
            _distances(axis, item)
            axis.axhline(0, color=FAINT, lw=0.5, zorder=0)
            axis.set_title(name.replace("_", " "))
            axis.set_xlim(0.8, 6.0)
            axis.spines[["top", "right"]].set_visible(False)
        for axis in axes.ravel()[len(items) :]:
            axis.set_visible(False)
        for axis in axes[-1]:
            axis.set_xlabel("distance (Å)")
        for row in axes:
            row[0].set_ylabel("$\\alpha^{(2)}$")
        axes[0, 0].legend(fontsize=6.5)
        return save_figure(figure, path)


def _distances(axis: Any, item: Mapping[str, Any]) -> None:
    """Short bars at the bottom where pairs of atoms are."""
    positions = np.array(item["positions"])
    distance = np.linalg.norm(positions[:, None] - positions, axis=-1)
    bonds = {tuple(pair) for pair in item["bonded"]}
    for i, j in zip(*np.triu_indices(len(positions), 1), strict=True):
        is_bond = (i, j) in bonds
        axis.axvline(
            distance[i, j],
            ymax=0.09 if is_bond else 0.05,
            color=INK if is_bond else FAINT,
            lw=0.8,
            alpha=1.0 if is_bond else 0.5,
        )


def _off(matrix: np.ndarray) -> Any:
    return np.ma.masked_array(matrix, np.eye(len(matrix), dtype=bool))


def _map(name: str) -> Any:
    import matplotlib

    return matplotlib.colormaps[name].with_extremes(bad="#eceef1")


def _frames(axis: Any, bonded: np.ndarray) -> None:
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import Rectangle

    cells = [Rectangle((j - 0.5, i - 0.5), 1, 1) for i, j in np.argwhere(bonded)]
    axis.add_collection(PatchCollection(cells, facecolor="none", edgecolor="#1b9fd6", linewidth=0.6))


def _ticks(axis: Any, names: Sequence[str], rows: bool) -> None:
    """Element symbols below, and at the left of the first column."""
    size = 6 if len(names) <= 12 else 4
    axis.set_xticks(range(len(names)), names, fontsize=size)
    axis.set_yticks(range(len(names)), names if rows else [""] * len(names), fontsize=size)
    axis.tick_params(length=0, pad=1.5)
