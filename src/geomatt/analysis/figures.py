"""Figures of attention: matrices with distances and bonds, and the molecule as a graph."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from geomatt.analysis.bonds import CONTROL, Pairs, bond_scores
from geomatt.analysis.projection import flat_rotation
from geomatt.data.bonds import bond_matrix, distances
from geomatt.data.structures import Structure
from geomatt.drawing import (
    FAINT,
    INK,
    colour_bar,
    figure_path,
    frame_cells,
    label_atoms,
    new_figure,
    save_figure,
    show_matrix,
    style,
)
from geomatt.elements import COVALENT_RADII, formula, symbols
from geomatt.errors import GeomAttError
from geomatt.model.interface import AttentionRecord

Records = Sequence[AttentionRecord[np.ndarray]]

FOUND, WRONG, MISSED = "#1b7f5c", "#d9782d", "#9aa0a8"
ATOM_FILL = {
    1: "#ffffff",
    6: "#3c4048",
    7: "#4a72d6",
    8: "#d64550",
    9: "#6cba74",
    15: "#e39a4c",
    16: "#e2bd3b",
    17: "#43b45c",
}
LIGHT_FILL = {1, 9, 16}  # elements with dark letters
SMALLEST_NUMBERED = 0.28  # Å, so that hydrogen atoms have room for their numbers
DPI = 200
SIGNED = "Row i, column j: the weight of atom j in what atom i takes up. Red adds, blue subtracts."
UNSIGNED = "Row i, column j: how strongly the network couples atoms i and j. These matrices have no sign."
PRECISION = (
    "AP: average precision, 1 if every covalent bond ranks before all other pairs by the size of attention;\n"
    "in brackets the AP of 1 / distance."
)
STRONGEST = (
    "Lines: as many of the strongest pairs (size of attention, mean of both directions) as there are bonds.\n"
    "Of every order the layer with the highest AP is shown, the one that ranks the bonds best; "
    "in brackets the AP of 1 / distance."
)


def attention_figure(records: Records, structure: Structure, path: str | os.PathLike[str]) -> Path:
    """Every attention matrix (orders down, layers across), with distances and covalent bonds.

    Each matrix is scaled by its largest off-diagonal magnitude; frames mark covalent bonds, and AP is the
    average precision with which the matrix ranks them, beside that of inverse distance. The suffix of `path`
    is png, pdf or svg.
    """
    target, streams = figure_path(path), _streams(records)
    layers = max(len(stream) for stream in streams)
    bonded = bond_matrix(structure)
    precision = _precision(records, structure)
    signed = any((record.matrix < 0).any() for record in records)
    rows = len(streams)
    columns = layers + (2 if rows == 1 else 1)  # the two references: beside one row, or in one column
    with style():
        size = 2.05 + 0.012 * len(structure)
        figure = new_figure(max(size * columns + 0.6, 6.0), size * 1.06 * rows + 1.4, DPI)
        axes = figure.subplots(rows, columns, squeeze=False)
        image: Any = None
        for stream, line in zip(streams, axes, strict=True):
            for record, axis in zip(stream, line, strict=False):
                image = _draw_attention(axis, record, structure, bonded, signed)
                axis.set_title(f"{_title(record)}\n{_precision_text(precision, record.label)}")
        beside = axes[:, layers:].ravel()
        _draw_references(figure, beside[0], beside[1], structure, bonded)
        for axis in axes.flat:
            axis.set_visible(bool(axis.images))
        label = r"attention / its largest size, $i \neq j$; frames: covalent bonds"
        colour_bar(figure, image, axes if rows == 1 else axes[:, :layers], label)
        figure.suptitle(_chemical(structure), fontsize=10)
        figure.supxlabel(f"{SIGNED if signed else UNSIGNED}\n{PRECISION}", fontsize=7, color=INK)
        return save_figure(figure, target)


def molecule_figure(records: Records, structure: Structure, path: str | os.PathLike[str]) -> Path:
    """The molecule as a graph: its covalent bonds, and the strongest attention of each order.

    As many pairs are drawn as there are bonds, from the layer of each order that ranks bonds best; the
    width of a line follows |α|, averaged over both directions. A pair with an image in another cell is two
    half lines that leave its atoms.
    """
    target, streams = figure_path(path), _streams(records)
    pairs, turn = Pairs.of(structure, records[0].images), flat_rotation(structure.positions)
    flat = (structure.positions - structure.positions.mean(0)) @ turn  # (N, 3), the last is the depth
    vectors, bonds = pairs.vector @ turn, np.flatnonzero(pairs.bonded)
    precision = _precision(records, structure)
    best = [max(stream, key=lambda record: precision[record.label] or 0.0) for stream in streams]
    extent = np.ptp(flat[:, :2], axis=0) + 1.2
    with style():
        width = max(2.75 * (len(best) + 1), 6.0)
        figure = new_figure(width, 2.75 * min(extent[1] / extent[0], 1.5) + 1.3, DPI)
        axes = figure.subplots(1, len(best) + 1, squeeze=False)[0]
        lines = [_lines(flat[i], flat[j], v) for i, j, v in zip(pairs.i, pairs.j, vectors, strict=True)]
        for p in bonds:
            axes[0].plot(*lines[p], color=FAINT, linewidth=4.0, solid_capstyle="round", zorder=1)
        axes[0].set_title(f"{len(bonds)} covalent bonds")
        for axis, record in zip(axes[1:], best, strict=True):
            found = _draw_strongest(axis, pairs.strength(record), pairs.bonded, lines)
            found_text = f"{found} of {len(bonds)} bonds found"
            axis.set_title(f"{_title(record)}\n{_precision_text(precision, record.label)}; {found_text}")
        for axis in axes:
            draw_atoms(axis, structure.numbers, flat, numbered=True)
        _legend(figure)
        return save_figure(figure, target)


def _draw_attention(
    axis: Any, record: AttentionRecord, structure: Structure, bonded: np.ndarray, signed: bool
) -> Any:
    matrix = record.matrix.astype(np.float64)
    beside = ~np.eye(len(matrix), dtype=bool)
    largest = np.abs(matrix[beside]).max(initial=0.0) or 1.0
    scale = ("RdBu_r", -1.0, 1.0) if signed else ("Reds", 0.0, 1.0)
    image = show_matrix(axis, matrix / largest, *scale)
    frame_cells(axis, np.argwhere(bonded), width=min(0.9, 14.0 / len(bonded)))
    label_atoms(axis, symbols(structure.numbers))
    return image


def _draw_references(figure: Any, above: Any, below: Any, structure: Structure, bonded: np.ndarray) -> None:
    image = show_matrix(above, distances(structure), "viridis_r")
    inset = above.inset_axes((1.04, 0.0, 0.05, 1.0))
    bar = figure.colorbar(image, cax=inset)
    bar.outline.set_linewidth(0.5)
    above.set_title("distance (Å)")
    show_matrix(below, bonded.astype(float), "Greys", 0.0, 1.25)
    below.set_title("covalent bonds")
    for axis in (above, below):
        label_atoms(axis, symbols(structure.numbers))


def _lines(start: np.ndarray, end: np.ndarray, vector: np.ndarray) -> np.ndarray:
    """The line between two atoms (2, points); to an image, half of it from either atom, with a gap."""
    if np.allclose(start + vector, end, atol=1e-6):
        return np.stack([start, end], 1)[:2]
    gap = np.full(3, np.nan)
    return np.stack([start, start + vector / 2, gap, end, end - vector / 2], 1)[:2]


def _draw_strongest(axis: Any, strength: np.ndarray, bonded: np.ndarray, lines: Sequence[np.ndarray]) -> int:
    """Draw as many of the strongest pairs as there are bonds; returns how many are bonds."""
    top = np.argsort(-strength, kind="stable")[: int(bonded.sum())]
    for p in top:
        width = 1.2 + 4.3 * strength[p] / (strength.max() or 1.0)
        colour = FOUND if bonded[p] else WRONG
        look = {"color": colour, "linewidth": width, "solid_capstyle": "round", "zorder": 2, "alpha": 0.9}
        axis.plot(*lines[p], **look)
    for p in np.setdiff1d(np.flatnonzero(bonded), top):
        axis.plot(*lines[p], color=MISSED, linewidth=1.2, linestyle=(0, (1.5, 1.5)), zorder=1)
    return int(bonded[top].sum())


def draw_atoms(axis: Any, numbers: np.ndarray, flat: np.ndarray, numbered: bool = False) -> None:
    """Atoms as discs with their symbols, from positions (N, 3) whose last coordinate is the depth.

    `numbered` adds the number of each atom, from 0, as in the labels of matrices.
    """
    from matplotlib.patches import Circle, PathPatch

    crowded = len(numbers) > 30
    for i in np.argsort(flat[:, 2]):
        z = int(numbers[i])
        radius = max(0.17 + 0.18 * COVALENT_RADII[z - 1], SMALLEST_NUMBERED if numbered else 0.0)
        fill = ATOM_FILL.get(z, "#8f6bb0")
        level = 3.0 + 1e-3 * flat[i, 2]  # nearer atoms cover those behind
        axis.add_patch(
            Circle(
                (flat[i, 0], flat[i, 1]), radius, facecolor=fill, edgecolor=INK, linewidth=0.8, zorder=level
            )
        )
        if not crowded:
            letters = _letters(f"{symbols([z])[0]}{i if numbered else ''}", flat[i, :2], radius)
            colour = INK if z in LIGHT_FILL else "white"
            axis.add_patch(PathPatch(letters, facecolor=colour, linewidth=0.0, zorder=level + 1e-5))
    low, high = flat[:, :2].min(0) - 0.6, flat[:, :2].max(0) + 0.6
    axis.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), aspect="equal")
    axis.axis("off")


def _letters(text: str, centre: np.ndarray, radius: float) -> Any:
    """The outline of a text in units of the data, so that it stays inside its disc at every scale."""
    from matplotlib.textpath import TextPath
    from matplotlib.transforms import Affine2D

    outline = TextPath((0.0, 0.0), text, size=1.0)
    box = outline.get_extents()
    size = min(0.84 * radius / (0.5 * float(np.hypot(box.width, box.height))), 0.95 * radius)
    middle = (box.x0 + box.x1) / 2, (box.y0 + box.y1) / 2
    return Affine2D().translate(-middle[0], -middle[1]).scale(size).translate(*centre).transform_path(outline)


def _legend(figure: Any) -> None:
    from matplotlib.lines import Line2D

    lines = [
        Line2D([], [], color=FOUND, linewidth=3, label="strong attention, a bond"),
        Line2D([], [], color=WRONG, linewidth=3, label="strong attention, no bond"),
        Line2D([], [], color=MISSED, linewidth=1.2, linestyle=(0, (1.5, 1.5)), label="a bond missed"),
    ]
    figure.legend(handles=lines, loc="outside lower center", ncols=3, frameon=False, fontsize=8,
                  title=STRONGEST, title_fontsize=7)  # fmt: skip


def _title(record: AttentionRecord) -> str:
    head = f", head {record.head + 1}" if record.head else ""
    return record.name or f"order {record.order}, layer {record.layer + 1}{head}"


def _precision(records: Records, structure: Structure) -> dict[str, float | None]:
    """Average precision for bonds of every record, by its label."""
    return {score.label: score.average_precision for score in bond_scores(records, structure)}


def _precision_text(precision: Mapping[str, float | None], label: str) -> str:
    """The precision of a record, with that of inverse distance."""
    own, control = precision[label], precision[CONTROL]
    return "no bonds" if own is None or control is None else f"AP {own:.2f} (1/d {control:.2f})"


def _chemical(structure: Structure) -> str:
    """The formula with subscripts."""
    return re.sub(r"(\d+)", r"$_{\1}$", formula(structure.numbers))


def _streams(records: Records) -> list[list[AttentionRecord]]:
    """Records by stream (order and head), each in the order of its layers."""
    if not records:
        raise GeomAttError("There is no attention to draw.")
    streams: dict[tuple[int, int], list[AttentionRecord]] = {}
    for record in records:
        streams.setdefault((record.order, record.head), []).append(record)
    return [sorted(stream, key=lambda r: r.layer) for stream in streams.values()]
