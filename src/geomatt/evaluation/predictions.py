"""Predictions as an extxyz file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from geomatt.data.files import atomic_output
from geomatt.data.structures import Structure
from geomatt.errors import GeomAttError
from geomatt.model.calibration import Calibration
from geomatt.model.output import Prediction

LEVEL = 0.9  # of error bars


def write_predictions(
    structures: Sequence[Structure],
    predictions: Sequence[Prediction],
    path: str | os.PathLike[str],
    calibration: Calibration | None = None,
) -> Path:
    """Write structures with predicted energy, forces and atomic energies (`energies`), in eV and Å.

    The spread of a committee, or the estimated error of one model, is written as `energy_spread` and
    `forces_spread`, with a calibration also error bars for nine of ten errors, `energy_error_90` and
    `forces_error_90`. Other info of the structures is kept; their labels are not.
    """
    try:
        from ase import Atoms
        from ase.calculators.singlepoint import SinglePointCalculator
        from ase.io import write
    except ImportError as error:
        raise GeomAttError("Writing extxyz files needs ASE. Install it with: pip install ase") from error
    target = Path(path)
    if target.suffix.lower() not in (".xyz", ".extxyz"):
        raise GeomAttError(f"Cannot write {target}: the name must end in .extxyz or .xyz.")
    with atomic_output(target) as temporary, open(temporary, "w", encoding="utf-8") as stream:
        for structure, prediction in zip(structures, predictions, strict=True):
            atoms = Atoms(structure.numbers, structure.positions, cell=structure.cell, pbc=structure.pbc)
            atoms.info.update(structure.info)
            if structure.charge:
                atoms.info["charge"] = structure.charge
            results = {"energy": prediction.energy, "energies": prediction.atomic_energies}
            if prediction.forces is not None:
                results["forces"] = prediction.forces
            if prediction.energy_spread is not None:
                atoms.info["energy_spread"] = prediction.energy_spread
                if calibration is not None:
                    bar = calibration.energy.bar(np.array(prediction.energy_spread), LEVEL)
                    atoms.info["energy_error_90"] = float(bar)
            if prediction.forces_spread is not None:
                atoms.arrays["forces_spread"] = prediction.forces_spread
                if calibration is not None and calibration.forces is not None:
                    bar = calibration.forces.bar(prediction.forces_spread, LEVEL)
                    atoms.arrays["forces_error_90"] = bar
            atoms.calc = SinglePointCalculator(atoms, **results)
            write(stream, atoms, format="extxyz")
    return target
