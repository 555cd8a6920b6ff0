"""The structure a walker starts from: relaxed with the method, with second derivatives for normal modes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from geomatt.data.make.config import SampleConfig
from geomatt.data.make.method import Method, NotConverged, Reference, as_atoms
from geomatt.data.make.walker import Start
from geomatt.data.make.workers import Job
from geomatt.data.structures import Structure
from geomatt.elements import formula
from geomatt.errors import GeomAttError
from geomatt.files import atomic_output

FORCE, STEPS = 0.01, 500  # eV/Å and steps of the relaxation
_DISPLACEMENT = 0.005  # Å


def prepare(config: SampleConfig, structure: Structure, path: Path) -> Job:
    """Make a start and store it, unless that is done."""
    if path.is_file():
        return
    start: Start = yield make_start, (config, structure)
    found = start.structure
    arrays = {"positions": found.positions, "energy": np.array(found.energy), "forces": found.forces}
    if start.hessian is not None:
        arrays["hessian"] = start.hessian
    with atomic_output(path) as temporary, open(temporary, "wb") as stream:
        np.savez(stream, **arrays)  # type: ignore[arg-type]


def read_start(config: SampleConfig, structure: Structure, path: Path) -> Start:
    """The start that `prepare` has stored."""
    with np.load(path, allow_pickle=False) as stored:
        labels = {"energy": float(stored["energy"]), "forces": stored["forces"]}
        relaxed = replace(structure, positions=stored["positions"], **labels)
        return Start(relaxed, config.relax, stored.get("hessian"))


def make_start(config: SampleConfig, structure: Structure) -> Start:
    """Relax a structure unless that is off, and label it."""
    reference = Reference(Method(config.calculator, config.arguments), structure)
    name = formula(structure.numbers)
    try:
        positions = _relaxed(reference, structure) if config.relax else structure.positions
        reference.fresh()
        energy, forces = reference(positions)
        hessian = None
        if config.how == "modes":
            if not config.relax:
                raise GeomAttError("Normal modes need a minimum: leave `relax` on, or use `how` dynamics.")
            hessian = _hessian(reference, positions)
    except NotConverged as error:
        raise GeomAttError(
            f"{config.calculator} failed while {name} was prepared: {error}. Check the structure, its "
            "`charge` and `multiplicity`."
        ) from None
    positions = positions - positions.mean(axis=0)
    done = replace(structure, positions=positions, energy=energy, forces=forces)
    return Start(done, config.relax, hessian)


def _relaxed(reference: Reference, structure: Structure) -> np.ndarray:
    from ase.optimize import BFGS

    atoms = as_atoms(structure)
    atoms.calc = _Forwarded(reference)
    if not BFGS(atoms, logfile=None, maxstep=0.1).run(fmax=FORCE, steps=STEPS):
        left = np.linalg.norm(atoms.get_forces(), axis=1).max()
        raise GeomAttError(
            f"{formula(structure.numbers)} did not relax in {STEPS} steps: {left:.3g} eV/Å are left. Give a "
            "better structure, or turn `relax` off."
        )
    relaxed: np.ndarray = atoms.positions.copy()
    return relaxed


class _Forwarded:
    """The parts of a calculator that ASE's optimisers need; failures are repeated by the reference."""

    def __init__(self, reference: Reference) -> None:
        self.reference = reference
        self._last: tuple[np.ndarray, float, np.ndarray] | None = None

    def _at(self, atoms: Any) -> tuple[np.ndarray, float, np.ndarray]:
        if self._last is None or not np.array_equal(self._last[0], atoms.positions):
            self._last = (atoms.positions.copy(), *self.reference(atoms.positions))
        return self._last

    def get_potential_energy(self, atoms: Any, force_consistent: bool = False) -> float:
        return self._at(atoms)[1]

    def get_forces(self, atoms: Any) -> np.ndarray:
        return self._at(atoms)[2].copy()


def _hessian(reference: Reference, positions: np.ndarray) -> np.ndarray:
    """Second derivatives (3N, 3N) by central differences of the forces."""
    rows = []
    for index in range(positions.size):
        shift = np.zeros(positions.size)
        shift[index] = _DISPLACEMENT
        ahead, back = (reference(positions + sign * shift.reshape(-1, 3))[1] for sign in (1, -1))
        rows.append((back - ahead).reshape(-1) / (2 * _DISPLACEMENT))
    matrix = np.array(rows)
    return 0.5 * (matrix + matrix.T)
