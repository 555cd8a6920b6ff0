"""Parity plots: predictions against labels."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from geomatt.data.files import atomic_output, require_writable
from geomatt.data.structures import Dataset
from geomatt.elements import SYMBOLS
from geomatt.errors import GeomAttError
from geomatt.evaluation.result import EvaluationResult
from geomatt.units import from_ev

# Distinguishable in grey and for most colour-blind readers.
ELEMENT_COLOURS = {
    1: "#8d99ae",
    6: "#2b2d42",
    7: "#3a66c4",
    8: "#d1495b",
    9: "#4f9d69",
    15: "#e08e45",
    16: "#d4a72c",
    17: "#2f9e44",
}
MOST_POINTS = 20_000  # more points take longer and look the same


def parity_plot(result: EvaluationResult, path: str | os.PathLike[str], unit: str | None = None) -> Path:
    """Draw predicted energies and forces against their labels, with the errors; returns the path."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    target = require_writable(Path(path))
    if target.suffix.lower() not in (".png", ".pdf", ".svg"):
        raise GeomAttError(f"Cannot draw {target}: the name must end in .png, .pdf or .svg.")
    unit = unit or result.unit
    factor = from_ev(unit)
    panels = [kind for kind in ("energy", "forces") if _has(result, kind)]
    figure = Figure(figsize=(4.6 * len(panels), 4.5), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    errors = result.overall.scaled(factor)
    for axis, kind in zip(axes, panels, strict=True):
        if kind == "energy":
            assert result.data.energies is not None
            # Total energies would need too many digits on the ticks.
            mean = mean_of_composition(result.data)
            true, predicted = (result.data.energies - mean) * factor, (result.energies - mean) * factor
            _scatter(axis, true, predicted, "#2b59a8")
            label, tail = f"energy − mean ({unit})", unit
            mae, rmse = errors.energy_mae, errors.energy_rmse
        else:
            assert result.data.forces is not None
            assert result.forces is not None
            true, predicted = result.data.forces * factor, result.forces * factor
            _scatter_elements(axis, result, true, predicted)
            label, tail = f"force component ({unit}/Å)", f"{unit}/Å"
            mae, rmse = errors.forces_mae, errors.forces_rmse
        _frame(axis, true, predicted)
        axis.set_xlabel(f"reference {label}")
        axis.set_ylabel(f"predicted {label}")
        text = f"MAE  {mae:.3g} {tail}\nRMSE {rmse:.3g} {tail}"
        axis.text(0.04, 0.96, text, transform=axis.transAxes, va="top", family="monospace", fontsize=9)
    frames = f"{len(result.data)} frames"
    if result.trained:
        frames += f" ({result.trained} trained on, {'included' if result.trained_included else 'left out'})"
    figure.suptitle(frames, fontsize=10, color="#555555")
    with atomic_output(target) as temporary:
        figure.savefig(temporary, format=target.suffix[1:].lower())
    return target


def mean_of_composition(data: Dataset) -> np.ndarray:
    """For each structure the mean energy of all structures with its composition, (n,)."""
    assert data.energies is not None
    _, which = np.unique(data.composition(), axis=0, return_inverse=True)
    which = which.reshape(-1)
    return (np.bincount(which, weights=data.energies) / np.bincount(which))[which]


def _has(result: EvaluationResult, kind: str) -> bool:
    labels = result.data.energies if kind == "energy" else result.data.forces
    return labels is not None and (kind == "energy" or result.forces is not None)


def _scatter_elements(axis: Any, result: EvaluationResult, true: np.ndarray, predicted: np.ndarray) -> None:
    """Force components coloured by element, in random order so that no element covers the others."""
    from matplotlib.lines import Line2D

    palette = {z: ELEMENT_COLOURS.get(z, "#7b2d8b") for z in result.data.elements}
    colours = np.repeat(np.array([palette[int(z)] for z in result.data.numbers]), 3)
    order = np.random.default_rng(0).permutation(len(colours))
    _scatter(axis, true.reshape(-1)[order], predicted.reshape(-1)[order], colours[order])
    handles = [
        Line2D([], [], color=colour, marker="o", linestyle="none", markersize=5, label=SYMBOLS[z])
        for z, colour in palette.items()
    ]
    axis.legend(handles=handles, loc="lower right", frameon=False, fontsize=9)


def _scatter(axis: Any, true: np.ndarray, predicted: np.ndarray, colours: Any) -> None:
    stride = max(1, len(true) // MOST_POINTS)
    shown = colours if isinstance(colours, str) else colours[::stride]
    axis.scatter(true[::stride], predicted[::stride], s=6, alpha=0.5, c=shown, linewidths=0, rasterized=True)


def _frame(axis: Any, true: np.ndarray, predicted: np.ndarray) -> None:
    """The same range on both axes, and the diagonal."""
    low, high = min(true.min(), predicted.min()), max(true.max(), predicted.max())
    margin = 0.05 * (high - low) or 1.0
    limits = (low - margin, high + margin)
    axis.plot(limits, limits, color="#999999", linewidth=0.8, zorder=0)
    axis.set(xlim=limits, ylim=limits, aspect="equal")
    axis.spines[["top", "right"]].set_visible(False)
