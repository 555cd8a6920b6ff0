"""One walker: frame after frame of Langevin dynamics, or of displacements along normal modes.

A frame is a pure function of the start, the settings, the frame before and its number: random numbers are
drawn from (seed, walker, number), and the method starts afresh at every frame. So it does not matter which
process computes it, or when.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from geomatt.data.make.config import SampleConfig
from geomatt.data.make.intact import Bonding
from geomatt.data.make.method import Method, NotConverged, Reference
from geomatt.data.structures import Structure
from geomatt.elements import ATOMIC_MASSES
from geomatt.units import BOLTZMANN, FEMTOSECOND

GOOD, EQUILIBRATING, BROKEN, FAILED, DIVERGED = range(5)
MOST_STARTS = 10  # in a row without a good frame between
_ATTEMPTS = 3  # with other random numbers, before a walker starts anew
_LARGEST_MOVE = 0.5  # Å in a step
_HEAD = 5
# Square of a frequency of 50 cm⁻¹ in eV/(Å² u): softer motions, such as rotations of groups, are not
# harmonic, and those of the molecule as a whole are near zero.
_SOFTEST = (50 * 1.2398419843e-4 / (0.6582119569 * FEMTOSECOND)) ** 2


class _Diverged(Exception):
    """An atom would move too far in one step."""


@dataclass(frozen=True)
class WalkerFrame:
    """An entry in the log of a walker. The labels are those of `positions`."""

    status: int
    age: int  # frames since the walker started (anew); its first ones equilibrate
    energy: float  # eV
    temperature: float  # K, of the motion within this frame
    failures: int  # calculations that had to be repeated
    positions: np.ndarray  # (N, 3) Å
    velocities: np.ndarray  # (N, 3) Å per Å √(u/eV)
    forces: np.ndarray  # (N, 3) eV/Å

    def to_bytes(self) -> bytes:
        head = [self.status, self.age, self.energy, self.temperature, self.failures]
        arrays = [self.positions, self.velocities, self.forces]
        return np.concatenate([head, *(a.reshape(-1) for a in arrays)]).astype("<f8").tobytes()

    @classmethod
    def from_bytes(cls, record: bytes) -> WalkerFrame:
        values = np.frombuffer(record, dtype="<f8")
        status, age, energy, temperature, failures = values[:_HEAD].tolist()
        arrays = values[_HEAD:].reshape(3, -1, 3)
        return cls(int(status), int(age), energy, temperature, int(failures), *arrays)

    def begins_anew(self, broken: str) -> bool:
        """True if the frame after this one cannot follow from it."""
        return self.status in (FAILED, DIVERGED) or (self.status == BROKEN and broken != "keep")

    def counts(self, broken: str) -> bool:
        """True if the frame is part of the data set."""
        return self.status == GOOD or (self.status == BROKEN and broken == "keep")


@dataclass(frozen=True)
class Start:
    """Where walkers start: a structure, relaxed unless that is off, with labels."""

    structure: Structure
    relaxed: bool
    hessian: np.ndarray | None = None  # (3N, 3N) eV/Å², for normal modes


@dataclass(frozen=True)
class Walk:
    """Everything that a walker's frames depend on."""

    start: Start
    config: SampleConfig
    walker: int

    @property
    def temperature(self) -> float:
        return self.config.temperature_of(self.walker)

    @property
    def masses(self) -> np.ndarray:
        masses: np.ndarray = ATOMIC_MASSES[self.start.structure.numbers - 1][:, None]
        return masses

    def rng(self, number: int, attempt: int) -> np.random.Generator:
        return np.random.default_rng([self.config.seed, self.walker, number, attempt])


def walk(task: Walk, last: WalkerFrame | None, number: int, wanted: int, seconds: float) -> list[bytes]:
    """Frames from `number` on, after the frame `last`, until `wanted` of them count or time is up.

    How many there are depends on the time, the frames do not. It ends early when the walker starts anew.
    """
    structure = task.start.structure
    method = Method(task.config.calculator, task.config.arguments)
    reference, bonding = Reference(method, structure), Bonding.of(structure)
    records: list[bytes] = []
    ends = time.monotonic() + seconds
    while wanted > 0:
        last = next_frame(task, last, number + len(records), reference, bonding)
        records.append(last.to_bytes())
        wanted -= last.counts(task.config.broken)
        if last.begins_anew(task.config.broken) or time.monotonic() > ends:
            break
    return records


def next_frame(
    task: Walk, last: WalkerFrame | None, number: int, reference: Reference, bonding: Bonding
) -> WalkerFrame:
    """The frame after `last` (None: the first)."""
    config, structure = task.config, task.start.structure
    anew = last is None or last.begins_anew(config.broken)
    age = 0 if anew or last is None else last.age + 1
    before, status = reference.failures, FAILED
    for attempt in range(_ATTEMPTS):
        rng = task.rng(number, attempt)
        reference.fresh()
        try:
            if config.how == "modes":
                moved = _displaced(task, rng, reference)
            elif anew or last is None:
                moved = _dynamics(task, *_first(task, rng), None, rng, reference)
            else:
                moved = _dynamics(task, last.positions, last.velocities, last.forces, rng, reference)
        except NotConverged:
            continue
        except _Diverged:
            status = DIVERGED
            break
        energy, temperature, positions, velocities, forces = moved
        if bonding.fault(positions):
            status = BROKEN
        else:
            status = EQUILIBRATING if age < config.equilibration_frames else GOOD
        failures = reference.failures - before
        return WalkerFrame(status, age, energy, temperature, failures, positions, velocities, forces)
    nowhere = np.zeros_like(structure.positions)
    failures = reference.failures - before
    return WalkerFrame(status, age, np.nan, np.nan, failures, structure.positions, nowhere, nowhere)


def _first(task: Walk, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Positions and velocities to start from.

    From a minimum, half of the kinetic energy becomes potential energy, so the temperature is doubled.
    """
    kinetic = BOLTZMANN * task.temperature * (2 if task.start.relaxed else 1)
    positions = task.start.structure.positions
    velocities = np.sqrt(kinetic / task.masses) * rng.standard_normal(positions.shape)
    return positions, velocities - _drift(task, velocities)


def _drift(task: Walk, velocities: np.ndarray) -> np.ndarray:
    """Velocity of the centre of mass; none for a single atom, which could not move otherwise."""
    masses = task.masses
    return (masses * velocities).sum(0) / masses.sum() * (len(masses) > 1)


Moved = tuple[float, float, np.ndarray, np.ndarray, np.ndarray]


def _dynamics(
    task: Walk,
    positions: np.ndarray,
    velocities: np.ndarray,
    forces: np.ndarray | None,
    rng: np.random.Generator,
    reference: Reference,
) -> Moved:
    """`stride` steps of BAOAB (Leimkuhler & Matthews 2013): energy, mean temperature, x, v, F at their end.

    The centre of mass stays at rest.
    """
    config, masses, kT = task.config, task.masses, BOLTZMANN * task.temperature
    step = config.timestep * FEMTOSECOND
    keep = np.exp(-config.friction * config.timestep)
    width = np.sqrt(kT * (1 - keep**2) / masses)
    freedom = 3 * max(len(masses) - 1, 1)
    heat = 0.0
    if forces is None:
        _, forces = reference(positions)
    energy = np.nan
    for _ in range(config.stride):
        velocities = velocities + 0.5 * step * forces / masses
        if np.abs(velocities).max() * step > _LARGEST_MOVE:
            raise _Diverged
        positions = positions + 0.5 * step * velocities
        push = width * rng.standard_normal(positions.shape)
        velocities = keep * velocities + push - _drift(task, push)
        positions = positions + 0.5 * step * velocities
        energy, forces = reference(positions)
        velocities = velocities + 0.5 * step * forces / masses
        heat += float((masses * velocities**2).sum()) / (freedom * BOLTZMANN)
    return energy, heat / config.stride, positions, velocities, forces


def _displaced(task: Walk, rng: np.random.Generator, reference: Reference) -> Moved:
    """A structure of the harmonic distribution around the start."""
    assert task.start.hessian is not None
    root = np.sqrt(np.repeat(task.masses[:, 0], 3))
    stiffness, modes = np.linalg.eigh(task.start.hessian / root[:, None] / root)
    real = stiffness > _SOFTEST
    amplitude = np.sqrt(BOLTZMANN * task.temperature / stiffness[real])
    shift = modes[:, real] @ (amplitude * rng.standard_normal(int(real.sum()))) / root
    positions = task.start.structure.positions + shift.reshape(-1, 3)
    energy, forces = reference(positions)
    return energy, task.temperature, positions, np.zeros_like(positions), forces
