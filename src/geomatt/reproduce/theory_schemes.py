"""Schemes of the model: attention as a product of operators, and the whole network."""

from __future__ import annotations

from typing import Any

from geomatt.drawing import FAINT, INK, SERIES, new_figure

ORDERS = (2, 3, 4)
_ARROW: dict[str, Any] = {"arrowstyle": "-|>", "color": INK, "linewidth": 0.9, "shrinkA": 0, "shrinkB": 0}


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
