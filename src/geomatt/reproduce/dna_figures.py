"""Attention matrices of the C-G dimer: all 58 atoms, and the 29 of one base pair."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from geomatt.analysis import FAINT, INK, SERIES, frame_cells, new_figure
from geomatt.reproduce.dna_attention import CONTROL, GUANINE, HYDROGEN_BONDS, KINDS, PAIR, decode
from geomatt.reproduce.frame import Drawing


def drawings(value: Mapping[str, Any]) -> list[Drawing]:
    """The matrices of the dimer and of one pair, and precision by layer."""
    marks = "Small frames: covalent bonds; circles: hydrogen bonds."
    return [
        Drawing(
            "dna-dimer",
            f"|α| of both base pairs (58 × 58), mean over {value['frames']} test frames, each divided by its "
            f"largest entry. {marks}",
            lambda: _matrices(value, 2 * PAIR),
        ),
        Drawing(
            "dna-pair",
            f"The first base pair (29 × 29): guanine, then cytosine. {marks}",
            lambda: _matrices(value, PAIR),
        ),
        Drawing(
            "dna-precision",
            "Average precision of |α| for covalent and hydrogen bonds, by order and layer.",
            lambda: _precision(value),
        ),
    ]


def _matrices(value: Mapping[str, Any], atoms: int) -> Any:
    names = [*(name for name in value["matrices"] if name != CONTROL), CONTROL]
    columns = 5 if len(names) > 6 else max(2, len(names))
    rows = -(-len(names) // columns)
    bonds = [(min(b), max(b)) for b in value["bonds"] if max(b) < atoms]
    figure = new_figure(2.3 * columns, 2.45 * rows)
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for axis, name in zip(axes, names, strict=False):
        matrix = decode(value["matrices"][name])[:atoms, :atoms]
        axis.imshow(matrix, cmap="Greys", vmin=0.0, vmax=float(matrix.max()) or 1.0)
        frame_cells(axis, bonds, SERIES[0], 0.6 if atoms <= PAIR else 0.35)
        _mark(axis, atoms)
        axis.set_title(name)
    for axis in axes[len(names) :]:
        axis.set_visible(False)
    return figure


def _mark(axis: Any, atoms: int) -> None:
    """Circles on hydrogen bonds, lines between the bases, and their names."""
    starts = np.arange(0, atoms, PAIR)
    h, acceptor = np.array(HYDROGEN_BONDS).T
    x, y = (starts[:, None] + np.concatenate(both) for both in ((h, acceptor), (acceptor, h)))
    size = 25 if atoms <= PAIR else 12
    axis.scatter(x, y, s=size, facecolors="none", edgecolors=SERIES[1], linewidths=0.8)
    for edge in [e for start in starts for e in (start, start + GUANINE) if e]:
        axis.axhline(edge - 0.5, color=FAINT, linewidth=0.4)
        axis.axvline(edge - 0.5, color=FAINT, linewidth=0.4)
    ticks = [start + offset for start in starts for offset in (GUANINE / 2, (GUANINE + PAIR) / 2)]
    for set_ticks in (axis.set_xticks, axis.set_yticks):
        set_ticks(ticks, ["G", "C"] * len(starts))
    axis.tick_params(length=0)


def _precision(value: Mapping[str, Any]) -> Any:
    names = [name for name in value["precision"] if name != CONTROL]
    places = np.arange(len(names))
    figure = new_figure(7.2, 2.6)
    axis = figure.subplots()
    for number, (kind, words) in enumerate(KINDS.items()):
        means = [value["precision"][name][kind][0] for name in names]
        axis.bar(places + 0.27 * (number - 1), means, 0.25, color=SERIES[number], label=words)
        control = value["precision"][CONTROL][kind][0]
        axis.axhline(control, color=SERIES[number], linewidth=0.8, linestyle=(0, (3, 2)))
    axis.set_xticks(places, names, rotation=30, ha="right")
    axis.set(ylabel="average precision", ylim=(0.0, 1.05))
    axis.spines[["top", "right"]].set_visible(False)
    axis.text(1.0, 1.02, "dashed: 1 / distance", transform=axis.transAxes, ha="right", color=INK)
    figure.legend(loc="outside lower center", ncols=3)
    return figure
