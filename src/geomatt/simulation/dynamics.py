"""Short molecular dynamics, with drift of the energy and mean temperature."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from geomatt.errors import GeomAttError

try:
    from ase import Atoms, units
    from ase.constraints import FixCom
    from ase.io.trajectory import Trajectory
    from ase.md.langevin import Langevin
    from ase.md.verlet import VelocityVerlet
except ImportError as error:
    raise GeomAttError("Molecular dynamics needs ASE. Install it with: pip install ase") from error


@dataclass(frozen=True)
class MDResult:
    """Result of a simulation: one entry per step, the start included."""

    ensemble: str
    time_fs: np.ndarray  # (steps + 1,)
    temperature_K: np.ndarray  # (steps + 1,)
    potential_energy: np.ndarray  # (steps + 1,) eV
    total_energy: np.ndarray  # (steps + 1,) eV
    atoms: Atoms  # where it ended, with velocities
    trajectory: Path | None = None

    @property
    def drift(self) -> float:
        """Slope of the total energy, eV per atom and ps; meaningful for NVE only."""
        if len(self.time_fs) < 2:
            return 0.0
        slope = np.polyfit(self.time_fs / 1000.0, self.total_energy - self.total_energy[0], 1)[0]
        return float(slope) / len(self.atoms)

    @property
    def fluctuation(self) -> float:
        """Standard deviation of the total energy, eV per atom; meaningful for NVE only."""
        return float(np.std(self.total_energy)) / len(self.atoms)

    def to_dict(self) -> dict[str, Any]:
        """A summary for reports."""
        return {
            "ensemble": self.ensemble,
            "steps": len(self.time_fs) - 1,
            "time_fs": float(self.time_fs[-1]),
            "mean_temperature_K": float(self.temperature_K.mean()),
            "drift_eV_per_atom_ps": self.drift if self.ensemble == "nve" else None,
            "fluctuation_eV_per_atom": self.fluctuation if self.ensemble == "nve" else None,
            "trajectory": None if self.trajectory is None else str(self.trajectory),
        }


def run_md(
    atoms: Atoms,
    calculator: Any,
    *,
    steps: int,
    timestep_fs: float = 0.5,
    temperature_K: float = 300.0,
    ensemble: Literal["nvt", "nve"] = "nvt",
    friction: float = 0.01,
    seed: int = 0,
    trajectory: str | os.PathLike[str] | None = None,
    interval: int = 10,
    progress: Callable[[int], None] | None = None,
) -> MDResult:
    """Run NVT (Langevin, `friction` in 1/fs) or NVE (velocity Verlet) from a copy of the atoms.

    Atoms without velocities get them from the Maxwell–Boltzmann distribution at the given temperature.
    Every `interval` steps a frame goes to `trajectory` (any .traj file). A simulation that diverges stops
    with an error; what was written before stays.
    """
    if steps < 1 or interval < 1 or not timestep_fs > 0 or not temperature_K >= 0 or not friction >= 0:
        raise GeomAttError(
            "Steps, interval and time step must be positive, temperature and friction not negative."
        )
    if ensemble not in ("nvt", "nve"):
        raise GeomAttError(f"Unknown ensemble {ensemble!r}. Use nvt or nve.")
    system = atoms.copy()
    system.calc = calculator
    rng = np.random.default_rng(seed)
    # The centre of mass is held by a constraint: ASE's own fixcm heats small molecules.
    if len(system) > 1:
        system.set_constraint([*system.constraints, FixCom()])
    momenta = system.get_momenta()
    if not np.any(momenta):
        width = np.sqrt(system.get_masses() * units.kB * temperature_K)
        momenta = rng.standard_normal((len(system), 3)) * width[:, None]
    system.set_momenta(momenta)  # the constraint removes the motion of the centre of mass
    step_length = timestep_fs * units.fs
    if ensemble == "nvt":
        dynamics: Any = Langevin(
            system,
            step_length,
            temperature_K=temperature_K,
            friction=friction / units.fs,
            fixcm=False,
            rng=rng,
        )
    else:
        dynamics = VelocityVerlet(system, step_length)
    rows = np.empty((steps + 1, 3))
    hot = max(20.0 * temperature_K, 20_000.0)  # no molecule is stable at this temperature
    writer = None if trajectory is None else Trajectory(os.fspath(trajectory), "w", system)
    try:
        for step in range(steps + 1):
            if step:
                dynamics.run(1)
                if progress is not None:
                    progress(1)
            rows[step] = _observe(system)
            if not np.isfinite(rows[step]).all() or rows[step, 0] > hot:
                raise GeomAttError(
                    f"The simulation diverged after {step} steps ({step * timestep_fs:g} fs): temperature "
                    f"{rows[step, 0]:.3g} K, energy {rows[step, 1]:.6g} eV. Use a shorter time step or a "
                    "lower temperature, or train the model further or on hotter data."
                )
            if writer is not None and step % interval == 0:
                writer.write()
    finally:
        if writer is not None:
            writer.close()
    return MDResult(
        ensemble,
        np.arange(steps + 1) * timestep_fs,
        rows[:, 0],
        rows[:, 1],
        rows[:, 2],
        system,
        None if trajectory is None else Path(trajectory),
    )


def _observe(system: Atoms) -> tuple[float, float, float]:
    """Temperature, potential and total energy."""
    potential = system.get_potential_energy()
    return system.get_temperature(), potential, potential + system.get_kinetic_energy()
