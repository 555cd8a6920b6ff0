"""Molecular dynamics in a folder: trajectories, a watchdog, results, and a file to continue from.

A kill at any moment loses nothing but the time since the last checkpoint: trajectories are cut back to it
and written again, on a CPU bit by bit as without the interruption.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from geomatt.arguments import path_of, require
from geomatt.data.batch import collate
from geomatt.data.bonds import bond_matrix, distances
from geomatt.data.structures import AtomsLike, Structure
from geomatt.elements import formula
from geomatt.errors import GeomAttError
from geomatt.files import locked_folder
from geomatt.model import AnyPotential, fingerprint
from geomatt.model.domain import MOST_WATCHED, Bonds
from geomatt.simulation.batched import BatchedDynamics
from geomatt.simulation.ensembles import DynamicsConfig
from geomatt.simulation.forces import PeriodicForces, PotentialForces
from geomatt.simulation.inputs import Model, given, warn_if_unstable
from geomatt.simulation.outcome import Outcome, Part
from geomatt.simulation.pressure import Barostat
from geomatt.simulation.replicas import Group, Replica
from geomatt.simulation.restart import read_extra
from geomatt.simulation.settings import MDSettings
from geomatt.simulation.trajectory import TrajectoryFile, open_trajectory
from geomatt.simulation.watchdog import DOUBTS, HOT, Watch, words
from geomatt.training.interruption import stop_on_signal

RESTART, TO_LABEL = "restart.safetensors", "to_label.extxyz"
MOST_TO_LABEL = 200  # frames
CHUNK = 0.5  # seconds between looks at signals and progress
LARGEST_CHUNK = 500  # observations
_KEPT = ("numbers", "positions", "cell", "pbc", "charge", "multiplicity")  # of the structure at the start


@dataclass(frozen=True)
class MDProgress:
    """Where a run is."""

    steps: int
    total: int
    rate: float  # steps per second
    alive: int  # replicas that still move


@dataclass(frozen=True)
class MDReport:
    """A run that has ended, been stopped, or been interrupted."""

    outcome: Outcome
    settings: MDSettings
    folder: Path
    steps: int
    seconds: float  # of this process
    rate: float  # steps per second
    to_label: int  # frames saved for labelling
    signal: int  # that interrupted the run; 0 if none did

    @property
    def ns_per_day(self) -> float:
        """Of one replica."""
        return self.rate * self.settings.timestep * 86400e-6

    @property
    def finished(self) -> bool:
        return self.steps >= self.settings.steps or not self.outcome.intact.any()


@dataclass(frozen=True)
class Saved:
    """The record of the run in the file to continue from."""

    model: str
    fingerprint: str
    settings: MDSettings
    start: Structure
    marks: dict[str, int]  # of the trajectories
    to_label: int

    @classmethod
    def read(cls, folder: Path) -> Saved:
        path = folder / RESTART
        if not path.is_file():
            raise GeomAttError(f"There is no simulation to continue in {folder}.")
        extra = read_extra(path)
        try:
            start = dict(extra["start"])
            if start["cell"] is not None:
                start["cell"] = np.array(start["cell"])
            own = {"settings": MDSettings(**extra["settings"]), "start": Structure(**start)}
            return cls(**{**extra, **own})
        except (KeyError, TypeError, ValueError) as error:
            raise GeomAttError(
                f"{path} does not say what was simulated. Start the simulation anew."
            ) from error

    def to_dict(self) -> dict[str, Any]:
        kept = {name: getattr(self.start, name) for name in _KEPT}
        start = {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in kept.items()}
        return {**vars(self), "settings": self.settings.to_dict(), "start": start}


def run_dynamics(
    potential: Model,
    start: Structure | AtomsLike,
    settings: MDSettings,
    folder: str | os.PathLike[str],
    *,
    model: str = "",
    resume: bool = False,
    checkpoint_every: float = 30.0,
    progress: Callable[[MDProgress], None] | None = None,
) -> MDReport:
    """Simulate a molecule, from `start` or, with `resume`, from where the run in `folder` is.

    `model` names the potential in files. With `resume`, `time` alone may differ from the first run's.
    SIGINT and SIGTERM end the run after a moment; all is saved then.
    """
    folder = path_of("out", folder)
    require("settings", settings, MDSettings, "MDSettings(time=10)")
    potential, start = given(potential, start)
    saved = Saved.read(folder) if resume else None
    if saved is None and (folder / RESTART).exists():
        raise GeomAttError(
            f"{folder} holds a simulation. Continue it with `resume`, or choose another `out`."
        )
    _check_cell(start, settings)
    warn_if_unstable(potential, settings.walls)
    if saved is not None:
        _same_run(saved, potential, start, settings, folder)
        start = saved.start
    with locked_folder(folder):
        return _Run(potential, start, settings, folder, model, saved).run(checkpoint_every, progress)


class _Run:
    """A run under way."""

    def __init__(
        self,
        potential: AnyPotential,
        start: Structure,
        settings: MDSettings,
        folder: Path,
        model: str,
        saved: Saved | None,
    ) -> None:
        self.potential, self.settings, self.folder = potential, settings, folder
        self.saved = saved or Saved(model, fingerprint(potential), settings, start, {}, 0)
        self.saved = replace(self.saved, settings=settings)
        self.dynamics = _dynamics(potential, start, settings)
        if saved is not None:
            self.dynamics.restore(folder / RESTART)
        several = settings.replicas > 1
        names = [f"trajectory_{r}" if several else "trajectory" for r in range(settings.replicas)]
        marks = self.saved.marks
        self.files: dict[str, TrajectoryFile] = {}
        for name in (*(f"{n}.{settings.format}" for n in names), TO_LABEL):
            self.files[name] = open_trajectory(folder / name, marks.get(name) or None, start.numbers)
        self.to_label = self.saved.to_label
        self.began, self.first = time.monotonic(), self.dynamics.steps

    @property
    def rate(self) -> float:
        """Steps per second of this process."""
        return (self.dynamics.steps - self.first) / max(time.monotonic() - self.began, 1e-9)

    def run(self, checkpoint_every: float, progress: Callable[[MDProgress], None] | None) -> MDReport:
        try:
            with stop_on_signal() as asked:
                if not self.dynamics.steps:
                    self.dynamics.advance(0, on_part=self._write)
                    self._checkpoint()
                self._loop(asked, checkpoint_every, progress)
            self._checkpoint()
            return self._report(asked.signal)
        except GeomAttError as error:
            kept = 1e-3 * self.dynamics.steps * self.settings.timestep
            raise GeomAttError(
                f"{error} The simulation stopped at {kept:.3f} ps; what was written before is in "
                f"{self.folder}. Continue it with `resume`."
            ) from error
        finally:
            for file in self.files.values():
                file.close()

    def _loop(
        self, asked: Any, checkpoint_every: float, progress: Callable[[MDProgress], None] | None
    ) -> None:
        settings, dynamics = self.settings, self.dynamics
        blocks, last = 1, time.monotonic()
        while dynamics.steps < settings.steps and dynamics.alive and not asked:
            begin = time.monotonic()
            left = (settings.steps - dynamics.steps) // settings.interval
            dynamics.advance(min(blocks, left) * settings.interval, on_part=self._write)
            now = time.monotonic()
            blocks = _next_chunk(blocks, now - begin)
            if now - last >= checkpoint_every:
                self._checkpoint()
                last = time.monotonic()
            if progress is not None:
                alive = int(dynamics.state.alive.sum())
                progress(MDProgress(dynamics.steps, settings.steps, self.rate, alive))

    def _checkpoint(self) -> None:
        marks = {name: file.mark() for name, file in self.files.items()}
        self.saved = replace(self.saved, marks=marks, to_label=self.to_label)
        self.dynamics.save(self.folder / RESTART, self.saved.to_dict())

    def _write(self, part: Part) -> None:
        """Frames of a part of the run, to the trajectories and, those with a new alarm, to be labelled."""
        assert part.frames is not None
        start = self.saved.start
        alarm = part.alarm.astype(np.int64)  # (T, R)
        fresh = alarm & ~np.concatenate([self._last_alarm(alarm.shape[1]), alarm[:-1]])
        trajectories = [file for name, file in self.files.items() if name != TO_LABEL]
        for t, when in enumerate(part.time_fs.tolist()):
            for r, file in enumerate(trajectories):
                positions, velocities, forces = part.frames[t, :, r]
                cell = start.cell if part.cells is None else part.cells[t, r]
                plain = replace(start, positions=positions, cell=cell, info={}, energy=None, forces=None)
                energy = float(part.potential_energy[t, r])
                if np.isfinite(energy):
                    info = {"time_fs": when, "replica": r}
                    file.write(replace(plain, energy=energy, forces=forces, info=info), velocities)
                if fresh[t, r] and self.to_label < MOST_TO_LABEL and np.isfinite(positions).all():
                    self.to_label += 1
                    what, where = words(int(fresh[t, r])), f"replica {r} at {when:g} fs, {self.saved.model}"
                    self.files[TO_LABEL].write(replace(plain, info={"alarm": what, "origin": where}))

    def _last_alarm(self, replicas: int) -> np.ndarray:
        """Alarms (1, R) of the observation before the part at hand."""
        parts = self.dynamics.parts
        last = parts[-2].alarm[-1:] if len(parts) > 1 else np.zeros((1, replicas))
        return last.astype(np.int64)

    def _report(self, signal: int) -> MDReport:
        if not self.to_label:
            with suppress(OSError):
                (self.folder / TO_LABEL).unlink()
        return MDReport(
            self.dynamics.outcome(),
            self.settings,
            self.folder,
            self.dynamics.steps,
            time.monotonic() - self.began,
            self.rate,
            self.to_label,
            signal,
        )


def _dynamics(potential: AnyPotential, start: Structure, settings: MDSettings) -> BatchedDynamics:
    """All replicas as one batch."""
    replicas = [
        _replica(potential, start, settings.seed + r, settings.walls) for r in range(settings.replicas)
    ]
    batch = collate([start] * settings.replicas, potential.dtype, potential.device)
    kind = PeriodicForces if start.periodic else PotentialForces
    forces: PeriodicForces | PotentialForces = kind(potential, batch)
    never, doubt = settings.stop_on == "never", settings.stop_on == "doubt"
    config = DynamicsConfig(
        ensemble=settings.ensemble,  # type: ignore[arg-type]
        temperature_K=settings.temperature,
        timestep_fs=settings.timestep,
        damping_fs=settings.damping,
        friction=settings.friction,
        interval=settings.interval,
        bond_limit=None if never else 0.5,
    )
    watch = Watch(spread=settings.max_spread, stops=0 if never else HOT | (DOUBTS if doubt else 0))
    return BatchedDynamics(
        [Group(replicas, forces)],
        config,
        walls=None if potential.domain is None else potential.domain.walls,
        device=potential.device,
        capture=forces.capturable,
        keep_frames=True,
        watch=watch,
        spread=forces.spread,
        barostat=Barostat(settings.pressure, settings.pressure_time, settings.compressibility),
    )


def _replica(potential: AnyPotential, start: Structure, seed: int, walls: bool) -> Replica:
    """A replica with the bonds of the training data or, of a molecule it does not know, its present ones."""
    replica = Replica.of(start, seed, potential.domain, walls=walls)
    known = replica.bonds is not None and len(replica.bonds.pairs)
    if not known and len(start) <= MOST_WATCHED:
        pairs = np.argwhere(np.triu(bond_matrix(start)))
        replica = replace(replica, bonds=Bonds(pairs, distances(start)[tuple(pairs.T)]))
    return replica


def _next_chunk(blocks: int, seconds: float) -> int:
    """Observations until the next look at signals: about `CHUNK` seconds, growing fourfold at most."""
    wanted = blocks * CHUNK / max(seconds, 1e-6)
    return int(min(max(1, min(wanted, 4 * blocks)), LARGEST_CHUNK))


def _same_run(
    saved: Saved, potential: AnyPotential, start: Structure, settings: MDSettings, folder: Path
) -> None:
    """Raise an error unless this is the run in the folder, perhaps to be longer."""
    if saved.fingerprint != fingerprint(potential):
        raise GeomAttError(
            f"The simulation in {folder} was made with another model, {saved.model}. Use that."
        )
    electrons = (saved.start.charge, saved.start.multiplicity) == (start.charge, start.multiplicity)
    if not (np.array_equal(saved.start.numbers, start.numbers) and electrons):
        own, here = formula(saved.start.numbers), formula(start.numbers)
        raise GeomAttError(
            f"The simulation in {folder} is of {own}, not of this {here} with its order of atoms and "
            "charge. Leave the structure out to continue it."
        )
    for name, value in saved.settings.to_dict().items():
        if name != "time" and getattr(settings, name) != value:
            raise GeomAttError(
                f"The simulation in {folder} was started with `{name}` = {value}, not "
                f"{getattr(settings, name)}. Leave it out to continue."
            )


def _check_cell(start: Structure, settings: MDSettings) -> None:
    if start.periodic and not all(start.pbc):
        raise GeomAttError(
            "The structure is periodic in some directions only. Make it periodic in all of them, with empty "
            "space where it ends, or in none."
        )
    if settings.ensemble == "npt" and not start.periodic:
        raise GeomAttError("A molecule in empty space has no pressure. Choose another `ensemble` than npt.")
