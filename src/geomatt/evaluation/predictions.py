"""Predictions as an extxyz file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from geomatt.data.files import atomic_output
from geomatt.data.structures import Structure
from geomatt.errors import GeomAttError
from geomatt.model.potential import Prediction


def write_predictions(
    structures: Sequence[Structure], predictions: Sequence[Prediction], path: str | os.PathLike[str]
) -> Path:
    """Write structures with predicted energy, forces and atomic energies (`energies`), in eV and Å.

    The spread of a committee is written as `energy_spread` and `forces_spread`. Other info of the structures
    is kept; their labels are not.
    """
    try:
        from ase import Atoms
        from ase.calculators.singlepoint import SinglePointCalculator
        from ase.io import write
    except ImportError as error:
        raise GeomAttError("Writing extxyz files needs ASE. Install it with: pip install ase") from error
    target = Path(path)
    if target.suffix.lower() not in (".xyz", ".extxyz"):
        raise GeomAttError(f"Cannot write {target}: the name must end in .extxyz or .xyz.")
    with atomic_output(target) as temporary, open(temporary, "w", encoding="utf-8") as stream:
        for structure, prediction in zip(structures, predictions, strict=True):
            atoms = Atoms(structure.numbers, structure.positions, cell=structure.cell, pbc=structure.pbc)
            atoms.info.update(structure.info)
            if structure.charge:
                atoms.info["charge"] = structure.charge
            results = {"energy": prediction.energy, "energies": prediction.atomic_energies}
            if prediction.forces is not None:
                results["forces"] = prediction.forces
            if prediction.energy_spread is not None:
                atoms.info["energy_spread"] = prediction.energy_spread
            if prediction.forces_spread is not None:
                atoms.arrays["forces_spread"] = prediction.forces_spread
            atoms.calc = SinglePointCalculator(atoms, **results)
            write(stream, atoms, format="extxyz")
    return target
