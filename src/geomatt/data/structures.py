"""Structures and data sets as plain arrays in eV and Å, float64."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from geomatt.errors import GeomAttError


@dataclass(frozen=True)
class Structure:
    """Atoms with positions and, if known, labels (eV, Å, eV/Å)."""

    numbers: np.ndarray  # (N,) int64, atomic numbers
    positions: np.ndarray  # (N, 3) float64
    energy: float | None = None
    forces: np.ndarray | None = None  # (N, 3) float64
    cell: np.ndarray | None = None  # (3, 3) float64, rows are lattice vectors
    pbc: tuple[bool, bool, bool] = (False, False, False)
    charge: float = 0.0
    info: dict[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def periodic(self) -> bool:
        return any(self.pbc)


class AtomsLike(Protocol):
    """The attributes of ASE Atoms that are used."""

    numbers: Any
    positions: Any
    pbc: Any
    cell: Any


def as_structure(atoms: Structure | AtomsLike) -> Structure:
    """A structure from ASE Atoms, or from any object with the same attributes."""
    if isinstance(atoms, Structure):
        return atoms
    try:
        numbers = np.asarray(atoms.numbers, dtype=np.int64)
        positions = np.asarray(atoms.positions, dtype=np.float64)
        pbc = [bool(p) for p in np.broadcast_to(atoms.pbc, 3)]
        cell = np.asarray(atoms.cell, dtype=np.float64) if any(pbc) else None
    except AttributeError as error:
        raise GeomAttError(
            f"A {type(atoms).__name__} is not a structure. Give ASE Atoms, a geomatt Structure or Dataset."
        ) from error
    return Structure(numbers, positions, cell=cell, pbc=(pbc[0], pbc[1], pbc[2]))


class Dataset(Sequence[Structure]):
    """Many structures in flat arrays; the atoms of structure s are the rows offsets[s]:offsets[s+1]."""

    def __init__(
        self,
        numbers: np.ndarray,  # (atoms,) int64
        positions: np.ndarray,  # (atoms, 3) float64
        offsets: np.ndarray,  # (n + 1,) int64
        *,
        energies: np.ndarray | None = None,  # (n,) float64
        forces: np.ndarray | None = None,  # (atoms, 3) float64
        cells: np.ndarray | None = None,  # (n, 3, 3) float64
        pbc: np.ndarray | None = None,  # (n, 3) bool
        charges: np.ndarray | None = None,  # (n,) float64
        info: list[dict[str, Any]] | None = None,
        name: str = "",
        origin: dict[str, str] | None = None,  # path, units of the file, theory
    ) -> None:
        self.numbers = np.ascontiguousarray(numbers, dtype=np.int64)
        self.positions = np.ascontiguousarray(positions, dtype=np.float64)
        self.offsets = np.ascontiguousarray(offsets, dtype=np.int64)
        self.energies = None if energies is None else np.ascontiguousarray(energies, dtype=np.float64)
        self.forces = None if forces is None else np.ascontiguousarray(forces, dtype=np.float64)
        self.cells, self.pbc, self.charges, self.info = cells, pbc, charges, info
        self.name = name
        self.origin = origin or {}

    @classmethod
    def from_frames(
        cls,
        numbers: np.ndarray,  # (N,) one molecule
        positions: np.ndarray,  # (n, N, 3)
        energies: np.ndarray | None = None,
        forces: np.ndarray | None = None,  # (n, N, 3)
        **rest: Any,
    ) -> Dataset:
        """A trajectory of one molecule."""
        n, atoms, _ = positions.shape
        return cls(
            np.tile(numbers, n),
            positions.reshape(-1, 3),
            np.arange(n + 1) * atoms,
            energies=energies,
            forces=None if forces is None else forces.reshape(-1, 3),
            **rest,
        )

    @classmethod
    def from_structures(cls, structures: Iterable[Structure], **rest: Any) -> Dataset:
        """A data set of any structures; a label must be present on all of them or on none."""
        items = list(structures)
        if not items:
            raise GeomAttError("There are no structures in the input.")
        for label in ("energy", "forces"):
            missing = [i for i, s in enumerate(items) if getattr(s, label) is None]
            if missing and len(missing) < len(items):
                raise GeomAttError(
                    f"{len(missing)} of {len(items)} structures have no {label} (first: {missing[0]}). "
                    "Remove these structures or label them: a label must be on all structures or on none."
                )
        has_energy, has_forces = items[0].energy is not None, items[0].forces is not None
        return cls(
            np.concatenate([s.numbers for s in items]),
            np.concatenate([s.positions for s in items]),
            np.concatenate([[0], np.cumsum([len(s) for s in items])]),
            energies=np.array([s.energy for s in items], dtype=np.float64) if has_energy else None,
            forces=np.concatenate([s.forces for s in items if s.forces is not None]) if has_forces else None,
            cells=(
                np.stack([np.zeros((3, 3)) if s.cell is None else s.cell for s in items])
                if any(s.cell is not None for s in items)
                else None
            ),
            pbc=np.array([s.pbc for s in items]) if any(s.periodic for s in items) else None,
            charges=np.array([s.charge for s in items]) if any(s.charge for s in items) else None,
            info=[s.info for s in items] if any(s.info for s in items) else None,
            **rest,
        )

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __repr__(self) -> str:
        labels = [n for n, x in (("energies", self.energies), ("forces", self.forces)) if x is not None]
        what = f"{len(self)} structures, {' and '.join(labels) or 'no labels'}"
        return f"Dataset({self.name or 'unnamed'}: {what})"

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return self.select(np.arange(len(self))[index])
        i = range(len(self))[index]  # raises IndexError, resolves negative numbers
        atoms = slice(self.offsets[i], self.offsets[i + 1])
        return Structure(
            numbers=self.numbers[atoms],
            positions=self.positions[atoms],
            energy=None if self.energies is None else float(self.energies[i]),
            forces=None if self.forces is None else self.forces[atoms],
            cell=None if self.cells is None else self.cells[i],
            pbc=(False, False, False) if self.pbc is None else tuple(bool(p) for p in self.pbc[i]),  # type: ignore[arg-type]
            charge=0.0 if self.charges is None else float(self.charges[i]),
            info={} if self.info is None else self.info[i],
        )

    def __iter__(self) -> Iterator[Structure]:
        return (self[i] for i in range(len(self)))

    def select(self, indices: np.ndarray | Sequence[int]) -> Dataset:
        """The structures with these indices, in the given order."""
        chosen = np.asarray(indices, dtype=np.int64)
        sizes = self.sizes[chosen]
        atoms = np.concatenate(
            [np.arange(self.offsets[i], self.offsets[i + 1]) for i in chosen] or [np.arange(0)]
        )
        return Dataset(
            self.numbers[atoms],
            self.positions[atoms],
            np.concatenate([[0], np.cumsum(sizes)]),
            energies=None if self.energies is None else self.energies[chosen],
            forces=None if self.forces is None else self.forces[atoms],
            cells=None if self.cells is None else self.cells[chosen],
            pbc=None if self.pbc is None else self.pbc[chosen],
            charges=None if self.charges is None else self.charges[chosen],
            info=None if self.info is None else [self.info[i] for i in chosen],
            name=self.name,
            origin=self.origin,
        )

    @property
    def sizes(self) -> np.ndarray:
        """Number of atoms of each structure, (n,)."""
        return np.diff(self.offsets)

    @property
    def elements(self) -> list[int]:
        """Atomic numbers in the data set, ascending."""
        return [int(z) for z in np.unique(self.numbers)]

    @property
    def single_composition(self) -> bool:
        """True if all structures have the same molecular formula."""
        counts = self.composition()
        return bool((counts == counts[0]).all())

    def composition(self) -> np.ndarray:
        """Number of atoms of each of `elements` in each structure, (n, elements)."""
        counts = np.zeros((len(self), len(self.elements)), dtype=np.int64)
        owner = np.repeat(np.arange(len(self)), self.sizes)
        np.add.at(counts, (owner, np.searchsorted(self.elements, self.numbers)), 1)
        return counts

    @property
    def provenance(self) -> dict[str, str]:
        """`origin` with the name of the file instead of its path, for records that are shared."""
        path = self.origin.get("path")
        return dict(self.origin) if path is None else {**self.origin, "path": Path(path).name}

    def fingerprint(self) -> str:
        """SHA-256 of geometry and labels, independent of the file they were read from."""
        digest = hashlib.sha256()
        for array in (self.offsets, self.numbers, self.positions, self.energies, self.forces):
            digest.update(b"none" if array is None else array.tobytes())
        for extra in (self.cells, self.pbc, self.charges):
            if extra is not None:
                digest.update(np.ascontiguousarray(extra, dtype=np.float64).tobytes())
        return digest.hexdigest()

    def frame_hashes(self) -> list[str]:
        """A short hash of the elements and centred positions (to 0.001 Å) of each structure.

        It identifies repeated frames, and frames a model was trained on, across files: rounding removes
        differences of float precision and origin, while frames of a simulation differ by more.
        """
        starts = self.offsets[:-1]
        mean = np.add.reduceat(self.positions, starts, axis=0) / np.maximum(self.sizes, 1)[:, None]
        rounded = np.round(self.positions - np.repeat(mean, self.sizes, axis=0), 3) + 0.0  # -0 becomes 0
        return [
            hashlib.sha256(self.numbers[a:b].tobytes() + rounded[a:b].tobytes()).hexdigest()[:16]
            for a, b in zip(starts, self.offsets[1:], strict=True)
        ]
