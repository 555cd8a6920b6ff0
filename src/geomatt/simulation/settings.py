"""Settings of the simulations a user can ask for. No torch here: the command line makes options of them."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

from geomatt.errors import GeomAttError
from geomatt.model.settings import setting

ENSEMBLES = ("langevin", "bussi", "nose-hoover", "nve")
STOPS = ("failure", "doubt", "never")
FORMATS = ("extxyz", "traj")
DYNAMICS, WATCH, FILES = "Dynamics", "Watchdog", "Files"


@dataclass(frozen=True)
class MDSettings:
    """A molecular-dynamics run."""

    temperature: float = setting(300.0, "temperature in K", group=DYNAMICS)
    time: float = setting(10.0, "simulated time in ps", group=DYNAMICS)
    timestep: float = setting(0.5, "time step in fs", group=DYNAMICS)
    ensemble: str = setting(
        "langevin",
        f"{', '.join(ENSEMBLES)}; all but nve hold the temperature",
        group=DYNAMICS,
        choices=ENSEMBLES,
    )
    friction: float = setting(0.01, "friction of Langevin dynamics in 1/fs", group=DYNAMICS)
    damping: float = setting(100.0, "relaxation time of bussi and nose-hoover in fs", group=DYNAMICS)
    replicas: int = setting(1, "simulations side by side, which differ by seed", group=DYNAMICS)
    seed: int = setting(0, "seed of velocities and random forces; replicas count on from it", group=DYNAMICS)
    walls: bool = setting(True, "walls where the training data ends", group=WATCH)
    stop_on: str = setting(
        "failure",
        "what stops a replica: failure (bonds break, temperature runs away; the default), doubt (also "
        "leaving the training data, committee disagreement), or never",
        group=WATCH,
        choices=STOPS,
    )
    max_spread: float = setting(
        0.5, "disagreement of a committee about a force, in eV/Å, that is an alarm", group=WATCH
    )
    interval: int = setting(
        20, "steps between frames of the trajectory, and looks of the watchdog", group=FILES
    )
    format: str = setting(
        "extxyz",
        "of the trajectory: extxyz (the default), or traj, which is ASE's",
        group=FILES,
        choices=FORMATS,
    )

    def __post_init__(self) -> None:
        for name in ("time", "timestep", "damping", "replicas", "interval", "max_spread"):
            if not (getattr(self, name) > 0 and math.isfinite(getattr(self, name))):
                raise GeomAttError(f"`{name}` must be a positive number, not {getattr(self, name)}.")
        for name in ("temperature", "friction", "seed"):
            if not (getattr(self, name) >= 0 and math.isfinite(getattr(self, name))):
                raise GeomAttError(f"`{name}` must not be negative, but is {getattr(self, name)}.")
        for name, choices in (("ensemble", ENSEMBLES), ("stop_on", STOPS), ("format", FORMATS)):
            if getattr(self, name) not in choices:
                raise GeomAttError(
                    f"Unknown `{name}` {getattr(self, name)!r}. Use one of: {', '.join(choices)}."
                )
        if self.temperature == 0 and self.ensemble != "nve":
            raise GeomAttError(f"The ensemble {self.ensemble} needs a positive `temperature`.")
        if self.timestep > 4:
            raise GeomAttError(
                f"A `timestep` of {self.timestep:g} fs is longer than half a vibration of a hydrogen atom. "
                "Use 0.5 fs, or 1 fs without light atoms."
            )

    @property
    def steps(self) -> int:
        """Of the whole run, a multiple of `interval`."""
        return max(1, round(1000.0 * self.time / self.timestep / self.interval)) * self.interval

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)
