"""Errors of a model as blocks of a report: tables, parity plots, errors by element, atom and distance."""

from __future__ import annotations

from typing import Any

import numpy as np

from geomatt.data.dataset import Dataset
from geomatt.elements import atom_labels
from geomatt.evaluation import ErrorSummary, EvaluationResult
from geomatt.evaluation.plots import mean_of_composition
from geomatt.model.calibration import LEVELS
from geomatt.pages.page import Block, chart, charts, heading, short, table, text_block
from geomatt.pages.structures import molecule_item
from geomatt.units import from_ev

MOST_POINTS = 2000  # of a plot
MOST_PAIRS = 2000  # of atoms, above which frames are not compared
WORST = 4  # frames shown


def error_blocks(result: EvaluationResult, training: Dataset | None = None) -> list[Block]:
    """Everything about the errors; with the training data, also against the distance from it."""
    unit, factor = result.unit, from_ev(result.unit)
    blocks: list[Block] = [_table(result, unit, factor)]
    if result.trained:
        what = "included, so these errors are too small" if result.trained_included else "left out"
        text = f"{result.trained} frames the model was trained or validated on are {what}."
        blocks.append(text_block(text, note=result.trained_included))
    items = _parity(result, unit, factor)
    if training is not None and (found := _by_distance(result, training, unit, factor)):
        items.append(found)
    if found := _by_spread(result, unit, factor):
        items.append(found)
    blocks += charts([*items, *_coverage(result)])
    if atoms := _by_atom(result, unit, factor):
        blocks.append(atoms)
    return blocks + _worst(result, unit, factor)


def frame_errors(result: EvaluationResult) -> np.ndarray | None:
    """Mean absolute error of the force components of each frame (n,), eV/Å; None without forces."""
    if result.forces is None or result.data.forces is None:
        return None
    each = np.abs(result.forces - result.data.forces).mean(-1)
    owner = np.repeat(np.arange(len(result.data)), result.data.sizes)
    total = np.bincount(owner, each, len(result.data))
    return np.asarray(total / np.maximum(1, result.data.sizes))


def _table(result: EvaluationResult, unit: str, factor: float) -> Block:
    header = ["", "structures", f"energy MAE ({unit})", "RMSE", f"force MAE ({unit}/Å)", "RMSE"]

    def row(name: str, errors: ErrorSummary) -> list[str]:
        own = errors.scaled(factor)
        values = (own.energy_mae, own.energy_rmse, own.forces_mae, own.forces_rmse)
        return [name, str(own.structures), *("–" if v is None else f"{v:.4g}" for v in values)]

    rows = [row("all", result.overall)]
    if len(result.per_molecule) > 1:
        rows += [row(name, errors) for name, errors in result.per_molecule.items()]
    rows += [row(f"atoms {name}", errors) for name, errors in result.per_element.items()]
    return table("Errors", header, rows)


def _parity(result: EvaluationResult, unit: str, factor: float) -> list[dict[str, Any]]:
    items = []
    if result.data.energies is not None:
        mean = mean_of_composition(result.data)
        true, predicted = (factor * (e - mean) for e in (result.data.energies, result.energies))
        items.append(_scatter("Energies", true, predicted, f"energy − mean ({unit})"))
    if result.forces is not None and result.data.forces is not None:
        true, predicted = (factor * f.ravel() for f in (result.data.forces, result.forces))
        items.append(_scatter("Force components", true, predicted, f"force ({unit}/Å)"))
    return items


def _scatter(title: str, true: np.ndarray, predicted: np.ndarray, label: str) -> dict[str, Any]:
    known = np.flatnonzero(np.isfinite(true))
    chosen = known[:: max(1, -(-len(known) // MOST_POINTS))]
    series = _points(true[chosen], predicted[chosen])
    return chart(title, series, f"reference {label}", "predicted", diagonal=True)


def _points(x: np.ndarray, y: np.ndarray) -> list[dict[str, Any]]:
    """The only series of a scatter plot."""
    return [{"kind": "points", "x": short(x), "y": short(y)}]


def _by_distance(
    result: EvaluationResult, training: Dataset, unit: str, factor: float
) -> dict[str, Any] | None:
    """Error of each frame against its distance from the nearest frame of the training data."""
    errors, numbers = frame_errors(result), training[0].numbers
    same = all(
        len(np.unique(data.sizes)) == 1 and (data.numbers.reshape(len(data), -1) == numbers).all()
        for data in (training, result.data)
    ) and len(numbers) == len(result.data[0])
    i, j = np.triu_indices(len(numbers), 1)
    if errors is None or not same or not 0 < len(i) <= MOST_PAIRS or training.pbc is not None:
        return None
    from scipy.spatial.distance import cdist

    def pair_distances(data: Dataset, most: int) -> np.ndarray:
        positions = data.positions.reshape(len(data), -1, 3)[:: max(1, -(-len(data) // most))]
        return np.linalg.norm(positions[:, i] - positions[:, j], axis=-1)

    shown = slice(None, None, max(1, -(-len(result.data) // 500)))
    away = cdist(pair_distances(result.data, 500), pair_distances(training, 2000)).min(1) / np.sqrt(len(i))
    return chart(
        "Error and distance from the training data",
        _points(away, factor * errors[shown]),
        "RMS difference of distances to the nearest training frame (Å)",
        f"force MAE of a frame ({unit}/Å)",
        zero=True,
    )


def _by_spread(result: EvaluationResult, unit: str, factor: float) -> dict[str, Any] | None:
    """Error of the force on each atom against the spread of a committee, or its estimate by one model."""
    if result.forces_spread is None or result.forces is None or result.data.forces is None:
        return None
    errors = np.linalg.norm(result.forces - result.data.forces, axis=-1)
    known = np.flatnonzero(np.isfinite(errors))
    chosen = known[:: max(1, -(-len(known) // MOST_POINTS))]
    spread = result.forces_spread[chosen]
    several = result.provenance.get("members", 1) > 1
    return chart(
        "Error and spread of the members" if several else "Error and estimated error",
        _points(factor * spread, factor * errors[chosen]),
        f"{'spread' if several else 'estimated error'} of the force on an atom ({unit}/Å)",
        f"its error ({unit}/Å)",
        zero=True,
    )


def _coverage(result: EvaluationResult) -> list[dict[str, Any]]:
    """The share of errors below the error bars, against the share that was asked for."""
    titles = {"energy": "Error bars of energies", "forces": "Error bars of forces"}
    note = "On the dotted line as many errors are below the error bars as asked for. Raw: not calibrated."
    return [
        chart(
            titles[quantity],
            [{"label": kind, "x": list(LEVELS), "y": short(y)} for kind, y in kinds.items()],
            "share asked for",
            "share found",
            note,
            diagonal=True,
        )
        for quantity, kinds in (result.coverage or {}).items()
    ]


def _by_atom(result: EvaluationResult, unit: str, factor: float) -> Block | None:
    data = result.data
    if result.forces is None or data.forces is None or len(np.unique(data.sizes)) != 1:
        return None
    numbers = data.numbers.reshape(len(data), -1)
    if not (numbers == numbers[0]).all():
        return None
    errors = np.nanmean(np.abs(result.forces - data.forces).reshape(len(data), -1, 3), axis=(0, 2))
    return {
        "kind": "bars",
        "title": "Force error by atom",
        "labels": atom_labels(numbers[0]),
        "values": short(factor * errors),
        "yLabel": f"force MAE ({unit}/Å)",
    }


def _worst(result: EvaluationResult, unit: str, factor: float) -> list[Block]:
    errors = frame_errors(result)
    if errors is None or not np.isfinite(errors).any():
        return []
    order = np.argsort(-np.nan_to_num(errors, nan=-1.0), kind="stable")[:WORST]
    starts = np.concatenate([[0], np.cumsum(result.data.sizes)])
    items = []
    for frame in order:
        rows = slice(starts[frame], starts[frame + 1])
        assert result.forces is not None
        assert result.data.forces is not None
        wrong = result.forces[rows] - result.data.forces[rows]
        note = f"force MAE {factor * errors[frame]:.4g} {unit}/Å; arrows: predicted minus reference force"
        items.append(molecule_item(result.data[int(frame)], f"Frame {frame} of the test data", note, wrong))
    return [heading("Frames with the largest errors"), {"kind": "molecules", "items": items}]
