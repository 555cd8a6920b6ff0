"""A torsion or a distance of a molecule: its value, and positions with another value."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from geomatt.data.bonds import bond_matrix
from geomatt.data.structures import Structure
from geomatt.elements import atom_labels
from geomatt.errors import GeomAttError
from geomatt.settings import check_types

COUNTS = {"torsion": 4, "distance": 2}


@dataclass(frozen=True)
class Coordinate:
    """A torsion a–b–c–d in degrees, or a distance a–b in Å."""

    kind: Literal["torsion", "distance"]
    atoms: tuple[int, ...]

    def __post_init__(self) -> None:
        check_types(self)
        if self.kind not in COUNTS:
            raise GeomAttError(f"A coordinate is a torsion or a distance, not {self.kind!r:.80}.")

    @property
    def unit(self) -> str:
        return "°" if self.kind == "torsion" else "Å"

    def check(self, structure: Structure) -> None:
        """Raise an error if the structure has no such coordinate."""
        count = COUNTS[self.kind]
        wrong = [a for a in self.atoms if not 0 <= a < len(structure)]
        if len(self.atoms) != count or len(set(self.atoms)) != count:
            example = ",".join(map(str, range(count)))
            raise GeomAttError(
                f"A {self.kind} needs {count} different atoms, such as {example}, counted from 0."
            )
        if wrong:
            raise GeomAttError(
                f"There is no atom {wrong[0]}: the structure has {len(structure)}, counted from 0."
            )
        if structure.periodic:
            raise GeomAttError("Scans are for molecules only. Set pbc to False for one in a box.")
        if self.kind == "torsion":
            linked, names = bond_matrix(structure), atom_labels(structure.numbers)
            for i, j in pairwise(self.atoms):
                if not linked[i, j]:
                    raise GeomAttError(
                        f"{names[i]} and {names[j]} of the torsion are not bonded. Give four atoms of "
                        "a chain, counted from 0."
                    )
            a, b, c, d = structure.positions[list(self.atoms)]
            for first, second in ((a - b, c - b), (b - c, d - c)):
                area = np.linalg.norm(np.cross(first, second))
                if area < 0.05 * np.linalg.norm(first) * np.linalg.norm(second):
                    raise GeomAttError(
                        f"Three of the atoms of torsion {self.name(structure)} are in a line, so it has no "
                        "angle. Choose other atoms."
                    )

    def name(self, structure: Structure) -> str:
        """Such as C0–C1–O2–H8."""
        names = atom_labels(structure.numbers)
        return "–".join(names[a] for a in self.atoms)

    def value(self, positions: np.ndarray) -> float:
        """In degrees from −180 to 180, or in Å."""
        if self.kind == "distance":
            first, second = positions[list(self.atoms)]
            return float(np.linalg.norm(second - first))
        a, b, c, d = positions[list(self.atoms)]
        axis = (c - b) / np.linalg.norm(c - b)
        left, right = a - b, d - c
        left, right = left - (left @ axis) * axis, right - (right @ axis) * axis
        return float(np.degrees(np.arctan2(np.cross(axis, left) @ right, left @ right)))

    def distance(self, positions: np.ndarray, value: float) -> float:
        """The deviation of the coordinate from a value, in degrees or Å."""
        away = self.value(positions) - value
        return abs((away + 180.0) % 360.0 - 180.0) if self.kind == "torsion" else abs(away)

    def moving(self, structure: Structure) -> np.ndarray | None:
        """Atoms (N,) bool that a rigid change moves: those on the far side; None if a ring connects both."""
        linked = bond_matrix(structure)
        near, far = self.atoms[1:3] if self.kind == "torsion" else self.atoms
        linked[near, far] = linked[far, near] = False
        side = np.zeros(len(structure), dtype=bool)
        side[far] = True
        while True:
            grown = side | linked[side].any(0)
            if np.array_equal(grown, side):
                break
            side = grown
        return None if side[near] else side

    def moved(self, positions: np.ndarray, side: np.ndarray, value: float) -> np.ndarray:
        """Positions with the coordinate at `value`, the atoms `side` moved as one body."""
        result = positions.copy()
        if self.kind == "distance":
            first, second = positions[list(self.atoms)]
            length = np.linalg.norm(second - first)
            result[side] += (second - first) * (value / length - 1.0)
            return result
        _, b, c, _ = positions[list(self.atoms)]
        axis = (c - b) / np.linalg.norm(c - b)
        angle = np.radians(value - self.value(positions))
        arms = positions[side] - c
        # Rodrigues' formula; the torsion grows with a rotation of the far side about b → c.
        along = (arms @ axis)[:, None] * axis
        turned = (arms - along) * np.cos(angle) + np.cross(axis, arms) * np.sin(angle)
        result[side] = c + along + turned
        return result

    def constraint(self, value: float) -> Any:
        """An ASE constraint that holds the coordinate at `value`."""
        from ase.constraints import FixInternals

        held = [[value % 360.0 if self.kind == "torsion" else value, list(self.atoms)]]
        return FixInternals(dihedrals_deg=held) if self.kind == "torsion" else FixInternals(bonds=held)
