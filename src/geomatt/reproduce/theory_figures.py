"""Figures and schemes of the theory experiment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from geomatt.drawing import FAINT, INK, SERIES, new_figure

ATOMS = np.array([[0.0, 0.0], [0.96, 0.0], [-0.24, 0.93]])  # the shape of water, Å
SHOWN_DISTANCE = 0.5
ORDERS = (2, 3, 4)
_ARROW: dict[str, Any] = {"arrowstyle": "-|>", "color": INK, "linewidth": 0.9, "shrinkA": 0, "shrinkB": 0}


def overlap_figure(result: Mapping[str, Any]) -> Any:
    """Density of atoms, atomic functions with their product, and the sum compared with the integral."""
    gamma = result["settings"]["gamma"]
    figure = new_figure(8.4, 2.7)
    density, functions, sums = figure.subplots(1, 3, width_ratios=[1.0, 1.3, 1.3])
    _draw_density(density, gamma)
    _draw_functions(functions, gamma)
    _draw_sums(sums, result["riemann"], gamma)
    return figure


def _draw_density(axis: Any, gamma: float) -> None:
    x, y = np.meshgrid(np.linspace(-0.75, 1.45, 200), np.linspace(-0.6, 1.45, 200))
    squared = (x[..., None] - ATOMS[:, 0]) ** 2 + (y[..., None] - ATOMS[:, 1]) ** 2
    # Wider Gaussians than the model's, so that their overlap can be seen.
    image = np.exp(-gamma / 5.0 * squared).sum(-1)
    axis.contourf(x, y, image, levels=12, cmap="Blues")
    for i, j in ((0, 1), (0, 2), (1, 2)):
        ends = ATOMS[[i, j]]
        axis.plot(*ends.T, color=INK, linewidth=0.8, linestyle=(0, (3, 2)))
        middle = ends.mean(0) + 0.09 * np.array([0.7, 1.0])
        axis.text(*middle, f"$d_{{{i + 1}{j + 1}}}$", fontsize=8)
    axis.scatter(*ATOMS.T, s=22, color="white", edgecolor=INK, linewidth=0.8, zorder=3)
    axis.set(aspect="equal", xticks=[], yticks=[], title="atoms as a density")


def _draw_functions(axis: Any, gamma: float) -> None:
    grid = np.arange(0.0, 1.2, 0.05)
    here, there = np.exp(-gamma * grid**2), np.exp(-gamma * (SHOWN_DISTANCE - grid) ** 2)
    axis.vlines(grid, 0, 10 * here * there, color=FAINT, linewidth=3.5, alpha=0.6, label="product × 10")
    axis.plot(grid, here, "o-", ms=2.5, lw=1, color=SERIES[0], label="$\\hat\\Phi(0)$")
    axis.plot(grid, there, "o-", ms=2.5, lw=1, color=SERIES[1], label=f"$\\hat\\Phi(d={SHOWN_DISTANCE})$")
    axis.set(xlabel="grid of distances $\\mu_l$ (Å)", title="discretised atomic functions", ylim=(0, 1.15))
    axis.legend(fontsize=7, loc="upper right")
    _open(axis)


def _draw_sums(axis: Any, riemann: Mapping[str, Any], gamma: float) -> None:
    d = np.array(riemann["distance"])
    near = d <= 1.0
    for (spacing, sums), colour in zip(riemann["curves"].items(), SERIES[1:], strict=False):
        axis.plot(d[near], np.array(sums)[near], lw=1.1, color=colour, label=f"sum, Δd = {spacing} Å")
    axis.plot(
        d[near], np.array(riemann["integral"])[near], color=INK, lw=1.6, label="integral", ls=(0, (4, 1.5))
    )
    space = np.sqrt(np.pi / (2 * gamma)) * np.exp(-gamma * d[near] ** 2 / 2)
    axis.plot(d[near], space, color=FAINT, lw=1.1, label=r"in space / ($\pi/2\gamma$)", ls=(0, (1, 1)))
    axis.set(xlabel="distance $d$ (Å)", title="overlap of two atoms")
    axis.legend(fontsize=7)
    _open(axis)


def diatomic_figure(result: Mapping[str, Any]) -> Any:
    """E(d) with both fits, and both attention coefficients."""
    two = result["diatomic"]
    d, energy = np.array(two["distance"]), np.array(two["energy"])
    figure = new_figure(7.0, 2.7)
    left, right = figure.subplots(1, 2)
    wide = {"color": FAINT, "lw": 4, "alpha": 0.5, "zorder": 0}
    left.plot(d, energy, label="energy", **wide)
    names = {
        "geometric": "geometric, k = 2",
        "plain": "softmax of features",
        "bare": "inner product of features",
    }
    dashes = {"bare": (0, (3, 2))}
    for (name, label), colour in zip(names.items(), SERIES, strict=False):
        line = {"color": colour, "lw": 1.3, "label": label, "ls": dashes.get(name, "-")}
        left.plot(d, two[name]["fitted"], **line)
        right.plot(d, two[name]["alpha"], **line)
    slope, offset = np.polyfit(energy, np.array(two["geometric"]["alpha"]), 1)
    right.plot(d, slope * energy + offset, label=f"{'−' if slope < 0 else ''}energy, scaled", **wide)
    left.set(xlabel="distance (Å)", ylabel="energy (eV)")
    right.set(xlabel="distance (Å)", ylabel="attention $\\alpha_{12}$")
    for axis in (left, right):
        axis.legend(fontsize=7)
        _open(axis)
    return figure


def range_figure(result: Mapping[str, Any]) -> Any:
    """α^(2) of a trained model over the distance, and its tail."""
    found = result["range"]
    d, curves = np.array(found["distance"]), np.array(found["alpha"])
    figure = new_figure(7.0, 2.6)
    for axis, first in zip(figure.subplots(1, 2), (0.8, 3.0), strict=True):
        shown = d >= first
        for layer, (alpha, colour) in enumerate(zip(curves, SERIES, strict=False)):
            axis.plot(d[shown], alpha[shown], color=colour, lw=1.2, label=f"layer {layer + 1}")
        axis.axhline(0.0, color=FAINT, lw=0.6)
        axis.axvline(found["d_max"], color=INK, lw=0.8, ls=(0, (4, 2)))
        axis.set(xlabel="distance (Å)", ylabel="$\\alpha^{(2)}$")
        _open(axis)
    axis.legend(fontsize=7)
    return figure


def _open(axis: Any) -> None:
    axis.spines[["top", "right"]].set_visible(False)


def operator_scheme() -> Any:
    """Paths between two atoms for each order, with the product of operators each stands for."""
    figure = new_figure(7.6, 2.5)
    axes = figure.subplots(1, 3, width_ratios=[1.0, 1.2, 1.4])
    formulas = (
        r"$A^{(2)} = \frac{\Delta d}{N_S}\,\sum_f\, F_f$",
        r"$A^{(3)} = \frac{\Delta d}{N_S}\,\sum_f\, F_f\,F'_f$",
        r"$A^{(4)} = \frac{\Delta d}{N_S}\,\sum_f\, F_f\,F'_f\,F''_f$",
    )
    for axis, order, formula in zip(axes, ORDERS, formulas, strict=True):
        names = ["i", *"mn"[: order - 2], "j"]
        steps = ["F", "F'", "F''"][: order - 1]
        heights = [0.0, *([0.55, 0.75][: order - 2]), 0.0]
        for x, (name, y) in enumerate(zip(names, heights, strict=True)):
            fixed = name in "ij"
            axis.scatter(x, y, s=260, color=SERIES[0] if fixed else "white", edgecolor=SERIES[0], zorder=3)
            axis.text(x, y, f"${name}$", ha="center", va="center", color="white" if fixed else INK, zorder=4)
        for x, step in enumerate(steps):
            start, end = (x, heights[x]), (x + 1, heights[x + 1])
            axis.annotate("", end, start, arrowprops={**_ARROW, "shrinkA": 9, "shrinkB": 9})
            middle = ((start[0] + end[0]) / 2, (start[1] + end[1]) / 2 + 0.16)
            axis.text(*middle, f"${step}_f$", ha="center", fontsize=8, color=SERIES[1])
        if order > 2:
            between = ", ".join(f"${name}$" for name in names[1:-1])
            axis.text((order - 1) / 2, -0.32, f"sum over all atoms {between}", ha="center", fontsize=7.5)
        axis.set_title(f"order {order}\n{formula}", fontsize=9)
        axis.set(xlim=(-0.35, order - 0.65), ylim=(-0.5, 1.1))
        axis.axis("off")
    figure.supxlabel(
        r"$F_f(i,j) = (Q\,\hat\Phi(0) + q)_f\,(K\,\hat\Phi(d_{ij}) + k)_f$"
        r"$\qquad v \leftarrow v + A^{(k)}\,(v\,W^\top + b)$",
        fontsize=9,
    )
    return figure


def network_scheme() -> Any:
    """Positions and elements to energy and forces, with one row of boxes for each stream."""
    figure = new_figure(7.6, 3.3)
    axis = figure.subplots()
    _box(axis, 0.0, 1.0, "positions $r$\n$d_{ij}=|r_i-r_j|$", SERIES[1])
    _box(axis, 0.0, -0.6, "elements $z$\n$v_i = $ embedding", SERIES[0])
    for row, order in enumerate(ORDERS):
        y = 1.0 - 0.8 * row
        for layer in range(3):
            x = 1.75 + 1.2 * layer
            _box(axis, x, y, f"$v + A^{{({order})}}_{layer + 1}(vW^\\top+b)$", SERIES[0], width=1.05)
            axis.annotate("", (x, y + 0.18), (x, y + 0.38), arrowprops={**_ARROW, "color": SERIES[1]})
            if layer:
                axis.annotate("", (x - 0.53, y), (x - 0.67, y), arrowprops=_ARROW)
        axis.annotate("", (1.22, y), (0.47, -0.6), arrowprops={**_ARROW, "linewidth": 0.7})
        axis.annotate("", (5.25, 0.2), (4.68, y), arrowprops={**_ARROW, "linewidth": 0.7})
        axis.text(2.95, y - 0.29, f"stream of order {order}", ha="center", fontsize=7, color=FAINT)
    axis.text(2.95, 1.55, "operators $A$ of all layers, from the distances alone", ha="center",
              fontsize=7.5, color=SERIES[1])  # fmt: skip
    axis.annotate("", (1.5, 1.58), (0.47, 1.1), arrowprops={**_ARROW, "color": SERIES[1]})
    _box(axis, 5.75, 0.2, "readout\n384 → 192 → 1\n(softplus)", SERIES[2])
    _box(axis, 6.95, 0.2, r"$E=\sum_i E_i$" + "\n" + r"$F=-\partial E/\partial r$", SERIES[2])
    axis.annotate("", (6.48, 0.2), (6.22, 0.2), arrowprops=_ARROW)
    axis.set(xlim=(-0.55, 7.5), ylim=(-1.0, 1.75))
    axis.axis("off")
    return figure


def _box(axis: Any, x: float, y: float, text: str, colour: str, width: float = 0.92) -> None:
    style: dict[str, Any] = {
        "boxstyle": "round,pad=0.02,rounding_size=0.05",
        "edgecolor": colour,
        "facecolor": "white",
    }
    from matplotlib.patches import FancyBboxPatch

    axis.add_patch(FancyBboxPatch((x - width / 2, y - 0.17), width, 0.34, linewidth=1.0, **style))
    axis.text(x, y, text, ha="center", va="center", fontsize=7)
