"""Draw how pair states work: states of pairs, one round, the energy of an atom.

    python scripts/draw_pair_states.py

Writes docs/images/pair-states.png.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from geomatt.drawing import new_figure

OUT = Path(__file__).resolve().parents[1] / "docs" / "images" / "pair-states.png"
ATOMS = np.array([[0.0, 0.0], [1.0, 0.75], [2.1, 0.35], [1.35, -0.75]])
I, J = 0, 2
FIRST, SECOND, BOTH, SOFT = "#0072b2", "#d55e00", "#e69f00", "#d4d7dd"


def main() -> None:
    figure = new_figure(11.0, 3.5)
    axes = figure.subplots(1, 3)
    for axis in axes:
        axis.set_aspect("equal")
        axis.axis("off")
    states(axes[0])
    one_round(axes[1])
    energy(axes[2])
    figure.savefig(OUT, dpi=110, facecolor="white", bbox_inches="tight")


def states(axis: Any) -> None:
    axis.set_title("every pair has a state $X_{ij}$", fontsize=11)
    distance = np.linalg.norm(ATOMS[:, None] - ATOMS, axis=-1)
    for a, b in zip(*np.triu_indices(len(ATOMS), 1), strict=True):
        axis.plot(*ATOMS[[a, b]].T, color=FIRST, linewidth=4.0 * np.exp(-distance[a, b] / 1.6), alpha=0.8)
    atoms(axis, ["i", "", "j", ""])
    axis.text(1.0, -1.45, "from functions of the distance\nand both elements", ha="center", fontsize=9)
    axis.set_xlim(-0.5, 2.6)
    axis.set_ylim(-1.8, 1.2)


def one_round(axis: Any) -> None:
    axis.set_title(r"a round: $P_{ij} = N^{-1/2}\sum_m A_{im} \circ B_{mj}$", fontsize=11)
    for m in range(len(ATOMS)):
        if m in (I, J):
            continue
        axis.plot(*ATOMS[[I, m]].T, color=FIRST, linewidth=3)
        axis.plot(*ATOMS[[m, J]].T, color=SECOND, linewidth=3)
    axis.plot(*ATOMS[[I, J]].T, color=BOTH, linewidth=3, linestyle=(0, (2, 1)))
    atoms(axis, ["i", "m", "j", "m"])
    text = "the state of i and j takes up\nwhat is known along i–m–j, for every m"
    axis.text(1.0, -1.45, text, ha="center", fontsize=9)
    axis.set_xlim(-0.5, 2.6)
    axis.set_ylim(-1.8, 1.2)


def energy(axis: Any) -> None:
    axis.set_title("the energy of an atom: its own state and its row", fontsize=11)
    size = len(ATOMS)
    for a in range(size):
        for b in range(size):
            colour = SECOND if a == b == I else FIRST if a == I else SOFT
            axis.add_patch(_square(b, -a, colour))
    axis.text(0.5, 0.5, "$X_{ii}$", color="white", ha="center", va="center", fontsize=10)
    axis.text(2.5, 0.5, "$X_{ij}$", color="white", ha="center", va="center", fontsize=10)
    axis.annotate("", (5.6, 0.5), (4.15, 0.5), arrowprops={"arrowstyle": "->", "color": "#22252b"})
    axis.text(5.75, 0.5, "$E_i$", va="center", fontsize=12)
    axis.text(2.6, -4.1, r"after T rounds: up to $2^T + 1$ bodies", ha="center", fontsize=9)
    axis.set_xlim(-0.3, 6.6)
    axis.set_ylim(-4.6, 1.3)


def atoms(axis: Any, names: list[str]) -> None:
    axis.scatter(*ATOMS.T, s=420, color="white", edgecolor="#22252b", zorder=3)
    for (x, y), name in zip(ATOMS, names, strict=True):
        axis.text(x, y, name, ha="center", va="center", fontsize=11, style="italic", zorder=4)


def _square(x: float, y: float, colour: str) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((x + 0.04, y + 0.04), 0.92, 0.92, color=colour)


if __name__ == "__main__":
    main()
