"""Geometry optimisation with the optimisers of ASE."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from geomatt.arguments import require
from geomatt.data.bonds import bond_matrix
from geomatt.data.structures import AtomsLike, Structure
from geomatt.elements import atom_labels
from geomatt.errors import GeomAttError
from geomatt.model.domain import MOST_WATCHED
from geomatt.simulation.atoms import from_atoms, to_atoms
from geomatt.simulation.calculator import GeomAttCalculator
from geomatt.simulation.inputs import Model, given
from geomatt.simulation.runaway import FOREIGN, Runaway
from geomatt.simulation.settings import RelaxSettings
from geomatt.simulation.starts import aligned


@dataclass(frozen=True)
class RelaxProgress:
    """One step of an optimisation."""

    step: int
    energy: float  # eV
    fmax: float  # eV/Å, highest force on an atom
    structure: Structure  # with energy and forces


@dataclass(frozen=True)
class Relaxed:
    """The end of an optimisation."""

    start: Structure  # with energy and forces
    end: Structure
    steps: int
    converged: bool
    energies: np.ndarray  # (steps + 1,) eV
    fmax: np.ndarray  # (steps + 1,) eV/Å
    wall_steps: int  # steps in which a wall acted
    bonds_changed: list[tuple[str, str]]  # such as ("C1–O2", "broke")
    failure: str = ""  # why its end is no result, in words; empty if it may be one

    @property
    def ran_away(self) -> bool:
        """True for one that was stopped; its last structure is of no use."""
        return self.failure not in ("", FOREIGN)

    @property
    def rmsd(self) -> float:
        """Distance in Å the atoms moved, rotation and translation removed for molecules."""
        after = self.end.positions
        if not self.start.periodic:
            after = aligned(after, self.start.positions)
        return float(np.sqrt(((after - self.start.positions) ** 2).sum(1).mean()))

    def to_dict(self) -> dict[str, Any]:
        """For reports."""
        return {
            "converged": self.converged,
            "failure": self.failure,
            "steps": self.steps,
            "energy_start_eV": float(self.energies[0]),
            "energy_end_eV": float(self.energies[-1]),
            "fmax_start_eV_per_A": float(self.fmax[0]),
            "fmax_end_eV_per_A": float(self.fmax[-1]),
            "rmsd_A": self.rmsd,
            "bonds_changed": self.bonds_changed,
            "wall_steps": self.wall_steps,
            "cell": None if self.end.cell is None else self.end.cell.tolist(),
        }


def relax(
    potential: Model,
    structure: Structure | AtomsLike,
    settings: RelaxSettings | None = None,
    *,
    constraint: Any = None,
    progress: Callable[[RelaxProgress], bool | None] | None = None,
) -> Relaxed:
    """Relax a structure, under an ASE constraint if one is given.

    `progress` is called at every step; the optimisation ends early if it returns True. It also ends where it
    runs away (`Runaway`): `failure` of the result then says why, and its end is no minimum. Nor is it one if
    bonds changed and the model was trained on another molecule alone.
    """
    from ase.filters import FrechetCellFilter
    from ase.optimize import BFGS, FIRE

    potential, structure = given(potential, structure)
    settings = require("settings", settings or RelaxSettings(), RelaxSettings, "RelaxSettings(fmax=0.01)")
    if settings.cell and not all(structure.pbc):
        raise GeomAttError(
            "Only a structure that is periodic in all directions has a cell to relax. Leave `cell` out."
        )
    atoms = to_atoms(structure)
    calculator = GeomAttCalculator(potential, potential.device, walls=settings.walls)
    atoms.calc = calculator
    if constraint is not None:
        atoms.set_constraint(constraint)
    target = FrechetCellFilter(atoms) if settings.cell else atoms
    optimiser = {"bfgs": BFGS, "fire": FIRE}[settings.optimiser](target, logfile=None)
    energies, highest = [], []
    start = from_atoms(atoms, structure)
    converged, failure, runaway = False, "", Runaway()
    for converged in _steps(optimiser, settings):  # noqa: B007 - used after
        forces = target.get_forces()
        now = from_atoms(atoms, structure)
        assert now.energy is not None
        energies.append(now.energy)
        highest.append(float(np.linalg.norm(forces, axis=1).max()))
        seen = RelaxProgress(len(energies) - 1, energies[-1], highest[-1], now)
        failure = runaway.failure(now.energy, atoms.get_forces(), now)
        if (progress is not None and progress(seen)) or failure:
            break
    end = from_atoms(atoms, structure)
    changed = bond_changes(start, end)
    if converged and not failure:
        failure = runaway.failure_at_end()
    if converged and changed and not failure and potential.foreign(structure):
        failure = FOREIGN
    return Relaxed(
        start,
        end,
        len(energies) - 1,
        bool(converged) and not failure,
        np.array(energies),
        np.array(highest),
        calculator.wall_steps,
        changed,
        failure,
    )


def _steps(optimiser: Any, settings: RelaxSettings) -> Iterator[bool]:
    """Steps of an ASE optimiser: True once converged. A constraint that cannot be kept ends it."""
    try:
        yield from optimiser.irun(fmax=settings.fmax, steps=settings.steps)
    except np.linalg.LinAlgError as error:
        raise GeomAttError(
            f"The optimiser {settings.optimiser} finds no step from these forces ({error}). "
            "Start from another structure, or set `optimiser` to fire."
        ) from error
    except (ValueError, ZeroDivisionError) as error:
        # What FixInternals says when it cannot keep a coordinate.
        if "did not converge" not in str(error) and "dihedral" not in str(error):
            raise


def bond_changes(before: Structure, after: Structure) -> list[tuple[str, str]]:
    """Covalent bonds that formed or broke between two geometries of the same atoms; not of many atoms."""
    if len(before) > MOST_WATCHED:
        return []
    name, old, new = atom_labels(before.numbers), bond_matrix(before), bond_matrix(after)
    return [
        (f"{name[i]}–{name[j]}", "formed" if new[i, j] else "broke")
        for i, j in np.argwhere(np.triu(old != new)).tolist()
    ]
