"""Make the aspirin geometry used by `geomatt bench`: built from bond lengths, relaxed with GFN2-xTB.

    python scripts/make_aspirin.py

Needs tblite (``pip install geomatt[xtb]``). Prints the lines for `geomatt/bench/systems.py`.
"""

from __future__ import annotations

import numpy as np
from ase import Atoms

from geomatt.data.make import SampleConfig
from geomatt.data.make.starts import make_start
from geomatt.data.structures import as_structure
from geomatt.elements import formula


def on_ring(corner: int, radius: float) -> np.ndarray:
    """A point in the ring plane, in the direction of a corner, at a distance from the centre."""
    angle = np.radians(60 * corner)
    return radius * np.array([np.cos(angle), np.sin(angle), 0.0])


def sketch() -> Atoms:
    """Aspirin from bond lengths and angles: planar ring, acetyl group perpendicular to it."""
    symbols, positions = [], []

    def add(symbol: str, position: np.ndarray) -> np.ndarray:
        symbols.append(symbol)
        positions.append(position)
        return position

    for corner in range(6):
        add("C", on_ring(corner, 1.39))
    for corner in range(2, 6):
        add("H", on_ring(corner, 2.48))
    acid = add("C", on_ring(0, 2.88))
    add("O", acid + on_ring(-1, 1.21))
    hydroxyl = add("O", acid + on_ring(1, 1.35))
    add("H", hydroxyl + on_ring(0, 0.97))
    bridge = add("O", on_ring(1, 2.78))
    acetyl = add("C", bridge + 1.36 * np.array([-0.35, 0.35, 0.87]))
    add("O", acetyl + 1.20 * np.array([0.9, 0.3, 0.3]))
    methyl = add("C", acetyl + 1.50 * np.array([-0.75, 0.2, 0.63]))
    for direction in ([-0.8, 0.6, 0.0], [0.3, 0.3, 0.9], [-0.5, -0.8, 0.3]):
        add("H", methyl + 1.09 * np.array(direction) / np.linalg.norm(direction))
    return Atoms("".join(symbols), np.array(positions))


def main() -> None:
    relaxed = make_start(SampleConfig(), as_structure(sketch())).structure
    assert relaxed.forces is not None
    for z, (x, y, w) in zip(relaxed.numbers, relaxed.positions, strict=True):
        print(f"    ({z}, {x:.4f}, {y:.4f}, {w:.4f}),")
    print(f"# {formula(relaxed.numbers)}, largest force {np.abs(relaxed.forces).max():.4f} eV/Å")


if __name__ == "__main__":
    main()
