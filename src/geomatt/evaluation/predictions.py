"""Predictions as an extxyz file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from geomatt.data.io.extxyz import frame_text
from geomatt.data.structures import Structure
from geomatt.errors import GeomAttError
from geomatt.files import atomic_output
from geomatt.model.calibration import Calibration
from geomatt.model.output import Prediction

LEVEL = 0.9  # of error bars


def write_predictions(
    structures: Sequence[Structure],
    predictions: Sequence[Prediction],
    path: str | os.PathLike[str],
    calibration: Calibration | None = None,
) -> Path:
    """Write structures with predicted energy, forces, stress and atomic energies (`energies`), in eV and Å.

    The spread of a committee, or the estimated error of one model, is written as `energy_spread` and
    `forces_spread`, with a calibration also error bars for nine of ten errors, `energy_error_90` and
    `forces_error_90`. Other info of the structures is kept; their labels are not.
    """
    target = Path(path)
    if target.suffix.lower() not in (".xyz", ".extxyz"):
        raise GeomAttError(f"Cannot write {target}: the name must end in .extxyz or .xyz.")
    with atomic_output(target) as temporary, open(temporary, "w", encoding="utf-8") as stream:
        for structure, prediction in zip(structures, predictions, strict=True):
            stream.write(_frame(structure, prediction, calibration))
    return target


def _frame(structure: Structure, found: Prediction, calibration: Calibration | None) -> str:
    info, columns = dict(structure.info), {"energies": found.atomic_energies}
    if found.energy_spread is not None:
        info["energy_spread"] = found.energy_spread
        if calibration is not None:
            info["energy_error_90"] = float(calibration.energy.bar(np.array(found.energy_spread), LEVEL))
    if found.forces_spread is not None:
        columns["forces_spread"] = found.forces_spread
        if calibration is not None and calibration.forces is not None:
            columns["forces_error_90"] = calibration.forces.bar(found.forces_spread, LEVEL)
    labelled = replace(structure, energy=found.energy, forces=found.forces, stress=found.stress, info=info)
    return frame_text(labelled, columns)
