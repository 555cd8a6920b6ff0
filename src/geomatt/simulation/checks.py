"""Checks of structures before a simulation."""

from __future__ import annotations

import numpy as np

from geomatt.data.structures import AtomsLike, Structure, as_structure
from geomatt.elements import COVALENT_RADII, SYMBOLS, formula
from geomatt.errors import GeomAttError
from geomatt.model import AnyPotential, load
from geomatt.model.neighbours import neighbour_list
from geomatt.simulation.loading import Model

OVERLAP = 0.5  # times the sum of covalent radii: no two atoms come so close


def given(model: Model, structure: Structure | AtomsLike) -> tuple[AnyPotential, Structure]:
    """A model, which may be named, and a structure, which may be ASE Atoms."""
    return model if isinstance(model, AnyPotential) else load(model), as_structure(structure)


def refuse(potential: AnyPotential, structure: Structure) -> None:
    """Raise an error for a structure that cannot be simulated with a model."""
    name = formula(structure.numbers)
    potential.check(structure, name)
    refuse_overlap(structure, name)


def refuse_overlap(structure: Structure, name: str = "The structure") -> None:
    """Raise an error if two atoms are on top of each other."""
    z = structure.numbers
    if len(structure) < 2 or z.max() > len(COVALENT_RADII):
        return
    radii = COVALENT_RADII[z - 1]
    near = neighbour_list(structure.positions, structure.cell, structure.pbc, 2 * OVERLAP * radii.max())
    if not len(near):
        return
    images = 0.0 if structure.cell is None else near.shift @ structure.cell
    vectors = structure.positions[near.j] - structure.positions[near.i] + images
    length = np.linalg.norm(vectors, axis=1)
    relative = length / (radii[near.i] + radii[near.j])
    closest = int(relative.argmin())
    if relative[closest] < OVERLAP:
        pair = sorted((int(near.i[closest]), int(near.j[closest])))
        first, second = (f"{SYMBOLS[z[a]]}{a}" for a in pair)
        raise GeomAttError(
            f"{name} has overlapping atoms: {first} and {second} are {length[closest]:.2f} Å apart. "
            "Correct the positions, or check their unit (`length_unit`)."
        )
