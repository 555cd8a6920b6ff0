"""Attention matrices of the C-G dimer: all 58 atoms, and the 29 of one base pair."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from geomatt.reproduce.dna_attention import CONTROL, GUANINE, HYDROGEN_BONDS, KINDS, PAIR, decode
from geomatt.reproduce.drawing import FAINT, INK, SERIES, new_figure, save_figure, style
from geomatt.reproduce.frame import Figure


def draw(value: Mapping[str, Any], folder: Path) -> list[Figure]:
    """The matrices of the dimer and of the pair, and precision by layer."""
    whole = _matrices(value, 2 * PAIR, folder / "dna-dimer.png")
    pair = _matrices(value, PAIR, folder / "dna-pair.png")
    bars = _precision(value, folder / "dna-precision.png")
    marks = "Small frames: covalent bonds; circles: hydrogen bonds."
    return [
        Figure(
            whole, f"|α| of both base pairs (58 × 58), mean over test frames, each to its largest. {marks}"
        ),
        Figure(pair, f"The first base pair (29 × 29): guanine, then cytosine. {marks}"),
        Figure(bars, "Average precision of |α| for covalent and hydrogen bonds, by order and layer."),
    ]


def _matrices(value: Mapping[str, Any], atoms: int, path: Path) -> Path:
    names = [*(name for name in value["matrices"] if name != CONTROL), CONTROL]
    columns = 5 if len(names) > 6 else max(2, len(names))
    rows = -(-len(names) // columns)
    bonds = [(i, j) for i, j in value["bonds"] if max(i, j) < atoms]
    with style():
        figure = new_figure(2.3 * columns, 2.45 * rows)
        axes = figure.subplots(rows, columns, squeeze=False).ravel()
        for axis, name in zip(axes, names, strict=False):
            matrix = decode(value["matrices"][name])[:atoms, :atoms]
            axis.imshow(matrix, cmap="Greys", vmin=0.0, vmax=float(matrix.max()) or 1.0)
            _mark(axis, atoms, bonds)
            axis.set_title(name)
        for axis in axes[len(names) :]:
            axis.set_visible(False)
        return save_figure(figure, path)


def _mark(axis: Any, atoms: int, bonds: list[tuple[int, int]]) -> None:
    """Frames on covalent bonds above the diagonal, circles on hydrogen bonds on both sides of it."""
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import Rectangle

    cells = [Rectangle((max(b) - 0.5, min(b) - 0.5), 1, 1) for b in bonds]
    width = 0.6 if atoms <= PAIR else 0.35
    axis.add_collection(PatchCollection(cells, facecolor="none", edgecolor=SERIES[0], linewidth=width))
    for start in range(0, atoms, PAIR):
        for i, j in HYDROGEN_BONDS:
            for x, y in ((i, j), (j, i)):
                axis.plot(
                    start + x, start + y, "o", markersize=5 if atoms <= PAIR else 3.5,
                    markerfacecolor="none", markeredgecolor=SERIES[1], markeredgewidth=0.8,
                )  # fmt: skip
        for edge in (start, start + GUANINE):
            if edge:
                axis.axhline(edge - 0.5, color=FAINT, linewidth=0.4)
                axis.axvline(edge - 0.5, color=FAINT, linewidth=0.4)
    ticks = [s + offset for s in range(0, atoms, PAIR) for offset in (GUANINE / 2, (GUANINE + PAIR) / 2)]
    axis.set_xticks(ticks, ["G", "C"] * (atoms // PAIR))
    axis.set_yticks(ticks, ["G", "C"] * (atoms // PAIR))
    axis.tick_params(length=0)


def _precision(value: Mapping[str, Any], path: Path) -> Path:
    names = [name for name in value["precision"] if name != CONTROL]
    places = np.arange(len(names))
    with style():
        figure = new_figure(7.2, 2.6)
        axis = figure.subplots()
        for number, (kind, words) in enumerate(KINDS.items()):
            means = [value["precision"][name][kind][0] for name in names]
            axis.bar(places + 0.27 * (number - 1), means, 0.25, color=SERIES[number], label=words)
            control = value["precision"][CONTROL][kind][0]
            axis.axhline(control, color=SERIES[number], linewidth=0.8, linestyle=(0, (3, 2)))
        axis.set_xticks(places, names, rotation=30, ha="right")
        axis.set_ylabel("average precision")
        axis.set_ylim(0.0, 1.05)
        axis.spines[["top", "right"]].set_visible(False)
        axis.text(1.0, 1.02, "dashed: 1 / distance", transform=axis.transAxes, ha="right", color=INK)
        figure.legend(loc="outside lower center", ncols=3)
        return save_figure(figure, path)
