"""One structure as plain arrays in eV and Å, float64."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from geomatt.data.electrons import multiplicity, total_charge
from geomatt.errors import GeomAttError
from geomatt.settings import typed

_SCALARS: dict[str, type] = {"energy": float, "charge": float, "multiplicity": int, "weight": float}


@dataclass(frozen=True)
class Structure:
    """Atoms with positions and, if known, labels (eV, Å, eV/Å, eV/Å³)."""

    numbers: np.ndarray  # (N,) int64, atomic numbers
    positions: np.ndarray  # (N, 3) float64
    energy: float | None = None
    forces: np.ndarray | None = None  # (N, 3) float64
    cell: np.ndarray | None = None  # (3, 3) float64, rows are lattice vectors
    pbc: tuple[bool, bool, bool] = (False, False, False)
    charge: float = 0.0  # total charge, e
    info: dict[str, Any] = field(default_factory=dict)
    stress: np.ndarray | None = None  # (3, 3) float64, derivative of energy with respect to strain / volume
    multiplicity: int | None = None  # spin multiplicity 2S + 1, None if not known
    weight: float = 1.0  # relative weight in the loss

    def __post_init__(self) -> None:
        """Lists become arrays; arrays that cannot be atoms are refused."""
        numbers, positions = self.numbers, self.positions
        if type(numbers) is not np.ndarray or numbers.dtype != np.int64:
            numbers = _integers(numbers)
            object.__setattr__(self, "numbers", numbers)
        if type(positions) is not np.ndarray or positions.dtype != np.float64:
            positions = _floats(positions)
            object.__setattr__(self, "positions", positions)
        if numbers.ndim != 1 or positions.shape != (len(numbers), 3):
            raise GeomAttError(
                f"A structure of {numbers.size} atomic numbers needs positions of shape ({numbers.size}, 3), "
                f"not {positions.shape}."
            )
        for name, shape in (("forces", positions.shape), ("cell", (3, 3)), ("stress", (3, 3))):
            value = getattr(self, name)
            if value is not None and np.shape(value) != shape:
                raise GeomAttError(f"The {name} of a structure need shape {shape}, not {np.shape(value)}.")
        for name, kind in _SCALARS.items():
            value = getattr(self, name)
            if type(value) is not kind and value is not None:
                object.__setattr__(self, name, typed(name, value, kind))
        if type(self.pbc) is not tuple or len(self.pbc) != 3:
            given = np.asarray(self.pbc)
            if given.shape not in ((), (3,)) or given.dtype.kind not in "biu":
                raise GeomAttError(f"`pbc` must be True or False, or three of them, not {self.pbc!r:.80}.")
            x, y, z = np.broadcast_to(given.astype(bool), 3).tolist()
            object.__setattr__(self, "pbc", (x, y, z))

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def periodic(self) -> bool:
        return any(self.pbc)


def _integers(values: Any) -> np.ndarray:
    found = _floats(values)
    if not np.array_equal(found, np.round(found)):
        raise GeomAttError("Atomic numbers must be whole numbers.")
    return found.astype(np.int64)


def _floats(values: Any) -> np.ndarray:
    try:
        return np.array(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise GeomAttError(f"Atomic numbers and positions must be arrays of numbers ({error}).") from None


class AtomsLike(Protocol):
    """The attributes of ASE Atoms that are used."""

    numbers: Any
    positions: Any
    pbc: Any
    cell: Any


def as_structure(atoms: Structure | AtomsLike) -> Structure:
    """A structure from ASE Atoms, or from any object with the same attributes.

    Total charge and multiplicity are read from `atoms.info`, or from initial charges and magnetic moments.
    """
    if isinstance(atoms, Structure):
        return atoms
    try:
        numbers = np.asarray(atoms.numbers, dtype=np.int64)
        positions = np.asarray(atoms.positions, dtype=np.float64)
        pbc = [bool(p) for p in np.broadcast_to(atoms.pbc, 3)]
        cell = np.asarray(atoms.cell, dtype=np.float64) if any(pbc) else None
    except AttributeError as error:
        raise GeomAttError(
            f"{atoms!r:.40} is not a structure. Give ASE Atoms, a geomatt Structure or Dataset."
        ) from error
    info, arrays = getattr(atoms, "info", {}), getattr(atoms, "arrays", {})
    return Structure(
        numbers,
        positions,
        cell=cell,
        pbc=(pbc[0], pbc[1], pbc[2]),
        charge=total_charge(info, arrays)[0],
        multiplicity=multiplicity(info, arrays)[0],
    )
