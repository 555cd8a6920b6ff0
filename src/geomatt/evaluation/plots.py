"""Parity plots: predictions against labels."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from geomatt.data.dataset import Dataset
from geomatt.drawing import figure_path, new_figure, save_figure
from geomatt.elements import SYMBOLS
from geomatt.errors import GeomAttError
from geomatt.evaluation.result import EvaluationResult
from geomatt.model.calibration import LEVELS
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
    target = figure_path(path)
    unit = unit or result.unit
    factor = from_ev(unit)
    data, errors = result.data, result.overall.scaled(factor)
    panels: list[tuple[str, str, Any, np.ndarray, np.ndarray, Any]] = []
    if data.energies is not None:
        # Total energies would need too many digits on the ticks.
        mean = mean_of_composition(data)
        energies = (data.energies - mean, result.energies - mean)
        panels.append(("energy − mean", unit, (errors.energy_mae, errors.energy_rmse), *energies, None))
    if data.forces is not None and result.forces is not None:
        forces = (data.forces, result.forces)
        mistakes = (errors.forces_mae, errors.forces_rmse)
        panels.append(("force component", f"{unit}/Å", mistakes, *forces, data))
    figure = new_figure(4.6 * len(panels), 4.5, dpi=150)
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for axis, (name, per, (mae, rmse), true, predicted, by_element) in zip(axes, panels, strict=True):
        true, predicted = true * factor, predicted * factor
        if by_element is None:
            _scatter(axis, true, predicted, "#2b59a8")
        else:
            _scatter_elements(axis, by_element, true, predicted)
        _frame(axis, true, predicted)
        axis.set(xlabel=f"reference {name} ({per})", ylabel=f"predicted {name} ({per})")
        text = f"MAE  {mae:.3g} {per}\nRMSE {rmse:.3g} {per}"
        axis.text(0.04, 0.96, text, transform=axis.transAxes, va="top", family="monospace", fontsize=9)
    frames = f"{len(data)} frames"
    if result.trained:
        frames += f" ({result.trained} trained on, {'included' if result.trained_included else 'left out'})"
    figure.suptitle(frames, fontsize=10, color="#555555")
    return save_figure(figure, target)


def calibration_plot(result: EvaluationResult, path: str | os.PathLike[str]) -> Path:
    """Draw the share of errors below the error bars of a committee against the share that was asked for."""
    target = figure_path(path)
    if result.coverage is None:
        raise GeomAttError("There is no calibration to draw: only committees of several members have one.")
    figure = new_figure(4.2 * len(result.coverage), 4.2, dpi=150)
    axes = figure.subplots(1, len(result.coverage), squeeze=False)[0]
    for axis, (kind, shares) in zip(axes, result.coverage.items(), strict=True):
        axis.plot([0, 1], [0, 1], color="#999999", linewidth=0.8, label="ideal")
        axis.plot(LEVELS, shares["calibrated"], "o-", color="#2b59a8", markersize=3, label="calibrated")
        axis.plot(LEVELS, shares["raw"], "s--", color="#d1495b", markersize=3, label="spread as it is")
        axis.set(xlim=(0, 1), ylim=(0, 1), aspect="equal", title=kind)
        axis.set_xlabel("share of errors asked for")
        axis.set_ylabel("share of errors below the error bar")
        axis.spines[["top", "right"]].set_visible(False)
        axis.legend(frameon=False, fontsize=9)
    return save_figure(figure, target)


def mean_of_composition(data: Dataset) -> np.ndarray:
    """For each structure the mean energy of all structures with its composition, (n,)."""
    assert data.energies is not None
    _, which = np.unique(data.composition(), axis=0, return_inverse=True)
    which = which.reshape(-1)
    return (np.bincount(which, weights=data.energies) / np.bincount(which))[which]


def _scatter_elements(axis: Any, data: Dataset, true: np.ndarray, predicted: np.ndarray) -> None:
    """Force components coloured by element, in random order so that no element covers the others."""
    from matplotlib.lines import Line2D

    palette = {z: ELEMENT_COLOURS.get(z, "#7b2d8b") for z in data.elements}
    colours = np.repeat(np.array([palette[int(z)] for z in data.numbers]), 3)
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
    both = np.stack([true, predicted])
    low, high = np.nanmin(both), np.nanmax(both)
    margin = 0.05 * (high - low) or 1.0
    limits = (low - margin, high + margin)
    axis.plot(limits, limits, color="#999999", linewidth=0.8, zorder=0)
    axis.set(xlim=limits, ylim=limits, aspect="equal")
    axis.spines[["top", "right"]].set_visible(False)
