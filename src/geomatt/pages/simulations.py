"""The report of a simulation: curves, what the watchdog saw, and the trajectory with its attention."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from geomatt.data.structures import Structure
from geomatt.model import AnyPotential
from geomatt.pages.explorer import Progress, describe, explorer_block, has_attention
from geomatt.pages.page import Block, Page
from geomatt.simulation.md import MDReport

FRAMES, MOST_ATOMS = 40, 200  # of the trajectory that is shown
MOST_POINTS = 500  # of a curve


def dynamics_report(
    report: MDReport,
    potential: AnyPotential,
    trajectory: Sequence[Structure] = (),
    *,
    warnings: Sequence[str] = (),
    commands: Sequence[str] = (),
    progress: Progress | None = None,
) -> Page:
    """A simulation on one page; `trajectory` are the frames of one replica."""
    settings = report.settings
    facts = [
        [
            "simulation",
            f"{settings.ensemble} at {settings.temperature:g} K, steps of {settings.timestep:g} fs",
        ],
        ["length", f"{report.steps} steps, {1e-3 * report.steps * settings.timestep:g} ps of each replica"],
        ["speed", f"{report.rate:.0f} steps per second, {report.ns_per_day:.3g} ns per day"],
    ]
    blocks: list[Block] = [{"kind": "facts", "rows": facts}]
    blocks += [{"kind": "text", "text": text, "note": True} for text in warnings]
    blocks += [_replicas(report), {"kind": "charts", "items": _curves(report)}]
    arrays: dict[str, np.ndarray] = {}
    if trajectory and len(trajectory[0]) <= MOST_ATOMS and has_attention(potential, trajectory[0]):
        blocks.append({"kind": "heading", "text": "The trajectory and its attention"})
        block, arrays = explorer_block(
            potential, trajectory, frames=FRAMES, effects=0, untrained=0, progress=progress
        )
        blocks += [{"kind": "text", "text": text, "note": True} for text in block.pop("notes")]
        blocks.append(block)
    if commands:
        blocks.append({"kind": "heading", "text": "Next"})
        blocks += [{"kind": "command", "text": command} for command in commands]
    return Page(f"Dynamics: {report.folder.name}", describe(potential), blocks, arrays)


def _replicas(report: MDReport) -> Block:
    header = [
        "replica",
        "ps",
        "mean K",
        "drift (meV/atom/ps)",
        "highest force (eV/Å)",
        "bonds changed",
        "ended",
    ]
    rows = [
        [
            str(number),
            f"{row['survived_ps']:.3g}",
            f"{row['mean_temperature_K']:.1f}",
            f"{row['drift_meV_per_atom_ps']:+.4f}",
            f"{row['highest_force_eV_per_A']:.2f}",
            str(len(row["bonds_changed"])),
            row["failure"] or ("complete" if report.finished else "interrupted"),
        ]
        for number, row in enumerate(report.outcome.rows())
    ]
    return {"kind": "table", "title": "Replicas", "header": header, "rows": rows}


def _curves(report: MDReport) -> list[Block]:
    records, size = report.outcome.records, report.outcome.sizes[0]
    every = max(1, -(-len(records.time_fs) // MOST_POINTS))
    time = records.time_fs[::every] / 1000.0
    conserved = 1000.0 * (records.conserved_energy - records.conserved_energy[0]) / size
    panels = {
        "temperature (K)": records.temperature_K,
        "potential energy − start (eV)": records.potential_energy - records.potential_energy[0],
        "conserved energy − start (meV per atom)": conserved,
    }
    if report.settings.ensemble == "npt":
        panels["volume (Å³)"] = records.volume
    return [
        {
            "title": label,
            "series": [{"x": _short(time), "y": _short(column)} for column in values[::every].T],
            "options": {"xLabel": "time (ps)", "yLabel": label},
        }
        for label, values in panels.items()
    ]


def _short(values: np.ndarray) -> list[float | None]:
    return [float(f"{v:.5g}") if np.isfinite(v) else None for v in values]
