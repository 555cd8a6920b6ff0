"""Error bars of a model or a committee, calibrated on validation frames when training ends."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from geomatt.data.batch import collate
from geomatt.data.dataset import Dataset
from geomatt.model import Committee, Potential, Prediction
from geomatt.model.calibration import Calibration, Scale, force_errors, identity
from geomatt.model.surroundings import Estimate, Surroundings


def calibrate(members: Sequence[Potential], validation: Dataset, folder: Path) -> Calibration:
    """Error bars from the spread of the members on their common validation frames, stored with the run."""
    predictions = _predictions(Committee(list(members)), validation)
    found = _calibration(predictions, validation, members)
    found.write(folder)
    return found


def with_error_bars(potential: Potential, training: Dataset, validation: Dataset) -> Potential:
    """A single model with error bars from the surroundings of its training frames.

    Unchanged for periodic data, for which there are none.
    """
    surroundings = Surroundings.measure(training)
    if surroundings is None or (validation.pbc is not None and validation.pbc.any()):
        return potential
    assert validation.energies is not None
    predictions = _predictions(potential, validation)
    distances = [
        surroundings.distance(collate([structure], torch.float64))[0].numpy() for structure in validation
    ]
    estimate = Estimate.fit(
        surroundings,
        distances,
        np.array([p.energy for p in predictions]) - validation.energies,
        validation.numbers,
        _force_errors(predictions, validation),
    )
    bars = replace(potential, estimate=estimate)
    return replace(bars, calibration=_calibration(_predictions(bars, validation), validation, [potential]))


def _predictions(model: Potential | Committee, validation: Dataset) -> list[Prediction]:
    forces = validation.forces is not None
    with warnings.catch_warnings():  # what is doubtful about the labels was said when training began
        warnings.simplefilter("ignore", UserWarning)
        return model.predict(validation, forces=forces, check_domain=False, spread=True)


def _force_errors(predictions: Sequence[Prediction], validation: Dataset) -> np.ndarray | None:
    """Lengths of the errors of forces (atoms,), nan where no label is known; None without labels."""
    if validation.forces is None:
        return None
    found = force_errors(np.concatenate([p.forces for p in predictions]), validation.forces)
    return np.where(np.repeat(validation.has_forces, validation.sizes), found, np.nan)


def _calibration(
    predictions: Sequence[Prediction], validation: Dataset, members: Sequence[Potential]
) -> Calibration:
    assert validation.energies is not None
    energy = Scale.fit(
        np.array([p.energy for p in predictions]) - validation.energies,
        np.array([p.energy_spread for p in predictions]),
    )
    forces, error = None, _force_errors(predictions, validation)
    spreads = [p.forces_spread for p in predictions if p.forces_spread is not None]
    if error is not None and spreads and np.isfinite(error).any():
        known = np.isfinite(error)
        forces = Scale.fit(error[known], np.concatenate(spreads)[known])
    return Calibration(energy, forces, len(validation), identity(members))
