"""Covalent bonds from distances and covalent radii."""

from __future__ import annotations

import itertools

import numpy as np

from geomatt.data.structures import Structure
from geomatt.elements import COVALENT_RADII, SYMBOLS
from geomatt.errors import GeomAttError

DONORS_AND_ACCEPTORS = (7, 8, 9)  # N, O, F
HYDROGEN_BOND_LENGTH = 2.5  # Å, H···acceptor at most
HYDROGEN_BOND_ANGLE = 120.0  # degrees, donor–H···acceptor at least
TOLERANCE = 1.25  # a bond is at most this many times the sum of the radii: vibrations at 500 K stay inside


def distances(structure: Structure) -> np.ndarray:
    """All distances (N, N) in Å; in cells to the nearest image, zero for an atom with itself."""
    return np.linalg.norm(separations(structure), axis=-1)


def separations(structure: Structure) -> np.ndarray:
    """Vectors (N, N, 3) from i to j, in cells to the nearest image of j; zero for an atom with itself."""
    vectors = structure.positions - structure.positions[:, None]
    if not structure.periodic or structure.cell is None:
        return vectors
    cell = np.where(np.array(structure.pbc)[:, None], structure.cell, 0.0)
    vectors = vectors - np.round(vectors @ np.linalg.pinv(cell)) @ cell
    # In skewed cells the nearest image may be a neighbour of the one that rounding finds.
    steps = [(-1, 0, 1) if periodic else (0,) for periodic in structure.pbc]
    found, shortest = vectors, np.full(vectors.shape[:2], np.inf)
    for hop in np.array(list(itertools.product(*steps))) @ cell:
        length = np.linalg.norm(vectors + hop, axis=-1)
        nearer = length < shortest
        found, shortest = np.where(nearer[..., None], vectors + hop, found), np.minimum(length, shortest)
    found[np.diag_indices(len(found))] = 0.0
    return found


def bond_matrix(structure: Structure, tolerance: float = TOLERANCE) -> np.ndarray:
    """True for covalently bonded pairs (N, N), from distances and covalent radii."""
    return bonded(structure.numbers, distances(structure), tolerance)


def bonded(numbers: np.ndarray, distance: np.ndarray, tolerance: float = TOLERANCE) -> np.ndarray:
    """True for bonded pairs (..., N, N) of atoms `numbers` (N,) at distances (..., N, N)."""
    found: np.ndarray = relative_lengths(numbers, distance) < tolerance
    return found & ~np.eye(len(numbers), dtype=bool)


def relative_lengths(numbers: np.ndarray, distance: np.ndarray) -> np.ndarray:
    """Distances (..., N, N) divided by the sum of the covalent radii of each pair."""
    radii = _radii(numbers)
    return distance / (radii[:, None] + radii)


def bonded_pairs(numbers: np.ndarray, i: np.ndarray, j: np.ndarray, distance: np.ndarray) -> np.ndarray:
    """True for those of the pairs i, j (P,) that are bonded at a distance (P,), also images of one atom."""
    radii = _radii(numbers)
    found: np.ndarray = distance / (radii[i] + radii[j]) < TOLERANCE
    return found


def _radii(numbers: np.ndarray) -> np.ndarray:
    heavy = [SYMBOLS[z] for z in np.unique(numbers) if z > len(COVALENT_RADII)]
    if heavy:
        raise GeomAttError(f"No covalent radius is known for {', '.join(heavy)}.")
    return COVALENT_RADII[numbers - 1]


def hydrogen_bonds(structure: Structure) -> np.ndarray:
    """True for H···acceptor pairs (N, N), in both directions, by length and angle.

    H is bonded to N, O or F; the acceptor is another of these atoms that is not bonded to it.
    """
    distance, numbers = distances(structure), structure.numbers
    covalent = bonded(numbers, distance)
    polar = np.isin(numbers, DONORS_AND_ACCEPTORS)
    straight = np.cos(np.deg2rad(HYDROGEN_BOND_ANGLE))
    found = np.zeros_like(covalent)
    for h in np.flatnonzero(numbers == 1):
        near = np.flatnonzero(polar & ~covalent[h] & (distance[h] < HYDROGEN_BOND_LENGTH))
        for donor in np.flatnonzero(covalent[h] & polar)[:1]:
            for acceptor in near:
                a, b, opposite = distance[h, donor], distance[h, acceptor], distance[donor, acceptor]
                if (a**2 + b**2 - opposite**2) / (2 * a * b) <= straight:
                    found[h, acceptor] = found[acceptor, h] = True
    return found
