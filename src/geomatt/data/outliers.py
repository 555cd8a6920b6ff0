"""Structures whose labels or positions are far outside of what the rest of a data set has.

A value is an outlier if it is 20 standard deviations from the median (4 to 6 is the most in MD17, rMD17 and
the embedded data) and beyond an absolute bound, so that a few distorted structures among relaxed ones are not
outliers. The standard deviation is that of the inner part of the data, so that outliers do not hide.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from geomatt.arguments import require
from geomatt.data.dataset import Dataset
from geomatt.elements import COVALENT_RADII, SYMBOLS

_MIN_FRAMES = 10
_DEVIATIONS = 20.0
_ENERGY_FLOOR = 3.0  # eV
_FORCE_FLOOR = 5.0  # eV/Å, root mean square over the components of a structure
_CLOSEST = 0.4  # of the sum of the covalent radii; 0.25 Å for two hydrogen atoms
_CHUNK = 2_000_000  # pairs of atoms at a time


def find_outliers(dataset: Dataset) -> dict[int, str]:
    """Index of each outlier, ascending, and what is wrong with it."""
    coincident = list(_coincident(require("data", dataset, Dataset, "geomatt.read(FILE)")))
    if len(coincident) > max(1, len(dataset) // 2):
        coincident = []  # not outliers but a wrong length unit
    found: dict[int, str] = {}
    for index, reason in (*coincident, *_energies(dataset), *_forces(dataset)):
        found[index] = f"{found[index]}, {reason}" if index in found else reason
    return dict(sorted(found.items()))


def drop_outliers(dataset: Dataset) -> tuple[Dataset, dict[int, str]]:
    """The data set without its outliers, and the outliers."""
    outliers = find_outliers(dataset)
    if not outliers:
        return dataset, outliers
    kept = dataset.select(np.setdiff1d(np.arange(len(dataset)), list(outliers)))
    kept.origin = {**dataset.origin, "dropped": ", ".join(map(str, outliers))}
    return kept, outliers


def _energies(dataset: Dataset) -> Iterator[tuple[int, str]]:
    if dataset.energies is None:
        return
    counts = dataset.composition()
    _, kind, sizes = np.unique(counts, axis=0, return_inverse=True, return_counts=True)
    kind = kind.reshape(-1)  # numpy 2.0 keeps the axis
    frequent = sizes >= _MIN_FRAMES
    for k in np.flatnonzero(frequent):
        frames = np.flatnonzero(kind == k)
        values = dataset.energies[frames] - np.median(dataset.energies[frames])
        yield from _far(frames, values, _ENERGY_FLOOR, "energy {:+.3g} eV from the median of its molecule")
    rest = np.flatnonzero(~frequent[kind])
    if len(rest) >= _MIN_FRAMES + 3 * counts.shape[1]:
        values = _without_composition(counts[rest].astype(float), dataset.energies[rest])
        yield from _far(rest, values, _ENERGY_FLOOR, "energy {:+.3g} eV from what its composition suggests")


def _without_composition(counts: np.ndarray, energies: np.ndarray) -> np.ndarray:
    """Energies minus a sum of atomic energies fitted to the inner part of the data."""
    keep = np.ones(len(energies), dtype=bool)
    residual = energies
    for _ in range(5):
        atomic = np.linalg.lstsq(counts[keep], energies[keep], rcond=None)[0]
        residual = energies - counts @ atomic
        residual = residual - np.median(residual)
        keep = np.abs(residual) <= np.quantile(np.abs(residual), 0.8)
    return residual


def _forces(dataset: Dataset) -> Iterator[tuple[int, str]]:
    frames = np.flatnonzero(dataset.has_forces)
    if dataset.forces is None or len(frames) < _MIN_FRAMES:
        return
    squares = np.add.reduceat((dataset.forces**2).sum(axis=1), dataset.offsets[:-1])
    size = np.sqrt(squares / (3 * dataset.sizes))[frames]
    typical = float(np.median(size))
    text = f"forces {{:.3g}} times the typical ones ({typical:.3g} eV/Å)"
    yield from _far(frames, size - typical, _FORCE_FLOOR, text, scale=typical, shift=1.0)


def _far(
    frames: np.ndarray, values: np.ndarray, floor: float, text: str, scale: float = 1.0, shift: float = 0.0
) -> Iterator[tuple[int, str]]:
    """Frames whose value, with median zero, is far from it; the text names value / scale + shift."""
    low, high = np.quantile(values, [0.1, 0.9])
    spread = max(1.4826 * float(np.median(np.abs(values))), (high - low) / 2.563)  # standard deviations
    for i in np.flatnonzero(np.abs(values) > max(_DEVIATIONS * spread, floor)):
        yield int(frames[i]), text.format(values[i] / max(scale, 1e-12) + shift)


def _coincident(dataset: Dataset) -> Iterator[tuple[int, str]]:
    """Structures with two atoms almost at the same place; images of periodic structures are not looked at."""
    sizes, start = dataset.sizes, 0
    radii = np.append(COVALENT_RADII, np.full(len(SYMBOLS), 1.5))[dataset.numbers - 1]
    while start < len(dataset):
        size = int(sizes[start])
        stop = start + 1
        while stop < len(dataset) and sizes[stop] == size and (stop - start) * size * size < _CHUNK:
            stop += 1
        atoms = slice(dataset.offsets[start], dataset.offsets[stop])
        positions = dataset.positions[atoms].reshape(-1, size, 3)
        bound = radii[atoms].reshape(-1, size)
        centred = positions - positions.mean(axis=1, keepdims=True)
        squares = (centred**2).sum(-1)
        distance2 = squares[:, :, None] + squares[:, None] - 2 * centred @ centred.transpose(0, 2, 1)
        near = distance2 < (_CLOSEST * (bound[:, :, None] + bound[:, None])) ** 2
        near[:, np.arange(size), np.arange(size)] = False
        for frame in np.flatnonzero(near.any(axis=(1, 2))):
            i, j = np.argwhere(near[frame])[0]
            distance = float(np.linalg.norm(positions[frame, i] - positions[frame, j]))
            yield start + int(frame), f"atoms {i} and {j} are {distance:.2g} Å apart"
        start = stop
