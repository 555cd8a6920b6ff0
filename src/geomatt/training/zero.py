"""The zero of the energy, fitted once more after training.

The loss weighs energies lightly, so their mean error drifts while forces improve. A constant added
to the energy, or one per element, corrects that and leaves the forces as they are.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from geomatt.data.dataset import Dataset
from geomatt.model import Normalisation, Potential
from geomatt.model.normalisation import weighted_fit


def energy_zero(potential: Potential, data: Dataset, validation: int) -> dict[str, Any]:
    """Energies (eV) to add to a potential so that its mean error on the data is zero.

    Structures count by their weights. One shift for a single composition, else an energy per element by
    least squares. Also the mean absolute error of the last `validation` frames with it.
    """
    assert data.energies is not None
    predictions = potential.predict(data, forces=False, batch_size=64, check_domain=False)
    predicted = np.array([p.energy for p in predictions])
    error = data.energies - predicted
    mean = float(np.average(error, weights=data.weights))
    found: dict[str, Any] = {"frames": len(data), "mean_error_before": mean}
    atoms = sum(potential.normalisation.composition.values())
    if atoms and not potential.normalisation.reference:
        found["shift"], rest = mean, error - mean
    elif atoms:  # extensive: the same for every atom, see `Normalisation.fit`
        share = mean / atoms
        found["reference"] = {str(z): share for z in potential.normalisation.composition}
        rest = error - mean
    else:
        counts = data.composition().astype(np.float64)
        solution = weighted_fit(counts, error, data.weights)
        found["reference"] = {str(z): float(e) for z, e in zip(data.elements, solution, strict=True)}
        rest = error - counts @ solution
    return {**found, "validation_energy_mae": float(np.abs(rest[-validation:]).mean())}


def with_zero(normalisation: Normalisation, zero: dict[str, Any]) -> Normalisation:
    """The normalisation with the energies of `energy_zero` added."""
    reference = dict(normalisation.reference)
    for z, energy in zero.get("reference", {}).items():
        reference[int(z)] = reference.get(int(z), 0.0) + energy
    return dataclasses.replace(
        normalisation, shift=normalisation.shift + zero.get("shift", 0.0), reference=reference
    )


def without_zero(potential: Potential) -> Potential:
    """The potential as its training left it, before the zero of the energy was fitted once more."""
    zero = potential.record.get("energy_zero") or {}
    back = {
        "shift": -zero.get("shift", 0.0),
        "reference": {z: -energy for z, energy in zero.get("reference", {}).items()},
    }
    return Potential(potential.network, with_zero(potential.normalisation, back), potential.record)
