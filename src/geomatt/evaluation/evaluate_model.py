"""Run a model over labelled data it has not seen."""

from __future__ import annotations

import datetime
import os
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from geomatt.arguments import indices_of, require
from geomatt.data.dataset import Dataset
from geomatt.errors import GeomAttError
from geomatt.evaluation.result import EvaluationResult
from geomatt.model import AnyPotential, Prediction, loaded
from geomatt.model.files import fingerprint
from geomatt.units import energy_unit


def evaluate(
    model: AnyPotential | str | os.PathLike[str],
    dataset: Dataset,
    *,
    indices: Sequence[int] | np.ndarray | None = None,
    exclude_trained: bool = True,
    unit: str | None = None,
    batch_size: int = 32,
    progress: Callable[[int], None] | None = None,
) -> EvaluationResult:
    """Errors on labelled data. Frames the model was trained or validated on are left out and counted.

    `indices` chooses frames; `unit` is the unit of reports, by default that of the model's training data.
    `progress` is called with the number of frames done since the last call.
    """
    potential = loaded(model)
    report = energy_unit(unit or potential.record.get("report_unit") or "eV")
    require("data", dataset, Dataset, "geomatt.read(FILE)")
    if dataset.energies is None and dataset.forces is None:
        raise GeomAttError("The data has neither energies nor forces, so there is nothing to compare with.")
    chosen = np.arange(len(dataset)) if indices is None else indices_of("indices", indices)
    if len(chosen) and not (chosen.min() >= -len(dataset) and chosen.max() < len(dataset)):
        raise GeomAttError(f"The indices must lie below the number of frames, {len(dataset)}.")
    data = dataset.select(chosen)
    seen = potential.trained_frames
    known = (
        np.array([h in seen for h in data.frame_hashes()], dtype=bool) if seen else np.zeros(len(data), bool)
    )
    unlisted = sum(member.record.get("frames_not_listed", 0) for member in potential.members)
    if unlisted and exclude_trained and indices is None:
        warnings.warn(
            f"The model was trained on {unlisted:,} frames, too many to list in its file: frames of the data "
            "that were among them are not recognised.",
            stacklevel=2,
        )
    if exclude_trained and known.any():
        if known.all():
            raise GeomAttError(
                f"All {len(data)} frames were used to train or validate this model, so no frame is left. "
                "Give other data, or ask for `include_trained` frames (in Python: exclude_trained=False)."
            )
        data = data.select(np.flatnonzero(~known))
    if not len(data):
        raise GeomAttError("There is no frame to evaluate.")
    predictions = potential.predict(
        data,
        forces=data.forces is not None or data.stress is not None,
        batch_size=batch_size,
        progress=progress,
        check_domain=False,  # the labels show what extrapolation costs
        spread=True,
    )
    spread = predictions[0].energy_spread is not None
    return EvaluationResult(
        data=data,
        energies=np.array([p.energy for p in predictions]),
        forces=_stack([p.forces for p in predictions]),
        trained=int(known.sum()),
        trained_included=not exclude_trained,
        energies_spread=np.array([p.energy_spread for p in predictions]) if spread else None,
        forces_spread=_stack([p.forces_spread for p in predictions]) if spread else None,
        stress=_stress(predictions, data),
        unit=report,
        calibration=potential.calibration,
        provenance=_provenance(potential, dataset),
    )


def _stack(arrays: list[np.ndarray | None]) -> np.ndarray | None:
    there = [a for a in arrays if a is not None]
    return np.concatenate(there) if there else None


def _stress(predictions: Sequence[Prediction], data: Dataset) -> np.ndarray | None:
    """Predicted stress (n, 3, 3), nan where there is none; None for data without labels of it."""
    if data.stress is None:
        return None
    unknown = np.full((3, 3), np.nan)
    return np.array([unknown if p.stress is None else p.stress for p in predictions])


def _provenance(potential: AnyPotential, dataset: Dataset) -> dict[str, Any]:
    """Provenance of the errors: model, data, version and hardware."""
    from geomatt import __version__
    from geomatt.training.record import hardware

    return {
        "geomatt": __version__,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "model_sha256": fingerprint(potential),
        "members": len(potential.members),
        "dtype": str(potential.dtype).removeprefix("torch."),
        "data": dataset.name,
        "data_origin": dataset.provenance,
        "data_sha256": dataset.fingerprint(),
        "hardware": hardware(str(potential.device)),
    }
