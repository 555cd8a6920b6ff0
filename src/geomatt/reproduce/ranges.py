"""Ranges of energies, forces and distances in the data, as the paper's appendix lists them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from geomatt.data import Dataset
from geomatt.reproduce.table import ResultTable
from geomatt.units import from_ev

CHUNK = 1000  # frames whose distances are computed at once


def measured_ranges(dataset: Dataset, unit: str) -> dict[str, Any]:
    """Ranges over all frames of one molecule, energies in `unit`."""
    assert dataset.energies is not None
    assert dataset.forces is not None
    energies, forces = dataset.energies * from_ev(unit), dataset.forces * from_ev(unit)
    atoms = int(dataset.sizes[0])
    i, j = np.triu_indices(atoms, 1)
    shortest, longest = np.inf, 0.0
    for start in range(0, len(dataset) * atoms, CHUNK * atoms):
        r = dataset.positions[start : start + CHUNK * atoms].reshape(-1, atoms, 3)
        distance = np.linalg.norm(r[:, i] - r[:, j], axis=-1)
        shortest, longest = min(shortest, float(distance.min())), max(longest, float(distance.max()))
    return {
        "atoms": atoms,
        "frames": len(dataset),
        "energy": [float(energies.min() - energies.mean()), float(energies.max() - energies.mean())],
        "energy_sd": float(energies.std()),
        "force_rms": float(np.sqrt(np.mean(forces**2))),
        "force_largest": float(np.abs(forces).max()),
        "distance": [shortest, longest],
    }


def ranges_table(name: str, ranges: Mapping[str, Mapping[str, Any]]) -> ResultTable:
    """One row for each molecule."""
    return ResultTable.of(
        name,
        "Ranges of the data",
        [{"molecule": molecule, **found} for molecule, found in ranges.items()],
        {
            "molecule": "{molecule}",
            "atoms": "{atoms}",
            "frames": "{frames}",
            "energy − mean": "{energy[0]:.1f} … {energy[1]:+.1f}",
            "standard deviation": "{energy_sd:.2f}",
            "force RMS": "{force_rms:.1f}",
            "largest force": "{force_largest:.0f}",
            "distances (Å)": "{distance[0]:.2f} … {distance[1]:.2f}",
        },
        "All frames used. Energies in kcal/mol, force components in kcal/mol/Å. A model that always returns "
        "the mean has an energy error of about 0.8 standard deviations.",
    )
