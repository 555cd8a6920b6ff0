"""Results of a simulation as files: numbers in JSON, series in npz, and a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from geomatt.data.files import atomic_output
from geomatt.drawing import SERIES as COLOURS
from geomatt.model import AnyPotential
from geomatt.simulation.figures import panels
from geomatt.simulation.md import MDReport, Saved
from geomatt.simulation.monitor import SERIES as NAMES
from geomatt.simulation.results import write_json

RESULT, SERIES, PLOT = "md.json", "series.npz", "md.png"
MOST_POINTS = 2000  # of a curve


def write_results(report: MDReport, potential: AnyPotential) -> dict[str, Path]:
    """Write all files into the folder of the run; returns them by what they hold."""
    folder = report.folder
    files = {"numbers": folder / RESULT, "series": folder / SERIES, "plot": folder / PLOT}
    write_json(summary(report, potential), files["numbers"])
    records = report.outcome.records
    with atomic_output(files["series"]) as temporary, open(temporary, "wb") as stream:
        np.savez_compressed(stream, **{name: getattr(records, name) for name in ("time_fs", *NAMES)})
    draw(report, files["plot"])
    return files


def summary(report: MDReport, potential: AnyPotential) -> dict[str, Any]:
    """Everything worth keeping as plain values."""
    saved = Saved.read(report.folder)
    return {
        "model": saved.model,
        "fingerprint": saved.fingerprint,
        "settings": report.settings.to_dict(),
        "atoms": len(saved.start),
        "steps": report.steps,
        "picoseconds": 1e-3 * report.steps * report.settings.timestep,
        "finished": report.finished,
        "seconds": report.seconds,
        "steps_per_second": report.rate,
        "ns_per_day": report.ns_per_day,
        "replicas": report.outcome.rows(),
        "frames_to_label": report.to_label,
        "device": str(potential.device),
        "dtype": str(potential.dtype).removeprefix("torch."),
        "torch": str(torch.__version__),
    }


def draw(report: MDReport, path: Path) -> None:
    """Temperature, potential energy and conserved energy over time, a line for each replica."""
    records, size = report.outcome.records, report.outcome.sizes[0]
    every = max(1, len(records.time_fs) // MOST_POINTS)
    time = records.time_fs[::every] / 1000.0
    curves = [
        ("temperature (K)", records.temperature_K[::every]),
        ("potential energy (eV)", records.potential_energy[::every] - records.potential_energy[0]),
        ("conserved energy\n(meV/atom)",
         1000.0 * (records.conserved_energy[::every] - records.conserved_energy[0]) / size),
    ]  # fmt: skip
    if report.settings.ensemble == "npt":
        curves.append(("volume (Å³)", records.volume[::every]))
    with panels(path, len(curves), 7.0, 0.5 + 2.0 * len(curves)) as axes:
        for axis, (label, values) in zip(axes, curves, strict=True):
            for r, column in enumerate(values.T):
                axis.plot(time, column, lw=0.8, color=COLOURS[r % len(COLOURS)])
            axis.set_ylabel(label)
        axes[0].axhline(report.settings.temperature, color="black", lw=0.6, ls="--")
        axes[-1].set_xlabel("time (ps)")
