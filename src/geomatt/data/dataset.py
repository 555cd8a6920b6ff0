"""Many structures as flat arrays in eV and Å, float64."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from geomatt.arguments import indices_of
from geomatt.data.structures import Structure
from geomatt.errors import GeomAttError

JOINED = " + "  # between the names and paths of concatenated data sets
_ROWS = 1_000_000  # of an array that are hashed at a time
_PER_STRUCTURE = ("energies", "stress", "cells", "pbc", "charges", "multiplicities", "weights")


class Dataset(Sequence[Structure]):
    """Many structures in flat arrays; the atoms of structure s are the rows offsets[s]:offsets[s+1].

    Energies are known for all structures or for none. Forces and stress may be missing for some
    structures: their values are NaN there, and `has_forces` and `has_stress` tell.
    """

    def __init__(
        self,
        numbers: np.ndarray,  # (atoms,) int64
        positions: np.ndarray,  # (atoms, 3) float64
        offsets: np.ndarray,  # (n + 1,) int64
        *,
        energies: np.ndarray | None = None,  # (n,) float64
        forces: np.ndarray | None = None,  # (atoms, 3) float64, NaN where missing
        stress: np.ndarray | None = None,  # (n, 3, 3) float64, NaN where missing
        cells: np.ndarray | None = None,  # (n, 3, 3) float64
        pbc: np.ndarray | None = None,  # (n, 3) bool
        charges: np.ndarray | None = None,  # (n,) float64, None: all neutral
        multiplicities: np.ndarray | None = None,  # (n,) int64, 0: not known
        weights: np.ndarray | None = None,  # (n,) float64, None: all 1
        info: list[dict[str, Any]] | None = None,
        name: str = "",
        origin: dict[str, str] | None = None,  # path, units of the file, theory
    ) -> None:
        self.numbers = np.ascontiguousarray(numbers, dtype=np.int64)
        self.positions = np.ascontiguousarray(positions, dtype=np.float64)
        self.offsets = np.ascontiguousarray(offsets, dtype=np.int64)
        self.energies = _array(energies, np.float64)
        self.forces = _array(forces, np.float64)
        self.stress = _array(stress, np.float64)
        self.cells, self.pbc, self.charges, self.info = cells, pbc, charges, info
        self.multiplicities = _array(multiplicities, np.int64)
        self.weights = _array(weights, np.float64)
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
        """A data set of any structures: all of them have an energy, or none."""
        items = list(structures) if isinstance(structures, Iterable) else [structures]
        if not all(isinstance(item, Structure) for item in items):
            raise GeomAttError(
                "A Dataset is made of geomatt Structures. ASE Atoms with labels go through a file: "
                'ase.io.write("data.extxyz", atoms), then geomatt.read("data.extxyz").'
            )
        if not items:
            raise GeomAttError("There are no structures in the input.")
        missing = [i for i, s in enumerate(items) if s.energy is None]
        if missing and len(missing) < len(items):
            raise GeomAttError(
                f"{len(missing)} of {len(items)} structures have no energy (first: {missing[0]}). "
                "Remove these structures or label them: all structures need an energy, or none has one."
            )

        def stacked(values: list[Any], default: Any) -> np.ndarray | None:
            """One row per structure; None if no structure has a value."""
            if all(value is None for value in values):
                return None
            return np.array([default if value is None else value for value in values])

        no_forces = all(s.forces is None for s in items)
        return cls(
            np.concatenate([s.numbers for s in items]),
            np.concatenate([s.positions for s in items]),
            np.concatenate([[0], np.cumsum([len(s) for s in items])]),
            energies=None if missing else np.array([s.energy for s in items]),
            forces=(
                None
                if no_forces
                else np.concatenate(
                    [np.full((len(s), 3), np.nan) if s.forces is None else s.forces for s in items]
                )
            ),
            stress=stacked([s.stress for s in items], np.full((3, 3), np.nan)),
            cells=stacked([s.cell for s in items], np.zeros((3, 3))),
            pbc=stacked([s.pbc if s.periodic else None for s in items], (False, False, False)),
            charges=stacked([s.charge or None for s in items], 0.0),
            multiplicities=stacked([s.multiplicity for s in items], 0),
            weights=stacked([None if s.weight == 1 else s.weight for s in items], 1.0),
            info=[s.info for s in items] if any(s.info for s in items) else None,
            **rest,
        )

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __repr__(self) -> str:
        labels = [n for n in ("energies", "forces", "stress") if getattr(self, n) is not None]
        what = f"{len(self)} structures, {' and '.join(labels) or 'no labels'}"
        return f"Dataset({self.name or 'unnamed'}: {what})"

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return self.select(np.arange(len(self))[index])
        i = range(len(self))[index]  # raises IndexError, resolves negative numbers
        atoms = slice(self.offsets[i], self.offsets[i + 1])

        def label(values: np.ndarray | None, rows: Any) -> np.ndarray | None:
            return None if values is None or np.isnan(values[rows]).any() else values[rows]

        return Structure(
            numbers=self.numbers[atoms],
            positions=self.positions[atoms],
            energy=None if self.energies is None else float(self.energies[i]),
            forces=label(self.forces, atoms),
            cell=None if self.cells is None else self.cells[i],
            pbc=(False, False, False) if self.pbc is None else tuple(bool(p) for p in self.pbc[i]),  # type: ignore[arg-type]
            charge=0.0 if self.charges is None else float(self.charges[i]),
            info={} if self.info is None else self.info[i],
            stress=label(self.stress, i),
            multiplicity=None if self.multiplicities is None else int(self.multiplicities[i]) or None,
            weight=1.0 if self.weights is None else float(self.weights[i]),
        )

    def __iter__(self) -> Iterator[Structure]:
        return (self[i] for i in range(len(self)))

    def select(self, indices: np.ndarray | Sequence[int]) -> Dataset:
        """The structures with these indices, in the given order."""
        chosen = indices_of("indices", indices)
        if chosen.size and not (-len(self) <= chosen.min() and chosen.max() < len(self)):
            raise GeomAttError(f"`indices` must lie below the number of structures, {len(self)}.")
        sizes = self.sizes[chosen]
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        # Row of the first atom of each structure, repeated, plus the number of the atom in its structure.
        atoms = np.repeat(self.offsets[chosen] - offsets[:-1], sizes) + np.arange(offsets[-1])
        rows = {name: getattr(self, name) for name in _PER_STRUCTURE}
        return Dataset(
            self._rows(self.numbers, atoms),
            self._rows(self.positions, atoms),
            offsets,
            forces=None if self.forces is None else self._rows(self.forces, atoms),
            info=None if self.info is None else [self.info[i] for i in chosen],
            name=self.name,
            origin=self.origin,
            **{name: None if array is None else array[chosen] for name, array in rows.items()},
        )

    def _rows(self, array: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """A copy of some rows of an array with a row for each atom."""
        chosen: np.ndarray = array[rows]
        return chosen

    @property
    def has_forces(self) -> np.ndarray:
        """True for structures with forces, (n,)."""
        return self._labelled(
            None if self.forces is None else np.add.reduceat(self.forces, self.offsets[:-1])
        )

    @property
    def lacks_forces(self) -> np.ndarray:
        """True for structures none of whose forces are known, (n,); where some are not, labels are wrong."""
        if self.forces is None:
            return np.ones(len(self), dtype=bool)
        lacking: np.ndarray = np.add.reduceat((~np.isnan(self.forces)).sum(1), self.offsets[:-1]) == 0
        return lacking

    @property
    def has_stress(self) -> np.ndarray:
        """True for structures with stress, (n,)."""
        return self._labelled(self.stress)

    def _labelled(self, rows: np.ndarray | None) -> np.ndarray:
        if rows is None:
            return np.zeros(len(self), dtype=bool)
        known: np.ndarray = ~np.isnan(rows.reshape(len(self), -1)).any(axis=1)
        return known

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
        """`origin` with the names of files instead of their paths, for records that are shared."""
        if "path" not in self.origin:
            return dict(self.origin)
        names = [Path(path).name for path in self.origin["path"].split(JOINED)]
        return {**self.origin, "path": JOINED.join(names)}

    def fingerprint(self) -> str:
        """SHA-256 of geometry and labels, independent of the file they were read from.

        Runs are resumed by it: fields that were added later count only where they differ from their default.
        """
        digest = hashlib.sha256()
        for array in (self.offsets, self.numbers, self.positions, self.energies, self.forces):
            if array is None:
                digest.update(b"none")
                continue
            for start in range(0, len(array), _ROWS):  # no second copy of the whole
                digest.update(array[start : start + _ROWS].tobytes())
        for extra in (self.cells, self.pbc, self.charges):
            if extra is not None:
                digest.update(np.ascontiguousarray(extra, dtype=np.float64).tobytes())
        later = (
            ("stress", self.stress, True),
            (
                "multiplicities",
                self.multiplicities,
                self.multiplicities is not None and (self.multiplicities > 1).any(),
            ),
            ("weights", self.weights, self.weights is not None and (self.weights != 1).any()),
        )
        for name, array, counts in later:
            if array is not None and counts:
                digest.update(name.encode() + array.tobytes())
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
            hashlib.sha256(
                self.numbers[a:b].tobytes() + rounded[a:b].tobytes() + self._cell_bytes(i)
            ).hexdigest()[:16]
            for i, (a, b) in enumerate(zip(starts, self.offsets[1:], strict=True))
        ]

    def _cell_bytes(self, i: int) -> bytes:
        """The periodic lattice vectors to 0.001 Å; nothing for a molecule."""
        if self.cells is None or self.pbc is None or not self.pbc[i].any():
            return b""
        return (np.round(np.where(self.pbc[i][:, None], self.cells[i], 0.0), 3) + 0.0).tobytes()


def _array(values: np.ndarray | None, dtype: type) -> np.ndarray | None:
    return None if values is None else np.ascontiguousarray(values, dtype=dtype)
