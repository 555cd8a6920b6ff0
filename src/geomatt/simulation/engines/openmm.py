"""A model in OpenMM: a force for a whole system, or for one molecule in a classical environment."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import torch

from geomatt.errors import GeomAttError
from geomatt.simulation.calculator import GeomAttCalculator
from geomatt.simulation.engines.moved_atoms import MovedAtoms, with_electrons
from geomatt.simulation.inputs import Model
from geomatt.units import ENERGY_IN_EV

try:
    import openmm
except ImportError as error:
    raise GeomAttError("OpenMM is not installed. Install it with: pip install 'geomatt[openmm]'") from error
if not hasattr(getattr(openmm, "PythonForce", None), "setParticles"):
    raise GeomAttError(
        f"OpenMM {openmm.__version__} is too old for forces in Python. Upgrade it: pip install 'openmm>=8.6'"
    )

KJ_PER_MOL = 1.0 / ENERGY_IN_EV["kJ/mol"]  # one eV, in kJ/mol
NANOMETRE = 10.0  # Å


def openmm_force(
    model: Model | GeomAttCalculator,
    elements: Any,
    *,
    atoms: Sequence[int] | None = None,
    periodic: bool = False,
    charge: float = 0.0,
    multiplicity: int | None = None,
    device: torch.device | str = "cpu",
    dtype: torch.dtype | str | None = None,
    walls: bool = True,
) -> openmm.PythonForce:
    """A force to add to an OpenMM System: `system.addForce(openmm_force(model, topology))`.

    Args:
        model: what `GeomAttCalculator` takes, or such a calculator, which tells `wall_steps` afterwards.
        elements: an OpenMM Topology, or the atomic numbers of all particles.
        atoms: the particles the model is for; all of them if not given.
        periodic: True if the box of the simulation is the cell of the model, which needs a model with a
            radius. Otherwise the atoms are a molecule, in a box or not.
        charge, multiplicity: of the atoms, for models that use them.
        device, dtype, walls: see `GeomAttCalculator`.
    """
    from ase import Atoms

    numbers = _atomic_numbers(elements)
    chosen = list(range(len(numbers))) if atoms is None else [int(i) for i in atoms]
    if not chosen or min(chosen) < 0 or max(chosen) >= len(numbers) or len(set(chosen)) < len(chosen):
        raise GeomAttError(f"`atoms` must be different numbers from 0 to {len(numbers) - 1}, at least one.")
    # The box is not known before the simulation; any cell serves to check that the model takes one.
    described = Atoms(numbers[chosen], np.zeros((len(chosen), 3)), cell=np.eye(3), pbc=periodic)
    described = with_electrons(described, charge, multiplicity)
    moved = MovedAtoms(model, described, device=device, dtype=dtype, walls=walls)
    force = openmm.PythonForce(_Compute(moved, periodic))
    force.setUsesPeriodicBoundaryConditions(periodic)
    force.setName("geomatt")
    if atoms is not None:
        force.setParticles(chosen)
    return force


class _Compute:
    """The function that OpenMM calls in every step: energy (kJ/mol) and forces (kJ/mol/nm) of a State."""

    def __init__(self, moved: MovedAtoms, periodic: bool) -> None:
        self.moved, self.periodic = moved, periodic

    def __call__(self, state: Any) -> tuple[float, np.ndarray]:
        positions = NANOMETRE * state.getPositions(asNumpy=True)._value
        cell = NANOMETRE * state.getPeriodicBoxVectors(asNumpy=True)._value if self.periodic else None
        found = self.moved.evaluate(positions, cell)
        return KJ_PER_MOL * found["energy"], KJ_PER_MOL * NANOMETRE * found["forces"]

    def __reduce__(self) -> Any:
        # OpenMM would write a pickled model into its XML files, and unpickling runs code.
        raise TypeError("A geomatt force is not saved with a system: add it again after loading.")


def mixed_system(
    system: openmm.System,
    model: Model | GeomAttCalculator,
    topology: Any,
    atoms: Iterable[int],
    **options: Any,
) -> openmm.System:
    """A copy of a classical system in which a model replaces all forces inside of one molecule.

    Between the molecule and its environment the classical charges and Lennard-Jones terms stay (mechanical
    embedding). Bonds, angles and torsions inside the molecule get a strength of zero, its constraints go,
    and its pairs are excluded from the classical pair forces.

    Args:
        system: made by an OpenMM force field for the molecule and its environment.
        model, topology, options: see `openmm_force`.
        atoms: the particles of the molecule; no bond may connect them to others.
    """
    inside = sorted({int(i) for i in atoms})
    force = openmm_force(model, topology, atoms=inside, **options)
    mixed: openmm.System = copy.deepcopy(system)
    members = set(inside)
    for part in mixed.getForces():
        _silence(part, members)
    _release(mixed, members)
    mixed.addForce(_chain(inside))
    mixed.addForce(force)
    return mixed


# Forces made of terms: name of a term, where its particles stand among its parameters, and the parameters
# that are zero for no force; None if there are none.
_TERMS: dict[str, tuple[str, slice, slice | None]] = {
    "HarmonicBondForce": ("Bond", slice(0, 2), slice(3, 4)),
    "HarmonicAngleForce": ("Angle", slice(0, 3), slice(4, 5)),
    "PeriodicTorsionForce": ("Torsion", slice(0, 4), slice(6, 7)),
    "RBTorsionForce": ("Torsion", slice(0, 4), slice(4, 10)),
    "CMAPTorsionForce": ("Torsion", slice(1, 9), None),
    "CustomBondForce": ("Bond", slice(0, 2), None),
    "CustomAngleForce": ("Angle", slice(0, 3), None),
    "CustomTorsionForce": ("Torsion", slice(0, 4), None),
}
# Forces that act on no pair inside a molecule; those of implicit solvents are the solvent's answer to it.
_WITHOUT_TERMS = {
    "AndersenThermostat", "CMMotionRemover", "CustomExternalForce", "CustomGBForce", "GBSAOBCForce",
    "MonteCarloAnisotropicBarostat", "MonteCarloBarostat", "MonteCarloFlexibleBarostat", "PythonForce",
}  # fmt: skip


def _silence(force: openmm.Force, members: set[int]) -> None:
    """Set a classical force to zero inside the molecule."""
    kind = type(force).__name__
    if kind in _TERMS:
        name, particles, strength = _TERMS[kind]
        for index in range(getattr(force, f"getNum{name}s")()):
            values = list(getattr(force, f"get{name}Parameters")(index))
            if not _belongs(values[particles], members):
                continue
            if strength is None:
                raise _not_separable(kind)
            values[strength] = [0.0 * value for value in values[strength]]
            getattr(force, f"set{name}Parameters")(index, *values)
    elif kind == "NonbondedForce":
        for i, j in combinations(sorted(members), 2):
            force.addException(i, j, 0.0, 1.0, 0.0, True)
    elif kind == "CustomNonbondedForce":
        known = {frozenset(force.getExclusionParticles(e)) for e in range(force.getNumExclusions())}
        for pair in combinations(sorted(members), 2):
            if frozenset(pair) not in known:
                force.addExclusion(*pair)
    elif kind not in _WITHOUT_TERMS:
        raise _not_separable(kind)


def _not_separable(kind: str) -> GeomAttError:
    return GeomAttError(
        f"The system has a {kind}, whose part inside the molecule cannot be taken out. Use a force field "
        "with harmonic bonds and angles, torsions and pair forces, or remove it from the system."
    )


def _belongs(particles: Sequence[int], members: set[int]) -> bool:
    """True for a term inside the molecule, False outside; an error for one across."""
    inside = [int(p) in members for p in particles]
    if any(inside) and not all(inside):
        names = ", ".join(str(int(p)) for p in particles)
        raise GeomAttError(
            f"The classical force field binds particles {names}, some in the molecule of the model and some "
            "not. Give all `atoms` of the molecule."
        )
    return all(inside)


def _release(system: openmm.System, members: set[int]) -> None:
    """Remove the constraints inside the molecule."""
    for index in reversed(range(system.getNumConstraints())):
        i, j, _ = system.getConstraintParameters(index)
        if _belongs((i, j), members):
            system.removeConstraint(index)


def _chain(particles: Sequence[int]) -> openmm.HarmonicBondForce:
    """Bonds without strength, which tell OpenMM that the atoms are one molecule: barostats must know."""
    force = openmm.HarmonicBondForce()
    for i, j in pairwise(particles):
        force.addBond(i, j, 0.1, 0.0)
    return force


def _atomic_numbers(elements: Any) -> np.ndarray:
    if not hasattr(elements, "atoms"):
        return np.asarray(elements, dtype=np.int64).reshape(-1)
    numbers = [0 if atom.element is None else atom.element.atomic_number for atom in elements.atoms()]
    return np.array(numbers, dtype=np.int64)
