"""Structures as ASE Atoms and back."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from geomatt.data.structures import Structure
from geomatt.elements import ATOMIC_MASSES
from geomatt.errors import GeomAttError

try:
    from ase import Atoms
except ImportError as error:
    raise GeomAttError("This needs ASE. Install it with: pip install ase") from error


def to_atoms(structure: Structure) -> Atoms:
    """The atoms with the masses this package uses everywhere."""
    masses = ATOMIC_MASSES[structure.numbers - 1]
    electrons = {"charge": structure.charge, "multiplicity": structure.multiplicity}
    return Atoms(
        structure.numbers,
        structure.positions,
        cell=structure.cell,
        pbc=structure.pbc,
        masses=masses,
        info={name: value for name, value in electrons.items() if value},
    )


def from_atoms(atoms: Atoms, like: Structure) -> Structure:
    """The atoms with energy and forces of their calculator, as the structure `like` moved there."""
    cell = np.array(atoms.cell) if any(like.pbc) else like.cell
    forces = atoms.get_forces(apply_constraint=False)
    energy = float(atoms.get_potential_energy())
    return replace(like, positions=atoms.positions.copy(), cell=cell, energy=energy, forces=forces, info={})
