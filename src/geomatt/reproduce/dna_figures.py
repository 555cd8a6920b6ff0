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


def drawings(
    models: Mapping[str, Mapping[str, Any]],
    controls: Mapping[str, Any],
    before: Mapping[str, Mapping[str, float]],
) -> list[Drawing]:
    """Figures of the models trained on random frames, by recipe; `before`: the scores before training."""
    marks = "blue frames: covalent bonds, orange circles: hydrogen bonds; G: guanine, C: cytosine"
    found = []
    for recipe, value in models.items():
        for name, atoms, words in (
            ("dimer", 2 * PAIR, "both base pairs (58 × 58, every second atom named)"),
            ("pair", PAIR, "the first base pair (29 × 29)"),
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
    known = ", one of which is the network that training began with" if any(before.values()) else ""
    precision = (
        "Average precision of |α| by order and layer, and, hatched, that of the controls: two functions of "
        f"the distance, and the best matrix of untrained networks{known}. "
        "Black lines: ± standard deviation over frames. Dotted: guessing."
    )
    return [
        *found,
        Drawing("dna-graphs", graphs, lambda: _graphs(models, controls)),
        Drawing("dna-precision", precision, lambda: _precision(models, controls, before)),
    ]


def _matrices(value: Mapping[str, Any], elements: Sequence[str]) -> Any:
    atoms = len(elements)
    names = [*(name for name in value["matrices"] if name != CONTROL), CONTROL]
    columns = 5 if len(names) > 6 else max(2, len(names))
    rows = -(-len(names) // columns)
    bonds = [cell for i, j in value["bonds"] if max(i, j) < atoms for cell in ((i, j), (j, i))]
    figure = new_figure(2.3 * columns, 2.6 * rows + 0.7)
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for axis, name in zip(axes, names, strict=False):
        matrix = decode(value["matrices"][name])[:atoms, :atoms]
        image = axis.imshow(matrix / (matrix.max() or 1.0), cmap="Greys", vmin=0.0, vmax=1.0)
        frame_cells(axis, bonds, BOND, 0.7 if atoms <= PAIR else 0.4, halo=False)
        _mark(axis, atoms)
        found = value["precision"][name]
        label_atoms(axis, elements)
        ap = ", ".join(f"{found[kind][0]:.2f}" for kind in ("covalent", "hydrogen"))
        axis.set_title(f"{name.removesuffix(' (control)')}   AP {ap}", fontsize=7, pad=10)
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
    axis.scatter(x, y, s=size, facecolors="none", edgecolors=BRIDGE, linewidths=0.8, clip_on=False)
    edges = [0, *(int(start) + offset for start in starts for offset in (GUANINE, PAIR))]
    for edge in edges[1:-1]:
        axis.axhline(edge - 0.5, color=FAINT, linewidth=0.4)
        axis.axvline(edge - 0.5, color=FAINT, linewidth=0.4)
    for low, high, base in zip(edges, edges[1:], "GC" * len(starts), strict=False):
        axis.annotate(base, ((low + high - 1) / 2, 1.0), (0, 1.5), xycoords=axis.get_xaxis_transform(),
                      textcoords="offset points", ha="center", va="bottom", fontsize=6)  # fmt: skip


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


def _precision(
    models: Mapping[str, Any], controls: Mapping[str, Any], before: Mapping[str, Mapping[str, float]]
) -> Any:
    from matplotlib.lines import Line2D

    figure = new_figure(8.2, 2.2 * len(models) + 1.0)
    axes = figure.subplots(len(models), 1, squeeze=False, sharex=True)[:, 0]
    for axis, (recipe, value) in zip(axes, models.items(), strict=True):
        learned = {name: scores for name, scores in value["precision"].items() if name != CONTROL}
        groups = {**learned, **_controls(value, controls, before[recipe])}
        # A gap sets the controls apart.
        places = np.arange(len(groups)) + 0.6 * (np.arange(len(groups)) >= len(learned))
        for number, (kind, words) in enumerate(KINDS.items()):
            colour = SERIES[number]
            for at, (name, scores) in zip(places, groups.items(), strict=True):
                mean, *error = scores[kind][:2]
                trained = name in learned
                look: dict[str, Any] = {"color": colour} if trained else {"fill": False, "hatch": "/////"}
                axis.bar(
                    at + 0.27 * (number - 1),
                    mean,
                    0.25,
                    yerr=error or None,
                    label=words if at == 0 else None,
                    edgecolor=colour,
                    error_kw={"elinewidth": 0.6, "ecolor": INK},
                    **look,
                )
            axis.axhline(value["chance"][kind], color=colour, linewidth=0.8, linestyle=":")
        axis.axvline(len(learned) - 0.2, color=FAINT, linewidth=0.6)
        axis.set_xticks(places, list(groups), rotation=30, ha="right")
        axis.set(
            ylabel="average precision",
            ylim=(0.0, 1.05),
            xlim=(-0.6, places[-1] + 0.6),
            title=f"{recipe} recipe",
        )
        axis.spines[["top", "right"]].set_visible(False)
    handles, labels = axes[0].get_legend_handles_labels()
    handles.append(Line2D([], [], color=INK, lw=0.8, ls=":"))
    figure.legend(handles, [*labels, "guessing"], loc="outside lower center", ncols=4)
    return figure


def _controls(
    value: Mapping[str, Any], controls: Mapping[str, Any], before: Mapping[str, float]
) -> dict[str, dict[str, list[float]]]:
    """Mean and, where there is one, standard deviation of each control, by kind of bond."""
    untrained = controls["untrained"]
    found = {
        CONTROL.removesuffix(" (control)"): value["precision"][CONTROL],
        "|d − d₀|": controls["length"],
        "untrained: median": {kind: [float(np.median(untrained[kind]))] for kind in KINDS},
        "untrained: largest": {kind: [max(untrained[kind])] for kind in KINDS},
    }
    return {**found, **({"before training": {kind: [before[kind]] for kind in KINDS}} if before else {})}
