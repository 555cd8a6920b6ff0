"""Neighbour lists: every pair of atoms closer than a radius, with periodic images.

The search is vesin's where vesin is installed and scipy's k-d tree otherwise; both give the same pairs.
"""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.spatial import cKDTree

from geomatt.errors import GeomAttError


@dataclass(frozen=True)
class NeighbourList:
    """Pairs whose vector r_j + shift · cell − r_i is at most `radius` long, in both directions.

    An atom is a neighbour of its own images but not of itself.
    """

    i: np.ndarray  # (P,) int64
    j: np.ndarray  # (P,) int64
    shift: np.ndarray  # (P, 3) int64, lattice vectors between the images
    radius: float  # Å

    def __len__(self) -> int:
        return len(self.i)


PairArrays = tuple[np.ndarray, np.ndarray, np.ndarray]  # i, j, shift


def neighbour_list(
    positions: np.ndarray,  # (N, 3)
    cell: np.ndarray | None,  # (3, 3), rows are lattice vectors; rows that are not periodic are ignored
    pbc: Sequence[bool] | None,
    radius: float,
) -> NeighbourList:
    """All pairs within the radius, in no particular order. The cell may be smaller than the radius."""
    positions = np.ascontiguousarray(positions, dtype=np.float64)
    if not np.isfinite(positions).all():
        raise GeomAttError("Neighbours cannot be found: some positions are not finite numbers.")
    periodic = np.zeros(3, dtype=bool) if pbc is None else np.asarray(pbc, dtype=bool)
    if periodic.any() and cell is None:
        raise GeomAttError(
            "A periodic structure needs a cell: give its lattice vectors, or set pbc to False."
        )
    box = complete_cell(None if cell is None else np.asarray(cell, dtype=np.float64), periodic)
    # Atoms may have drifted out of the cell: search with wrapped ones, and undo it in the shifts.
    home = home_cells(positions, box, periodic)
    i, j, shift = search()(positions - home @ box, box, periodic, radius)
    home = home.astype(np.int64)
    return NeighbourList(i, j, shift - home[j] + home[i], radius)


def search() -> Callable[[np.ndarray, np.ndarray, np.ndarray, float], PairArrays]:
    """The search to use: vesin's where it is installed."""
    return vesin_search if importlib.util.find_spec("vesin") else kdtree_search


def home_cells(
    positions: np.ndarray, cell: np.ndarray | None, pbc: Sequence[bool] | np.ndarray
) -> np.ndarray:
    """Lattice vectors (N, 3), whole numbers, by which atoms are outside of the cell."""
    if cell is None:
        return np.zeros_like(positions)
    box = complete_cell(cell, pbc)
    return np.where(np.asarray(pbc, dtype=bool), np.floor(positions @ np.linalg.inv(box)), 0.0)


def complete_cell(cell: np.ndarray | None, pbc: Sequence[bool] | np.ndarray) -> np.ndarray:
    """The periodic lattice vectors, with orthogonal unit vectors along directions that do not repeat."""
    periodic = np.asarray(pbc, dtype=bool)
    if cell is None or not periodic.any():
        return np.eye(3)
    rows = cell[periodic]  # (p, 3)
    if not np.isfinite(rows).all():
        raise GeomAttError("The cell has numbers that are not finite. Check its lattice vectors.")
    _, spread, basis = np.linalg.svd(
        rows
    )  # the rows of basis after the first p are orthogonal to all of them
    if not spread.min() > 1e-6 * spread.max():
        raise GeomAttError(
            "The cell has no volume: its periodic lattice vectors are zero or lie in one plane. "
            "Check the cell, or set pbc to False along directions that do not repeat."
        )
    box = cell.copy()
    box[~periodic] = basis[len(rows) :]
    return box


def vesin_search(positions: np.ndarray, box: np.ndarray, periodic: np.ndarray, radius: float) -> PairArrays:
    """Pairs of wrapped positions by vesin's cell lists."""
    from vesin import NeighborList  # optional dependency

    i, j, shift = NeighborList(cutoff=radius, full_list=True).compute(
        points=positions, box=box, periodic=periodic, quantities="ijS"
    )
    return i.astype(np.int64), j.astype(np.int64), shift.astype(np.int64)


def kdtree_search(positions: np.ndarray, box: np.ndarray, periodic: np.ndarray, radius: float) -> PairArrays:
    """Pairs of wrapped positions by a k-d tree over the atoms and those images that can be neighbours."""
    inverse = np.linalg.inv(box)
    reach = radius * np.linalg.norm(inverse, axis=0)  # (3,) the radius in units of the cell's heights
    fractional = positions @ inverse
    owner, images, shifts = [], [], []
    ranges = [range(-n, n + 1) for n in np.where(periodic, np.ceil(reach), 0).astype(int)]
    for shift in itertools.product(*ranges):
        moved = fractional + shift
        near = ((moved >= -reach) & (moved <= 1 + reach) | ~periodic).all(1)
        owner.append(np.flatnonzero(near))
        images.append(positions[near] + np.array(shift) @ box)
        shifts.append(np.broadcast_to(np.array(shift), (len(owner[-1]), 3)))
    atom, shift_of = np.concatenate(owner), np.concatenate(shifts)
    found = cKDTree(positions).sparse_distance_matrix(
        cKDTree(np.concatenate(images)), radius, output_type="ndarray"
    )
    i, image = found["i"].astype(np.int64), found["j"].astype(np.int64)
    j, shift = atom[image], shift_of[image].astype(np.int64)
    other = (i != j) | shift.any(1)
    return i[other], j[other], shift[other]
