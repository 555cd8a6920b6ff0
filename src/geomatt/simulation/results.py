"""Result files of dynamics, relaxations, vibrations and scans: numbers in JSON, arrays in npz, pictures."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from geomatt.data.dataset import Dataset
from geomatt.data.io.readers import write
from geomatt.drawing import SERIES as COLOURS
from geomatt.drawing import new_figure, save_figure, style
from geomatt.elements import ATOMIC_MASSES
from geomatt.files import atomic_output, atomic_write, finite
from geomatt.simulation.monitor import SERIES
from geomatt.units import from_ev

if TYPE_CHECKING:
    from geomatt.model import AnyPotential
    from geomatt.simulation.md import MDReport
    from geomatt.simulation.normal_modes import Vibrations
    from geomatt.simulation.relaxation import Relaxed
    from geomatt.simulation.scans import ReferenceCurve, Scan


MOST_POINTS = 2000  # of a curve


def write_json(values: dict[str, Any], path: Path) -> None:
    """Plain values as JSON, with None for those that are no finite number."""
    from geomatt import __version__

    content = finite({**values, "geomatt": __version__})
    atomic_write(path, (json.dumps(content, indent=2) + "\n").encode())


@contextmanager
def panels(path: Path, rows: int, width: float, height: float) -> Iterator[list[Any]]:
    """Axes to draw on, which share their x axis; the figure is written at the end. Sizes in inches."""
    with style():
        figure = new_figure(width, height)
        axes = list(figure.subplots(rows, 1, squeeze=False, sharex=True)[:, 0])
        for axis in axes:
            axis.spines[["top", "right"]].set_visible(False)
        yield axes
        save_figure(figure, path)


def write_results(report: MDReport, potential: AnyPotential) -> dict[str, Path]:
    """Write all files into the folder of the run; returns them by what they hold."""
    folder = report.folder
    names = {"numbers": "md.json", "series": "series.npz", "plot": "md.png"}
    files = {what: folder / name for what, name in names.items()}
    write_json(_summary(report, potential), files["numbers"])
    records = report.outcome.records
    _write_arrays(files["series"], **{name: getattr(records, name) for name in ("time_fs", *SERIES)})
    _draw_dynamics(report, files["plot"])
    return files


def _summary(report: MDReport, potential: AnyPotential) -> dict[str, Any]:
    """Everything worth keeping as plain values."""
    from geomatt.simulation.md import Saved

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


def _draw_dynamics(report: MDReport, path: Path) -> None:
    """Temperature, potential energy and conserved energy over time, a line for each replica."""
    time, curves = dynamics_curves(report, MOST_POINTS)
    with panels(path, len(curves), 7.0, 0.5 + 2.0 * len(curves)) as axes:
        for axis, (label, values) in zip(axes, curves.items(), strict=True):
            for r, column in enumerate(values.T):
                axis.plot(time, column, lw=0.8, color=COLOURS[r % len(COLOURS)])
            axis.set_ylabel(label.replace(" (", "\n("))
        axes[0].axhline(report.settings.temperature, color="black", lw=0.6, ls="--")
        axes[-1].set_xlabel("time (ps)")


def dynamics_curves(report: MDReport, most: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Times (T,) in ps, at most so many of them, and by label what is drawn against them (T, R)."""
    records, size = report.outcome.records, report.outcome.sizes[0]
    every = max(1, -(-len(records.time_fs) // most))
    conserved = 1000.0 * (records.conserved_energy - records.conserved_energy[0]) / size
    curves = {
        "temperature (K)": records.temperature_K,
        "potential energy − start (eV)": records.potential_energy - records.potential_energy[0],
        "conserved energy − start (meV/atom)": conserved,
    }
    if report.settings.ensemble == "npt":
        curves["volume (Å³)"] = records.volume
    return records.time_fs[::every] / 1000.0, {label: values[::every] for label, values in curves.items()}


def replica_cells(report: MDReport) -> list[list[str]]:
    """Of each replica: number, ps, mean K, drift, highest force, bonds changed, % of steps at walls, end."""
    return [
        [
            str(number),
            f"{row['survived_ps']:.3g}",
            _finite(row["mean_temperature_K"], ".1f"),
            _finite(row["drift_meV_per_atom_ps"], "+.4f"),
            _finite(row["highest_force_eV_per_A"], ".2f"),
            str(len(row["bonds_changed"])),
            f"{100 * row['wall_share']:.2f}",
            row["failure"] or ("complete" if report.finished else "interrupted"),
        ]
        for number, row in enumerate(report.outcome.rows())
    ]


def _finite(value: float, form: str) -> str:
    """A number in words; a dash if nothing was observed, as in a run that stopped at once."""
    return format(value, form) if np.isfinite(value) else "–"


def draw_relaxation(results: Sequence[Relaxed], path: Path) -> None:
    """Energy above the end, and highest force, step by step."""
    with panels(path, 2, 6.0, 5.0) as (energy, force):
        for number, result in enumerate(results):
            colour = COLOURS[number % len(COLOURS)]
            above = 1000.0 * (result.energies - result.energies.min())
            energy.plot(above, color=colour, marker=".", lw=1)
            force.plot(result.fmax, color=colour, marker=".", lw=1)
        energy.set_ylabel("energy above the lowest (meV)")
        energy.set_yscale("symlog", linthresh=1.0)
        force.set_ylabel("highest force (eV/Å)")
        force.set_yscale(
            "log" if any((r.fmax > 0).any() for r in results) else "linear"
        )  # one atom has no force
        force.set_xlabel("step")


def write_modes(found: Vibrations, folder: Path) -> dict[str, Path]:
    """Structure, modes as trajectories and as arrays; returns the files by what they hold."""
    files = {
        "structure": folder / "relaxed.extxyz",
        "modes": folder / "modes",
        "arrays": folder / "vibrations.npz",
    }
    write(Dataset.from_structures([found.structure]), files["structure"])
    files["modes"].mkdir(exist_ok=True)
    for old in files["modes"].glob("mode_*.extxyz"):
        old.unlink()
    for number, value in enumerate(found.wavenumbers):
        name = f"mode_{number + 1:03}_{abs(value):.0f}{'i' if value < 0 else ''}cm-1.extxyz"
        write(Dataset.from_structures(found.frames(number)), files["modes"] / name)
    if len(found.imaginary):
        both = [found.displaced(n, sign * 0.1) for n in found.imaginary.tolist() for sign in (1, -1)]
        files["moved along the imaginary modes"] = folder / "displaced.extxyz"
        write(Dataset.from_structures(both), files["moved along the imaginary modes"])
    _write_arrays(
        files["arrays"],
        numbers=found.structure.numbers,
        positions=found.structure.positions,
        wavenumbers=found.wavenumbers,
        modes=found.modes,
        normal_modes=found.normal,  # dμ/dQ = Σ dμ/dx · normal / √m gives infrared intensities
        masses=ATOMIC_MASSES[found.structure.numbers - 1],
        reduced_masses=found.reduced_masses,
        hessian=found.hessian,
    )
    return files


def _write_arrays(path: Path, **arrays: Any) -> None:
    with atomic_output(path) as temporary, open(temporary, "wb") as stream:
        np.savez_compressed(stream, **arrays)


def draw_vibrations(found: Vibrations, path: Path) -> None:
    """The density of states: each mode as a line, and broadened."""
    with panels(path, 1, 7.0, 3.2) as (axis,):
        values = found.wavenumbers
        grid = np.linspace(min(0.0, values.min() - 100.0), values.max() + 200.0, 2000)
        axis.plot(grid, np.exp(-0.5 * ((grid[:, None] - values) / 15.0) ** 2).sum(1), color=COLOURS[0], lw=1)
        colours = [COLOURS[1] if value < 0 else "black" for value in values]
        axis.vlines(values, 0.0, 0.5, color=colours, lw=0.8)
        axis.set_xlabel(
            "wavenumber (cm⁻¹); imaginary ones are negative" if (values < 0).any() else "wavenumber (cm⁻¹)"
        )
        axis.set_ylabel("modes, broadened by 15 cm⁻¹")
        axis.set_ylim(0.0)


def draw_scan(found: Scan, references: Sequence[ReferenceCurve], unit: str, path: Path) -> None:
    """The curve of the model and those of the references, each above its lowest point."""
    factor = from_ev(unit)
    with panels(path, 1, 6.0, 4.0) as (axis,):
        above = factor * (found.energies - found.energies.min())
        axis.plot(found.values, above, color=COLOURS[0], marker="o", ms=3, lw=1.2, label="model")
        if found.spread is not None:
            half = factor * found.spread
            axis.fill_between(found.values, above - half, above + half, color=COLOURS[0], alpha=0.2, lw=0)
        for number, reference in enumerate(references):
            energy = factor * (reference.energies - reference.energies.min())
            style = {"marker": "s", "ms": 3, "lw": 1, "ls": "--", "color": COLOURS[1 + number]}
            axis.plot(reference.values, energy, label=reference.name, **style)
        if found.outside is not None and found.outside.any():
            there = found.values[found.outside], above[found.outside]
            hollow = {"marker": "o", "ms": 6, "ls": "", "mfc": "white", "mec": COLOURS[0]}
            axis.plot(*there, label="model, outside its training data", **hollow)
            axis.legend(frameon=False)
        kind = f"{found.coordinate.kind} {found.coordinate.name(found.structures[0])}"
        axis.set_xlabel(f"{kind} ({'degrees' if found.coordinate.kind == 'torsion' else 'Å'})")
        axis.set_ylabel(f"{'relaxed' if found.relaxed else 'rigid'} energy ({unit})")
        if references:
            axis.legend(frameon=False)
