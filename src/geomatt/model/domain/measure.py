"""Ranges of distances from training frames."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from geomatt.data.bonds import bonded, relative_lengths
from geomatt.data.dataset import Dataset
from geomatt.data.structures import Structure
from geomatt.errors import GeomAttError
from geomatt.model.domain.ranges import (
    MORE,
    OTHER_MOLECULE,
    ElementRanges,
    MoleculeRanges,
    PairKey,
    Ranges,
    pair_keys,
)

CHUNK = 200_000  # pairs of atoms whose distances are held at once
# A frame whose bonds differ from a commoner graph's is a vibration of that one if its bonds are shorter, and
# its other pairs longer, than this many times the sum of their covalent radii.
STRETCHED, SQUEEZED = 1.6, 1.1


def measure(data: Dataset) -> Ranges:
    """Per pair of atoms if all structures have the same atoms in one order, else by elements and bonds.

    By elements also in liquids and crystals: there atoms may change places.
    """
    if not len(data):
        raise GeomAttError("There is no structure to take ranges of distances from.")
    groups = same_atoms(data)
    if len(groups) == 1 and (data.pbc is None or not data.pbc.any() or one_molecule(data[0])):
        return _molecule(data)
    return _elements(data, groups)


def minimum_image(vectors: Tensor, cell: Tensor) -> Tensor:
    """Vectors (..., N, N, 3) between nearest images in cells (..., 3, 3); zero rows do not repeat.

    Exact for distances below half the smallest height of the cell.
    """
    fractional = vectors @ torch.linalg.pinv(cell)[..., None, :, :]
    return vectors - fractional.round() @ cell[..., None, :, :]


def one_molecule(structure: Structure) -> bool:
    """True if the atoms of a cell are one molecule, bonded to each other and not to its images."""
    assert structure.cell is not None
    cell = np.where(np.array(structure.pbc)[:, None], structure.cell, 0.0)
    vectors = structure.positions[None] - structure.positions[:, None]  # from i to j
    vectors = minimum_image(torch.from_numpy(vectors), torch.from_numpy(cell)).numpy()
    linked = bonded(structure.numbers, np.linalg.norm(vectors, axis=-1)[None])[0]
    place, todo = {0: np.zeros(3)}, [0]  # walk along bonds, from image to image
    while todo:
        i = todo.pop()
        for j in np.flatnonzero(linked[i]).tolist():
            if j not in place:
                place[j] = place[i] + vectors[i, j]
                todo.append(j)
            elif np.abs(place[i] + vectors[i, j] - place[j]).max() > 1e-3:
                return False
    return len(place) == len(structure)


def distances(positions: np.ndarray, cell: np.ndarray | None = None) -> np.ndarray:
    """Distances (..., N, N) of positions (..., N, 3), to nearest images where there are cells (..., 3, 3)."""
    vectors = positions[..., :, None, :] - positions[..., None, :, :]
    if cell is not None:
        vectors = minimum_image(torch.from_numpy(vectors), torch.from_numpy(cell)).numpy()
    return np.linalg.norm(vectors, axis=-1)


def same_atoms(data: Dataset) -> dict[bytes, np.ndarray]:
    """Indices of the structures that have the same atomic numbers in the same order."""
    found: dict[bytes, list[int]] = defaultdict(list)
    for index, (start, stop) in enumerate(zip(data.offsets[:-1], data.offsets[1:], strict=True)):
        found[data.numbers[start:stop].tobytes()].append(index)
    return {key: np.array(indices) for key, indices in found.items()}


def distances_of(data: Dataset, indices: np.ndarray) -> Iterator[np.ndarray]:
    """Distances (frames, N, N) of structures with the same number of atoms, a part at a time."""
    atoms = int(data.sizes[indices[0]])
    rows = data.offsets[indices][:, None] + np.arange(atoms)
    step = max(CHUNK // max(atoms**2, 1), 1)
    for start in range(0, len(indices), step):
        part = slice(start, start + step)
        cell = None
        if data.pbc is not None and data.cells is not None:
            cell = np.where(data.pbc[indices[part]][..., None], data.cells[indices[part]], 0.0)
        yield distances(data.positions[rows[part]], cell)


def _molecule(data: Dataset) -> MoleculeRanges:
    numbers = data[0].numbers
    shape = (len(numbers), len(numbers))
    least, most, total = np.full(shape, np.inf), np.zeros(shape), np.zeros(shape)
    for part in distances_of(data, np.arange(len(data))):
        least, most = np.minimum(least, part.min(0)), np.maximum(most, part.max(0))
        total += part.sum(0)
    return MoleculeRanges.of(numbers, least, most, total / len(data), len(data))


def _elements(data: Dataset, groups: dict[bytes, np.ndarray]) -> ElementRanges:
    shortest: dict[PairKey, float] = {}
    longest: dict[PairKey, float] = {}
    total: dict[PairKey, tuple[float, int]] = {}
    for indices in groups.values():
        numbers = data[int(indices[0])].numbers
        distance = np.concatenate(list(distances_of(data, indices)))
        upper = np.triu_indices(len(numbers), 1)
        for linked, members in bond_graphs(numbers, distance):
            keys, group = np.unique(pair_keys(numbers, linked)[upper], axis=0, return_inverse=True)
            frames = distance[members][:, upper[0], upper[1]]  # (frames, pairs)
            for number, row in enumerate(keys):
                key: PairKey = (int(row[0]), int(row[1]), int(row[2]))
                values = frames[:, group.reshape(-1) == number]
                shortest[key] = min(shortest.get(key, np.inf), float(values.min()))
                if key[2] not in (OTHER_MOLECULE, MORE):
                    longest[key] = max(longest.get(key, 0.0), float(values.max()))
                if key[2] == 1:
                    before = total.get(key, (0.0, 0))
                    total[key] = before[0] + float(values.sum()), before[1] + values.size
    mean = {key: value / count for key, (value, count) in total.items()}
    return ElementRanges(shortest, longest, mean, len(data))


def bond_graphs(numbers: np.ndarray, distance: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The bond graphs of frames (frames, N, N) with the frames that have them, the commonest graph first.

    A bond that a vibration stretches past the tolerance is still a bond: frames that differ from a commoner
    graph only by such pairs are counted with it.
    """
    graphs = bonded(numbers, distance)
    relative = relative_lengths(numbers, distance)
    flat = np.packbits(graphs.reshape(len(graphs), -1), axis=1)
    _, first, group, count = np.unique(
        flat, axis=0, return_index=True, return_inverse=True, return_counts=True
    )
    left = np.ones(len(graphs), dtype=bool)
    for number in np.argsort(-count, kind="stable"):
        if not left[group.reshape(-1) == number].any():
            continue
        linked = graphs[first[number]]
        near = np.where(linked, relative < STRETCHED, relative > SQUEEZED) | (graphs == linked)
        members = np.flatnonzero(left & near.all((1, 2)))
        left[members] = False
        yield linked, members
