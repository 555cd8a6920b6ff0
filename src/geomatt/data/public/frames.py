"""Which frames of the public MD17 files the committed results were measured on.

`embedded/md17_frames.npz` holds, for each molecule, the numbers of these frames in the public file and two
numbers computed from the geometry of each, so that a frame is recognised in any file that contains it, in any
order, orientation and floating-point precision. Made by `scripts/make_frame_list.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import as_file, files

import numpy as np

from geomatt.data.dataset import Dataset
from geomatt.data.public.catalogue import find_entry

UNIT = 1e-6  # Å, in which geometries are stored
TOLERANCE = 2e-5  # Å; rounding positions to float32 changes a geometry by about 1e-6
_STEPS = (0.6180339887498949, 0.41421356237309503)  # irrational: no two pairs of atoms have equal weights
_CHUNK = 20_000  # frames


@dataclass(frozen=True)
class FrameList:
    """Frames of one public file."""

    numbers: np.ndarray  # (n,) in the public file, from 0
    geometries: np.ndarray  # (n, 2), Å, see `geometries`

    def __len__(self) -> int:
        return len(self.numbers)

    def find(self, dataset: Dataset) -> np.ndarray:
        """The row of `dataset` that holds each listed frame (n,), −1 where there is none.

        A frame is first looked for at its number, then anywhere in the data set.
        """
        from scipy.spatial import KDTree

        found = geometries(dataset)
        rows = np.full(len(self), -1, dtype=np.int64)
        inside = np.flatnonzero(self.numbers < len(found))
        there = self.numbers[inside]
        same = (np.abs(found[there] - self.geometries[inside]) <= TOLERANCE).all(1)
        rows[inside[same]] = there[same]
        rest = np.flatnonzero(rows < 0)
        if len(rest) and len(found):
            distance, row = KDTree(found).query(self.geometries[rest], p=np.inf)
            near = distance <= TOLERANCE
            rows[rest[near]] = row[near]
        return rows


def frame_list(name: str) -> FrameList | None:
    """The frames of a data set such as md17/aspirin; None if it has no list."""
    entry = find_entry(name)
    if entry is None:
        return None
    key = entry.name.replace("/", "_")
    with as_file(files(__package__) / "embedded" / "md17_frames.npz") as path, np.load(path) as stored:
        if f"{key}_gaps" not in stored.files:
            return None
        return FrameList(
            np.cumsum(stored[f"{key}_gaps"].astype(np.int64)),
            stored[f"{key}_geometries"].astype(np.float64) * UNIT,
        )


def geometries(dataset: Dataset) -> np.ndarray:
    """Two sums over the distances of each frame with a fixed weight for each pair of atoms (n, 2), in Å.

    They do not depend on position and orientation. Empty if the frames have different numbers of atoms.
    """
    atoms = int(dataset.sizes[0]) if len(dataset) else 0
    if atoms == 0 or (dataset.sizes != atoms).any():
        return np.empty((0, 2))
    i, j = np.triu_indices(atoms, 1)
    weights = np.outer(np.arange(1, len(i) + 1), _STEPS) % 1.0 - 0.5  # (pairs, 2)
    positions = dataset.positions.reshape(-1, atoms, 3)
    sums = [
        np.linalg.norm(part[:, i] - part[:, j], axis=-1) @ weights
        for part in np.split(positions, range(_CHUNK, len(positions), _CHUNK))
    ]
    return np.concatenate(sums)
