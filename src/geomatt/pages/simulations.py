"""The report of a simulation: curves, what the watchdog saw, and the trajectory with its attention."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from geomatt.data.structures import Structure
from geomatt.model import AnyPotential
from geomatt.pages.explorer import Progress, describe, explorer_block, has_attention
from geomatt.pages.page import Block, Page, chart, charts, facts, heading, notes, short, table
from geomatt.simulation.md import MDReport
from geomatt.simulation.results import dynamics_curves, replica_cells

FRAMES, MOST_ATOMS = 40, 200  # of the trajectory that is shown
MOST_POINTS = 500  # of a curve
HEADER = (
    "replica", "ps", "mean K", "drift (meV/atom/ps)", "highest force (eV/Å)", "bonds changed",
    "walls acted (% of steps)", "ended",
)  # fmt: skip


def dynamics_report(
    report: MDReport,
    potential: AnyPotential,
    trajectory: Sequence[Structure] = (),
    *,
    warnings: Sequence[str] = (),
    progress: Progress | None = None,
) -> Page:
    """A simulation on one page; `trajectory` are the frames of one replica."""
    settings = report.settings
    picoseconds = 1e-3 * report.steps * settings.timestep
    about = {
        "simulation": f"{settings.ensemble} at {settings.temperature:g} K, steps of {settings.timestep:g} fs",
        "length": f"{report.steps} steps, {picoseconds:g} ps of each replica",
        "speed": f"{report.rate:.0f} steps per second, {report.ns_per_day:.3g} ns per day",
    }
    time, curves = dynamics_curves(report, MOST_POINTS)
    items = [
        chart(label, [{"x": short(time, 5), "y": short(y, 5)} for y in values.T], "time (ps)", label)
        for label, values in curves.items()
    ]
    blocks: list[Block] = [facts(about.items()), *notes(warnings)]
    blocks += [table("Replicas", HEADER, replica_cells(report)), *charts(items)]
    arrays: dict[str, np.ndarray] = {}
    if trajectory and len(trajectory[0]) <= MOST_ATOMS and has_attention(potential, trajectory[0]):
        block, arrays = explorer_block(
            potential, trajectory, frames=FRAMES, effects=0, untrained=0, progress=progress
        )
        blocks += [heading("The trajectory and its attention"), *notes(block.pop("notes")), block]
    return Page(f"Dynamics: {report.folder.name}", describe(potential), blocks, arrays)
