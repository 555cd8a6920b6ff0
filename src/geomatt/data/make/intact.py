"""Is a molecule still whole? Bonds of the start that broke, and parts that moved away."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse.csgraph import connected_components

from geomatt.data.bonds import TOLERANCE, bonded, relative_lengths
from geomatt.data.structures import Structure
from geomatt.elements import COVALENT_RADII, symbols

BROKEN = 1.6  # times the sum of the covalent radii; vibrations at 1000 K reach 1.4
APART = 5.0  # Å between parts that no longer interact


@dataclass(frozen=True)
class Bonding:
    """Bonds of a start."""

    numbers: np.ndarray  # (N,)
    bonds: np.ndarray  # (N, N) bool

    @classmethod
    def of(cls, structure: Structure) -> Bonding:
        numbers = structure.numbers
        if numbers.max() > len(COVALENT_RADII):  # no radius is known
            return cls(numbers, np.zeros((len(numbers), len(numbers)), dtype=bool))
        return cls(numbers, bonded(numbers, _distances(structure.positions), TOLERANCE))

    def fault(self, positions: np.ndarray) -> str:
        """The first fault at these positions (N, 3), such as "bond O2–H8"; empty if there is none."""
        if not np.isfinite(positions).all():
            return "positions are not finite"
        distance = _distances(positions)
        if self.bonds.any():
            stretched = np.where(self.bonds, relative_lengths(self.numbers, distance), 0.0)
            if stretched.max() > BROKEN:
                i, j = sorted(np.unravel_index(stretched.argmax(), stretched.shape))
                names = symbols(self.numbers)
                return f"bond {names[i]}{i}–{names[j]}{j}"
        parts, _ = connected_components(self.bonds | (distance < APART), directed=False)
        return f"{parts} parts that moved away from each other" if parts > 1 else ""


def _distances(positions: np.ndarray) -> np.ndarray:
    found: np.ndarray = np.linalg.norm(positions[:, None] - positions, axis=-1)
    return found
