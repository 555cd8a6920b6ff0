"""Checks of structures before a simulation."""

from __future__ import annotations

import numpy as np

from geomatt.data.bonds import relative_lengths
from geomatt.data.structures import AtomsLike, Structure, as_structure
from geomatt.elements import COVALENT_RADII, SYMBOLS, formula
from geomatt.errors import GeomAttError
from geomatt.model import AnyPotential, load
from geomatt.model.domain.measure import distances
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
    if len(structure) < 2 or structure.numbers.max() > len(COVALENT_RADII):
        return
    length = distances(structure.positions, structure.cell if structure.periodic else None)
    relative = relative_lengths(structure.numbers, length) + np.diag(np.full(len(structure), np.inf))
    i, j = np.unravel_index(int(relative.argmin()), relative.shape)
    if relative[i, j] < OVERLAP:
        first, second = (f"{SYMBOLS[structure.numbers[a]]}{a}" for a in sorted((int(i), int(j))))
        raise GeomAttError(
            f"{name} has overlapping atoms: {first} and {second} are {length[i, j]:.2f} Å apart. "
            "Correct the positions, or check their unit (`length_unit`)."
        )
