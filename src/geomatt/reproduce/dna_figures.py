"""Attention of the C-G dimer as matrices (58 atoms, and the 29 of one pair), as graphs, and its precision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from geomatt.analysis import draw_atoms, flat_view
from geomatt.drawing import FAINT, INK, SERIES, colour_bar, frame_cells, label_atoms, new_figure
from geomatt.elements import symbols
from geomatt.reproduce.dna_attention import CONTROL, GUANINE, HYDROGEN_BONDS, KINDS, PAIR, decode, strongest
from geomatt.reproduce.frame import Drawing

BOND, BRIDGE = "#00b7eb", SERIES[1]  # covalent and hydrogen bonds
LINES = 36  # pairs drawn in a graph


def drawings(models: Mapping[str, Mapping[str, Any]], controls: Mapping[str, Any]) -> list[Drawing]:
    """Figures of the models trained on random frames, by recipe."""
    marks = "blue frames: covalent bonds, orange circles: hydrogen bonds"
    found = []
    for recipe, value in models.items():
        for name, atoms, words in (
            ("dimer", 2 * PAIR, "both base pairs (58 × 58)"),
            ("pair", PAIR, "the first base pair (29 × 29; guanine, then cytosine)"),
        ):
            caption = (
                f"|α| of {words}, {recipe} recipe, mean over {value['frames']} test frames, each matrix "
                f"divided by its largest entry; {marks}. AP: average precision for covalent and for hydrogen "
                "bonds among all pairs of the dimer."
            )
            found.append(
                Drawing(
                    f"dna-{name}-{recipe}",
                    caption,
                    partial(_matrices, value, symbols(controls["numbers"])[:atoms]),
                )
            )
    graphs = (
        f"The {LINES} pairs with the largest |α| in the first base pair, of the matrix that finds covalent "
        "bonds best (left) and of the one that finds hydrogen bonds best among all pairs (right). Blue: "
        "covalent bonds; orange: hydrogen bonds; grey: others; dotted: hydrogen bonds not among them. Wider "
        "lines: larger |α|. AP: average precision, in brackets that of 1 / distance."
    )
    precision = (
        "Average precision of |α| by order and layer, ± standard deviation over frames. Dashed: 1 / "
        "distance; dash-dotted: the largest of the untrained networks; dotted: guessing."
    )
    return [
        *found,
        Drawing("dna-graphs", graphs, lambda: _graphs(models, controls)),
        Drawing("dna-precision", precision, lambda: _precision(models, controls)),
    ]


def _matrices(value: Mapping[str, Any], elements: Sequence[str]) -> Any:
    atoms = len(elements)
    names = [*(name for name in value["matrices"] if name != CONTROL), CONTROL]
    columns = 5 if len(names) > 6 else max(2, len(names))
    rows = -(-len(names) // columns)
    bonds = [(min(b), max(b)) for b in value["bonds"] if max(b) < atoms]
    figure = new_figure(2.3 * columns, 2.5 * rows + 0.7)
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for axis, name in zip(axes, names, strict=False):
        matrix = decode(value["matrices"][name])[:atoms, :atoms]
        image = axis.imshow(matrix / (matrix.max() or 1.0), cmap="Greys", vmin=0.0, vmax=1.0)
        frame_cells(axis, bonds, BOND, 0.7 if atoms <= PAIR else 0.4, halo=False)
        _mark(axis, atoms)
        found = value["precision"][name]
        if atoms <= PAIR:
            label_atoms(axis, elements)
        ap = ", ".join(f"{found[kind][0]:.2f}" for kind in ("covalent", "hydrogen"))
        axis.set_title(f"{name.removesuffix(' (control)')}   AP {ap}", fontsize=7)
    for axis in axes[len(names) :]:
        axis.set_visible(False)
    colour_bar(figure, image, axes, "|α|, or 1 / distance, divided by its largest value")
    return figure


def _mark(axis: Any, atoms: int) -> None:
    """Circles on hydrogen bonds, lines between the bases, and their names."""
    starts = np.arange(0, atoms, PAIR)
    h, acceptor = np.array(HYDROGEN_BONDS).T
    x, y = (starts[:, None] + np.concatenate(both) for both in ((h, acceptor), (acceptor, h)))
    size = 25 if atoms <= PAIR else 12
    axis.scatter(x, y, s=size, facecolors="none", edgecolors=BRIDGE, linewidths=0.8)
    for edge in [e for start in starts for e in (start, start + GUANINE) if e]:
        axis.axhline(edge - 0.5, color=FAINT, linewidth=0.4)
        axis.axvline(edge - 0.5, color=FAINT, linewidth=0.4)
    ticks = [start + offset for start in starts for offset in (GUANINE / 2, (GUANINE + PAIR) / 2)]
    for set_ticks in (axis.set_xticks, axis.set_yticks):
        set_ticks(ticks, ["G", "C"] * len(starts))
    axis.tick_params(length=0)


def _graphs(models: Mapping[str, Any], controls: Mapping[str, Any]) -> Any:
    figure = new_figure(8.0, 2.7 * len(models))
    axes = figure.subplots(len(models), 2, squeeze=False)
    flat = flat_view(np.array(controls["positions"])[:PAIR])
    bridges = {(min(b), max(b)) for b in HYDROGEN_BONDS}
    upper = np.triu_indices(PAIR, 1)
    for row, (recipe, value) in zip(axes, models.items(), strict=True):
        bonds = {(min(b), max(b)) for b in value["bonds"]}
        for axis, kind in zip(row, ("covalent", "hydrogen"), strict=True):
            label, precision = strongest(value["precision"], kind)
            strength = decode(value["matrices"][label])[:PAIR, :PAIR][upper]
            top = np.argsort(-strength, kind="stable")[:LINES]
            drawn = {(int(upper[0][p]), int(upper[1][p])): strength[p] / strength.max() for p in top}
            for pair, width in drawn.items():
                colour = BOND if pair in bonds else BRIDGE if pair in bridges else FAINT
                axis.plot(*flat[list(pair), :2].T, color=colour, lw=0.6 + 3.4 * width, zorder=1)
            for pair in bridges - set(drawn):
                axis.plot(*flat[list(pair), :2].T, color=BRIDGE, lw=1.0, ls=":", zorder=0)
            draw_atoms(axis, np.array(controls["numbers"])[:PAIR], flat, numbered=True)
            near = value["precision"][CONTROL][kind][0]
            score = f"{kind} bonds: AP {precision:.2f} (1/d {near:.2f})"
            axis.set_title(f"{recipe} recipe, {label}\n{score}")
    return figure


def _precision(models: Mapping[str, Any], controls: Mapping[str, Any]) -> Any:
    from matplotlib.lines import Line2D

    names_of = {
        (0, (3, 2)): CONTROL.removesuffix(" (control)"),
        "-.": "best untrained network",
        ":": "guessing",
    }
    figure = new_figure(7.2, 2.2 * len(models) + 0.6)
    axes = figure.subplots(len(models), 1, squeeze=False, sharex=True)[:, 0]
    for axis, (recipe, value) in zip(axes, models.items(), strict=True):
        names = [name for name in value["precision"] if name != CONTROL]
        places = np.arange(len(names))
        for number, (kind, words) in enumerate(KINDS.items()):
            means, errors = zip(*(value["precision"][name][kind] for name in names), strict=True)
            look = {"color": SERIES[number], "ecolor": INK, "error_kw": {"elinewidth": 0.6}}
            axis.bar(places + 0.27 * (number - 1), means, 0.25, yerr=errors, label=words, **look)
            lines = {
                (0, (3, 2)): value["precision"][CONTROL][kind][0],
                "-.": max(controls["untrained"][kind]),
                ":": value["chance"][kind],
            }
            for dashes, height in lines.items():
                axis.axhline(height, color=SERIES[number], linewidth=0.8, linestyle=dashes)
        axis.set_xticks(places, names, rotation=30, ha="right")
        axis.set(ylabel="average precision", ylim=(0.0, 1.05), title=f"{recipe} recipe")
        axis.spines[["top", "right"]].set_visible(False)
    handles, labels = axes[0].get_legend_handles_labels()
    handles += [Line2D([], [], color=INK, lw=0.8, ls=dashes) for dashes in names_of]
    labels += list(names_of.values())
    # Filled column by column: the kinds of bonds above, the controls below.
    order = [i for pair in zip(range(len(KINDS)), range(len(KINDS), len(labels)), strict=True) for i in pair]
    figure.legend(
        [handles[i] for i in order], [labels[i] for i in order], loc="outside lower center", ncols=3
    )
    return figure
