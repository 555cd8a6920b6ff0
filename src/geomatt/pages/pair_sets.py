"""Sets of pairs that are switched off together on a page: bonds, distances, molecules, atoms, own ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from geomatt.data.bonds import bond_matrix, distances, hydrogen_bonds
from geomatt.data.structures import Structure
from geomatt.elements import atom_labels, formula
from geomatt.errors import GeomAttError

Pairs = Sequence[tuple[int, int]]
BEYOND = (2.0, 3.0, 4.0, 5.0, 6.0, 8.0)  # Å
MOST_MOLECULES = 4  # whose pairs with each other are switched off


@dataclass(frozen=True)
class PairSet:
    """Pairs i < j that are switched off together."""

    label: str  # empty for a single pair
    pairs: np.ndarray  # (P, 2)


def own_sets(given: Sequence[Pairs], structure: Structure) -> list[PairSet]:
    """The sets a user asks for, named by their atoms."""
    atoms, names = len(structure), atom_labels(structure.numbers)
    found = []
    for pairs in given:
        index = np.unique(np.sort(np.array(pairs, dtype=int).reshape(-1, 2), axis=1), axis=0)
        if not len(index) or index.min() < 0 or index.max() >= atoms or (index[:, 0] == index[:, 1]).any():
            raise GeomAttError(
                f"Pairs to switch off must name two different atoms out of 0 to {atoms - 1} each."
            )
        words = [f"{names[i]}–{names[j]}" for i, j in index]
        label = ", ".join(words[:6]) + (f" and {len(words) - 6} more" if len(words) > 6 else "")
        found.append(PairSet(label, index))
    return found


def usual_sets(structure: Structure) -> list[PairSet]:
    """Bonds of each kind, pairs between molecules, and pairs beyond distances."""
    upper = np.triu(np.ones((len(structure), len(structure)), dtype=bool), 1)
    covalent, hydrogen, apart = bond_matrix(structure), hydrogen_bonds(structure), distances(structure)
    masks = {"all covalent bonds": covalent, "all hydrogen bonds": hydrogen}
    masks |= _between_molecules(structure, covalent)
    masks |= {f"all pairs beyond {length:g} Å": apart > length for length in BEYOND}
    found: list[PairSet] = []
    for label, mask in masks.items():
        pairs = np.argwhere(mask & upper)
        if len(pairs) > 1 and not any(np.array_equal(pairs, other.pairs) for other in found):
            found.append(PairSet(label, pairs))
    return found


def atom_sets(structure: Structure) -> list[PairSet]:
    """All pairs of each atom: the atom as if it were alone."""
    everyone = np.arange(len(structure))
    return [
        PairSet(
            f"all pairs of {name}", np.sort([(atom, other) for other in everyone if other != atom], axis=1)
        )
        for atom, name in enumerate(atom_labels(structure.numbers))
    ]


def _between_molecules(structure: Structure, covalent: np.ndarray) -> dict[str, np.ndarray]:
    """Pairs whose atoms no path of covalent bonds joins, of all molecules and of any two of a few."""
    count, part = connected_components(coo_matrix(covalent), directed=False)
    if count < 2:
        return {}
    found = {"all pairs between molecules": part[:, None] != part}
    if 2 < count <= MOST_MOLECULES:
        names = [f"{k + 1} ({formula(structure.numbers[part == k])})" for k in range(count)]
        for a, b in combinations(range(count), 2):
            own = np.logical_and.outer(part == a, part == b)
            found[f"pairs of molecules {names[a]} and {names[b]}"] = own | own.T
    return found
