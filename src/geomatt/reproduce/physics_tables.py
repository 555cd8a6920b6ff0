"""Tables and figures of the experiment physics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from geomatt.drawing import SERIES, new_figure
from geomatt.reproduce.published import NOT_RUN, title
from geomatt.reproduce.table import ResultTable

REFERENCE = "GFN2-xTB"


def dynamics_table(result: Mapping[str, Any]) -> ResultTable:
    rows, steps = result["rows"], result["settings"]["steps"]
    lines = []
    for molecule in (name.rpartition("/")[2] for name in result["data"]):
        nve, nvt, own = (rows[part].get(molecule) for part in ("nve", "nvt", "own"))
        line = [title(molecule), (nve or nvt or own or {}).get("kind", NOT_RUN)]
        line.append(NOT_RUN if nve is None else f"{nve['drift_meV_per_atom_ps']:+.2g}")
        line += _outcome(nvt)
        line.append(NOT_RUN if own is None else f"{own['data_K']:.0f} ± {own['data_K_error']:.0f}")
        lines.append(line + _outcome(own))
    return ResultTable(
        "physics-dynamics",
        "Dynamics of models of MD17",
        ["molecule", "model", "drift", "500 K", "h(r) error", "walls, %", "data, K", "at that", "h(r) error",
         "walls, %"],
        lines,
        f"Drift in meV/atom/ps: NVE, 300 K, 0.5 fs, {steps['nve']:,} steps. Langevin dynamics at 500 K: "
        f"{steps['nvt']:,} steps; at the temperature of the data, with its standard error: {steps['own']:,} "
        "steps. h(r) error: integrated difference of the distribution of distances from that of the "
        "reference trajectory (0 to 2). Walls: share of steps in which one acted.",
        labels=2,
    )  # fmt: skip


def _outcome(row: Mapping[str, Any] | None) -> list[str]:
    """The end of a simulation in words, its error of h(r) and the share of steps with walls."""
    if row is None:
        return [NOT_RUN] * 3
    state = "intact" if not row["failure"] else f"{row['survived_ps']:.1f} ps"
    return [state, f"{row['histogram_error']:.3f}", f"{100 * row['wall_share']:.2f}"]


def xtb_table(found: Mapping[str, Any] | None) -> ResultTable:
    lines = []
    if found is not None:
        torsion, spectrum = found["torsion"], found["spectrum"]
        lines = [
            ["torsion barrier, meV",
             *(f"{1000 * torsion[f'barrier_{x}_eV']:.1f}" for x in ("model", "reference"))],
            ["torsion, RMS difference, meV", f"{1000 * torsion['rms_eV']:.1f}", ""],
            ["mean above 3300 cm⁻¹ (O–H stretch)",
             *(f"{spectrum[f'stretch_{x}']:.0f}" for x in ("model", "reference"))],
            ["overlap of the spectra, %", f"{100 * spectrum['overlap']:.0f}", ""],
            ["overlap of two halves of the runs, %",
             *(f"{100 * spectrum[f'halves_{x}']:.0f}" for x in ("model", "reference"))],
            ["largest drift, meV/atom/ps",
             *(f"{spectrum[f'drift_{x}']:.4f}" for x in ("model", "reference"))],
        ]  # fmt: skip
    note = "A model trained on 800 frames of the GFN2-xTB trajectory of ethanol that ships with the package."
    return ResultTable("physics-xtb", f"Ethanol against {REFERENCE}", ["", "model", REFERENCE], lines, note)


def torsion_figure(found: Mapping[str, Any]) -> Any:
    figure = new_figure(4.5, 3.0)
    axis = figure.subplots()
    torsion = found["torsion"]
    for name, label, style in (("model", "model", "o-"), ("reference", REFERENCE, "s--")):
        energy = 1000.0 * np.array(torsion[f"{name}_eV"])
        colour = SERIES[0] if name == "model" else SERIES[1]
        axis.plot(torsion["values"], energy, style, color=colour, ms=3, lw=1, label=label)
    axis.set_xlabel("torsion C–C–O–H (degrees)")
    axis.set_ylabel("energy (meV)")
    axis.legend()
    return figure


def spectrum_figure(found: Mapping[str, Any]) -> Any:
    figure = new_figure(6.0, 2.8)
    axis = figure.subplots()
    spectrum = found["spectrum"]
    for name, label, sign in (("model", "model", 1.0), ("reference", REFERENCE, -1.0)):
        colour = SERIES[0] if sign > 0 else SERIES[1]
        axis.plot(spectrum["wavenumbers"], sign * np.array(spectrum[name]), color=colour, lw=0.8, label=label)
    axis.axhline(0.0, color="black", lw=0.4)
    axis.set_xlabel("wavenumber (cm⁻¹)")
    axis.set_yticks([])
    axis.set_ylabel("density of states")
    axis.legend()
    return figure
