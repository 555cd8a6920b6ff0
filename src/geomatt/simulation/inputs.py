"""The model and the structure of a simulation: loaded, and checked before it starts."""

from __future__ import annotations

import copy
import os
import warnings

import numpy as np
import torch

from geomatt.data.structures import AtomsLike, Structure, as_structure
from geomatt.elements import COVALENT_RADII, atom_labels, formula
from geomatt.errors import GeomAttError
from geomatt.model import AnyPotential, check_device, load
from geomatt.model.domain import MOST_WATCHED
from geomatt.model.neighbours import neighbour_list
from geomatt.model.precision import parse_dtype
from geomatt.model.stability import warning

OVERLAP = 0.5  # times the sum of covalent radii: no two atoms come so close
# A model file, the folder of a run, a shipped model's name, a `Potential` or a `Committee`.
Model = str | os.PathLike[str] | AnyPotential


def load_model(
    model: Model,
    device: torch.device | str = "cpu",
    dtype: torch.dtype | str | None = None,
    *,
    walls: bool = True,
) -> AnyPotential:
    """The potential of a simulation. A potential is copied: the caller's keeps its precision and device."""
    if isinstance(model, AnyPotential):
        found = copy.deepcopy(model).to(check_device(device), parse_dtype(dtype))
    else:
        found = load(model, device, dtype)
    warn_if_unstable(found, walls)
    return found


def warn_if_unstable(model: AnyPotential, walls: bool) -> None:
    """Warn about a model that fell apart in long dynamics (`record["stability"]`), with walls or without."""
    for member in model.members:
        if message := warning(member.record.get("stability", {}), walls, member.bounded):
            warnings.warn(message, stacklevel=3)
            return


def given(model: Model, structure: Structure | AtomsLike) -> tuple[AnyPotential, Structure]:
    """A model, which may be named, and a structure, which may be ASE Atoms; an error if they do not fit."""
    potential, atoms = model if isinstance(model, AnyPotential) else load(model), as_structure(structure)
    refuse(potential, atoms)
    return potential, atoms


def refuse(potential: AnyPotential, structure: Structure, name: str = "") -> None:
    """Raise an error for a structure that cannot be simulated with a model; `name` is in the message."""
    name = name or formula(structure.numbers)
    potential.check(structure, name)
    refuse_overlap(structure, name)


def refuse_overlap(structure: Structure, name: str = "The structure") -> None:
    """Raise an error if two atoms are on top of each other."""
    if message := overlap(structure, name):
        raise GeomAttError(message)


def overlap(structure: Structure, name: str = "The structure") -> str:
    """A message that names the closest two atoms if they are on top of each other, else empty."""
    z = structure.numbers
    if len(structure) < 2 or z.max() > len(COVALENT_RADII):
        return ""
    radii = COVALENT_RADII[z - 1]
    near = neighbour_list(structure.positions, structure.cell, structure.pbc, 2 * OVERLAP * radii.max())
    if not len(near):
        return ""
    images = 0.0 if structure.cell is None else near.shift @ structure.cell
    vectors = structure.positions[near.j] - structure.positions[near.i] + images
    length = np.linalg.norm(vectors, axis=1)
    relative = length / (radii[near.i] + radii[near.j])
    closest = int(relative.argmin())
    if relative[closest] >= OVERLAP:
        return ""
    first, second = (atom_labels(z)[a] for a in sorted((int(near.i[closest]), int(near.j[closest]))))
    return (
        f"{name} has overlapping atoms: {first} and {second} are {length[closest]:.2f} Å apart. "
        "Correct the positions, or check their unit (`length_unit`)."
    )


def watched(atoms: int) -> bool:
    """False, with a warning, if a structure has more pairs of atoms than can be watched."""
    if atoms > MOST_WATCHED:
        warnings.warn(
            f"Of {atoms:,} atoms not all pairs are watched: there are no walls, no search for broken bonds, "
            f"and no warning if distances leave the training data. All that is for up to {MOST_WATCHED:,}.",
            stacklevel=3,
        )
    return atoms <= MOST_WATCHED
