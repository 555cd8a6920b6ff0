"""One structure whose atoms another program moves, evaluated by the ASE calculator."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from geomatt.data.structures import Structure, as_structure
from geomatt.simulation.atoms import Atoms, to_atoms
from geomatt.simulation.calculator import GeomAttCalculator
from geomatt.simulation.inputs import Model, refuse_overlap


class MovedAtoms:
    """Energy (eV), forces (eV/Å) and stress (eV/Å³) of `atoms` wherever they are moved to.

    Args:
        model: what `GeomAttCalculator` takes, or such a calculator.
        atoms: ASE Atoms or a `Structure`, with its elements, periodic directions and cell, and the total
            charge and multiplicity for models that use them.
        device, dtype, walls: see `GeomAttCalculator`; unused if `model` is one.
    """

    def __init__(
        self,
        model: Model | GeomAttCalculator,
        atoms: Atoms | Structure,
        *,
        device: torch.device | str = "cpu",
        dtype: torch.dtype | str | None = None,
        walls: bool = True,
    ) -> None:
        self.calculator = (
            model if isinstance(model, GeomAttCalculator) else GeomAttCalculator(model, device, dtype, walls)
        )
        self.atoms: Atoms = to_atoms(atoms) if isinstance(atoms, Structure) else atoms.copy()
        self._checked = False
        # Now rather than in the first step: an engine may hide where an error comes from.
        self.calculator.model.check(as_structure(self.atoms), self.atoms.get_chemical_formula() or "it")

    def __len__(self) -> int:
        return len(self.atoms)

    def evaluate(self, positions: np.ndarray, cell: np.ndarray | None = None) -> dict[str, Any]:
        """The results of the calculator at positions (N, 3) and a cell with lattice vectors as rows, in Å."""
        self.atoms.positions[:] = positions
        if cell is not None:
            self.atoms.cell[:] = cell
        if not self._checked:
            refuse_overlap(as_structure(self.atoms), self.atoms.get_chemical_formula())
            self._checked = True
        if self.calculator.check_state(self.atoms) or not self.calculator.results:
            self.calculator.calculate(self.atoms)
        return self.calculator.results


def with_electrons(atoms: Atoms, charge: float, multiplicity: int | None) -> Atoms:
    """The atoms with a total charge and a spin multiplicity, where `GeomAttCalculator` looks for them."""
    known = {"charge": charge or None, "multiplicity": multiplicity}
    atoms.info.update({name: value for name, value in known.items() if value is not None})
    return atoms
