"""Settings of the simulations a user can ask for. No torch here: the command line makes options of them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from geomatt.errors import GeomAttError
from geomatt.settings import Settings, check_not_negative, check_positive, setting

ENSEMBLES = ("langevin", "bussi", "nose-hoover", "nve", "npt")
STOPS = ("failure", "doubt", "never")
FORMATS = ("extxyz", "traj")
MOST_REPLICAS, LARGEST_SEED, MOST_STEPS = 100_000, 2**62, 10**15
DYNAMICS, WATCH, FILES = "Dynamics", "Watchdog", "Files"


@dataclass(frozen=True)
class MDSettings(Settings):
    """A molecular-dynamics run."""

    temperature: float = setting(
        300.0, "temperature in K; with nve, that of the first velocities", group=DYNAMICS
    )
    time: float = setting(10.0, "simulated time in ps", group=DYNAMICS)
    timestep: float = setting(0.5, "time step in fs", group=DYNAMICS)
    ensemble: str = setting(
        "langevin",
        f"{', '.join(ENSEMBLES)}; all but nve hold the temperature, and npt (periodic cells) the pressure",
        group=DYNAMICS,
        choices=ENSEMBLES,
    )
    friction: float = setting(0.01, "friction of langevin and npt in 1/fs", group=DYNAMICS)
    damping: float = setting(100.0, "relaxation time of bussi and nose-hoover in fs", group=DYNAMICS)
    pressure: float = setting(1.0, "npt: pressure in bar", group=DYNAMICS)
    pressure_time: float = setting(1000.0, "npt: relaxation time of the volume in fs", group=DYNAMICS)
    compressibility: float = setting(
        4.5e-5, "npt: compressibility in 1/bar; an estimate is enough, solids have less", group=DYNAMICS
    )
    replicas: int = setting(1, "simulations run at once, which differ in their seed", group=DYNAMICS)
    seed: int = setting(0, "seed of velocities and random forces; replica r uses seed + r", group=DYNAMICS)
    walls: bool = setting(True, "walls where the training data ends", group=WATCH)
    stop_on: str = setting(
        "failure",
        "what stops a replica: failure (bonds break, temperature runs away; the default), doubt (also "
        "leaving the training data, committee disagreement), or never",
        group=WATCH,
        choices=STOPS,
    )
    max_spread: float = setting(
        0.5, "spread of a committee about a force, in eV/Å, above which there is an alarm", group=WATCH
    )
    interval: int = setting(
        20, "steps between frames of the trajectory and checks of the watchdog", group=FILES
    )
    format: str = setting(
        "extxyz",
        "format of the trajectory: extxyz (the default), or ASE's traj",
        group=FILES,
        choices=FORMATS,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "time", "timestep", "damping", "replicas", "interval", "max_spread")
        check_positive(self, "pressure_time", "compressibility")
        for name, most in (("replicas", MOST_REPLICAS), ("seed", LARGEST_SEED)):
            if getattr(self, name) > most:
                raise GeomAttError(f"`{name}` must be at most {most}, not {getattr(self, name)}.")
        if not math.isfinite(self.pressure):
            raise GeomAttError(f"`pressure` must be a number, not {self.pressure}.")
        check_not_negative(self, "temperature", "friction", "seed")
        if self.temperature == 0 and self.ensemble != "nve":
            raise GeomAttError(f"The ensemble {self.ensemble} needs a positive `temperature`.")
        if self.timestep > 4:
            raise GeomAttError(
                f"A `timestep` of {self.timestep:g} fs is longer than half a vibration of a hydrogen atom. "
                "Use 0.5 fs, or 1 fs without light atoms."
            )
        if 1000.0 * self.time / self.timestep > MOST_STEPS:
            raise GeomAttError(
                f"A `time` of {self.time:g} ps has more than {MOST_STEPS:.0e} steps of {self.timestep:g} fs, "
                "which no computer finishes. Choose a shorter one."
            )

    @property
    def steps(self) -> int:
        """Of the whole run: those of `time`, rounded up to a multiple of `interval`."""
        blocks = 1000.0 * self.time / self.timestep / self.interval
        return max(1, math.ceil(blocks - 1e-9 * blocks)) * self.interval


RELAXATION, SCAN = "Relaxation", "Scan"
OPTIMISERS = ("bfgs", "fire")


@dataclass(frozen=True)
class RelaxSettings(Settings):
    """A geometry optimisation."""

    fmax: float = setting(0.005, "highest force on an atom at the end, in eV/Å", group=RELAXATION)
    steps: int = setting(1000, "largest number of steps", group=RELAXATION)
    optimiser: str = setting(
        "bfgs",
        "bfgs, or fire for structures that are large or far from a minimum",
        group=RELAXATION,
        choices=OPTIMISERS,
    )
    cell: bool = setting(False, "relax the cell of a periodic structure, too", group=RELAXATION)
    walls: bool = setting(True, "walls where the training data ends", group=RELAXATION)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "fmax", "steps")


@dataclass(frozen=True)
class ScanSettings(Settings):
    """A scan of a torsion or distance."""

    first: float | None = setting(
        None, "first value: degrees (-180 by default) or Å (0.3 below the present)", group=SCAN, flag="--from"
    )
    last: float | None = setting(
        None, "last value: degrees (180 by default) or Å (0.7 above the present)", group=SCAN, flag="--to"
    )
    points: int = setting(37, "number of values", group=SCAN)
    relaxed: bool = setting(False, "relax all other coordinates at every point", group=SCAN)
    fmax: float = setting(0.01, "relaxed scans: highest force at the end, in eV/Å", group=SCAN)
    steps: int = setting(300, "relaxed scans: largest number of steps at a point", group=SCAN)
    walls: bool = setting(True, "relaxed scans: walls where the training data ends", group=SCAN)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.points < 2:
            raise GeomAttError(f"`points` must be at least 2, not {self.points}.")
        RelaxSettings(fmax=self.fmax, steps=self.steps)

    def values(self, kind: str, present: float) -> np.ndarray:
        """Values of the coordinate (points,), ascending."""
        ends = (-180.0, 180.0) if kind == "torsion" else (present - 0.3, present + 0.7)
        first = ends[0] if self.first is None else self.first
        last = ends[1] if self.last is None else self.last
        if not (math.isfinite(first) and math.isfinite(last) and first < last):
            raise GeomAttError(f"The scan must go up: `first` is {first:g}, `last` is {last:g}.")
        if kind == "distance" and first <= 0.2:
            raise GeomAttError(
                f"Atoms {first:g} Å apart are on top of each other. Start the scan at `first` > 0.2."
            )
        if kind == "torsion" and last - first > 360.0 + 1e-9:
            raise GeomAttError(
                "A torsion repeats after 360 degrees. Choose `first` and `last` closer together."
            )
        return np.linspace(first, last, self.points)


SIMULATIONS: tuple[Any, ...] = (MDSettings, RelaxSettings, ScanSettings)
