"""Which of many structures are outside the training data: other molecules, other bonds, other distances."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from geomatt.data.bonds import bonded
from geomatt.data.dataset import Dataset
from geomatt.data.structures import Structure
from geomatt.elements import SYMBOLS
from geomatt.model.domain.measure import bond_graphs, distances_of, same_atoms
from geomatt.model.domain.ranges import Pairs, Ranges

MOST_GRAPHS = 100  # bond graphs looked at among frames of the same atoms, the commonest first
EXTRAPOLATION = "Energies and forces are an extrapolation."


@dataclass(frozen=True)
class Excess:
    """The pair of a structure that is furthest outside its range, in Å."""

    frame: int
    atoms: tuple[str, str]  # as C0, H5
    distance: float
    lower: float
    upper: float

    @property
    def value(self) -> float:
        return max(self.lower - self.distance, self.distance - self.upper)


def frame_doubts(
    ranges: Ranges, structures: Mapping[int, Structure], limit: float, pairs: Pairs = "local"
) -> list[str]:
    """Warnings about structures (by number) with unknown bonds, or a pair `limit` Å out of its range.

    Limits are looked up once for every bond graph, so that thousands of frames of a trajectory are cheap.
    """
    data, own_numbers = _geometry(list(structures.values())), list(structures)
    notes: Counter[str] = Counter()
    far, worst = 0, None
    for indices in same_atoms(data).values():
        numbers = data[int(indices[0])].numbers
        periodic = data.pbc is not None and bool(data.pbc[indices].any())
        done = 0
        for distance in distances_of(data, indices):
            for linked, members in islice(bond_graphs(numbers, distance), MOST_GRAPHS):
                limits = ranges.limits(numbers, distance[_typical(linked, numbers, distance, members)], pairs)
                if limits.note:
                    notes[limits.note] += len(members)
                # In a cell only the nearest image is known, and no distance is long.
                upper = np.full_like(limits.upper, np.inf) if periodic else limits.upper
                excess = np.maximum(limits.lower - distance[members], distance[members] - upper)
                each = excess.max((1, 2), initial=-np.inf)
                far += int((each > limit).sum())
                if worst is None or each.max() > worst.value:
                    m, i, j = np.unravel_index(int(excess.argmax()), excess.shape)
                    names = (f"{SYMBOLS[numbers[i]]}{i}", f"{SYMBOLS[numbers[j]]}{j}")
                    frame, length = int(members[m]), float(distance[members[m], i, j])
                    ends = float(limits.lower[i, j]), float(upper[i, j])
                    worst = Excess(own_numbers[int(indices[done + frame])], names, length, *ends)
            done += len(distance)
    found = [f"{_count(n, len(data))}{note} {EXTRAPOLATION}" for note, n in notes.most_common(3)]
    if worst is not None and far:
        found.append(_far_away(worst, far, len(data)))
    return found


def _typical(linked: np.ndarray, numbers: np.ndarray, distance: np.ndarray, members: np.ndarray) -> int:
    """One of the frames that has exactly these bonds."""
    return next(int(m) for m in members if np.array_equal(bonded(numbers, distance[m]), linked))


def _count(n: int, total: int) -> str:
    return "" if total == 1 else f"{n} of {total} structures: "


def _far_away(worst: Excess, far: int, total: int) -> str:
    where = "" if total == 1 else f" of structure {worst.frame}"
    seen = (
        f"{worst.lower:.2f} Å or more"
        if np.isinf(worst.upper)
        else f"{worst.lower:.2f} to {worst.upper:.2f} Å"
    )
    return (
        f"{_count(far, total)}{' and '.join(worst.atoms)}{where} are {worst.distance:.2f} Å apart; in the "
        f"training data it was {seen}. {EXTRAPOLATION}"
    )


def _geometry(structures: Sequence[Structure]) -> Dataset:
    """Atoms and cells without labels."""
    cells = pbc = None
    if any(s.periodic for s in structures):
        cells = np.array([np.zeros((3, 3)) if s.cell is None else s.cell for s in structures])
        pbc = np.array([s.pbc for s in structures])
    return Dataset(
        np.concatenate([s.numbers for s in structures]),
        np.concatenate([s.positions for s in structures]),
        np.concatenate([[0], np.cumsum([len(s) for s in structures])]),
        cells=cells,
        pbc=pbc,
    )
