"""Distances of structures of a molecule from known ones: a cheap sign of where a model errs.

A structure is described by its inverse distances, sorted for every pair of elements, so that the order of
like atoms does not matter. Its novelty is the distance to the nearest known one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.spatial.distance import cdist

from geomatt.data.structures import Structure

_CHUNK = 500  # structures compared at once


def novelty(structures: Sequence[Structure], known: Sequence[Structure]) -> np.ndarray:
    """Distance (n,) in 1/Å of each structure to the nearest of `known`; all have the same composition."""
    reference = np.array([descriptor(s) for s in known])
    found = np.array([descriptor(s) for s in structures])
    parts = [cdist(found[k : k + _CHUNK], reference).min(axis=1) for k in range(0, len(found), _CHUNK)]
    return np.concatenate(parts)


def descriptor(structure: Structure) -> np.ndarray:
    """Inverse distances of all pairs, by elements and then by size; in 1/Å."""
    first, second = np.triu_indices(len(structure), 1)
    apart = structure.positions[first] - structure.positions[second]
    inverse = 1.0 / np.maximum(np.linalg.norm(apart, axis=1), 1e-3)
    z = structure.numbers
    low, high = np.minimum(z[first], z[second]), np.maximum(z[first], z[second])
    ordered: np.ndarray = inverse[np.lexsort((inverse, high, low))]
    return ordered
