"""A model as an ASE calculator: energy, forces, stress, atomic energies; one potential or a committee."""

from __future__ import annotations

import copy
import os
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from geomatt.data.batch import Batch
from geomatt.data.structures import Structure
from geomatt.errors import GeomAttError
from geomatt.model.files import check_device, load
from geomatt.model.inference import Evaluator
from geomatt.model.potential import Committee, Potential
from geomatt.model.precision import parse_dtype

try:
    from ase import Atoms
    from ase.calculators.calculator import Calculator, all_changes
    from ase.stress import full_3x3_to_voigt_6_stress
except ImportError as error:
    raise GeomAttError("The calculator needs ASE. Install it with: pip install ase") from error


class GeomAttCalculator(Calculator):
    """Energy (eV), forces (eV/Å), stress (eV/Å³, periodic structures) and atomic energies for ASE.

    Args:
        model: a model file, the directory of a run, a `Potential` or a `Committee`. A committee answers with
            the mean of its members; how far they disagree is in `energy_spread` and `forces_spread`.
        device: where to compute, "cpu" or "cuda".
        dtype: "float32" or "float64"; by default the precision the model has.
    """

    implemented_properties = ["energy", "free_energy", "forces", "energies", "stress"]  # noqa: RUF012 - ASE's convention
    ignored_changes = {"initial_charges", "initial_magmoms"}  # noqa: RUF012 - ASE's convention

    def __init__(
        self,
        model: str | os.PathLike[str] | Potential | Committee,
        device: torch.device | str = "cpu",
        dtype: torch.dtype | str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if isinstance(model, Potential | Committee):
            # A copy: the caller's model must not change its precision under their hands.
            self.model = copy.deepcopy(model).to(check_device(device), parse_dtype(dtype))
        else:
            self.model = load(model, device, dtype)
        self.members = self.model.members if isinstance(self.model, Committee) else [self.model]
        self._evaluators = [Evaluator(member.network) for member in self.members]
        self._known: np.ndarray | None = None  # atomic numbers checked and on the device already
        self._numbers: list[torch.Tensor] = []
        self._spread: tuple[float, np.ndarray] | None = None

    @property
    def energy_spread(self) -> float | None:
        """Standard deviation of the members' energies in the last calculation (eV); None for one model."""
        return self._spread[0] if self._spread and self.results else None

    @property
    def forces_spread(self) -> np.ndarray | None:
        """Norm of the standard deviation of each atom's force (N,) in the last calculation (eV/Å)."""
        return self._spread[1].copy() if self._spread and self.results else None

    def check_state(self, atoms: Atoms, tol: float = 1e-15) -> list[str]:
        """What has changed since the last calculation; the cell of a molecule does not count."""
        changes = super().check_state(atoms, tol)
        return changes if atoms.pbc.any() else [c for c in changes if c != "cell"]

    def calculate(
        self,
        atoms: Atoms | None = None,
        properties: Sequence[str] = ("energy",),
        system_changes: Sequence[str] = tuple(all_changes),
    ) -> None:
        """Compute everything at once: forces cost little more than the energy, and MD asks for both."""
        super().calculate(atoms, properties, system_changes)
        if self.atoms is None:
            raise GeomAttError("The calculator was given no atoms.")
        self._check(self.atoms)
        centred = torch.from_numpy(self.atoms.positions - self.atoms.positions.mean(0))[None]
        cell = None
        if self.atoms.pbc.any():
            cell = torch.from_numpy(np.where(self.atoms.pbc[:, None], self.atoms.cell.array, 0.0))[None]
        outputs = [
            member.evaluate(
                Batch(
                    numbers,
                    centred.to(member.device, member.dtype),
                    cell=None if cell is None else cell.to(member.device, member.dtype),
                ),
                evaluator=evaluator,
            )
            for member, numbers, evaluator in zip(self.members, self._numbers, self._evaluators, strict=True)
        ]
        energies = np.stack([o.atomic_energies[0].cpu().numpy() for o in outputs])  # (members, N)
        forces = np.stack(
            [o.forces[0].double().cpu().numpy() for o in outputs if o.forces is not None]
        )  # (members, N, 3)
        totals = np.array([float(o.energy[0]) for o in outputs])
        energy = float(totals.mean())
        # There is no electronic entropy, so the free energy, which ASE asks for at times, is the same.
        self.results = {
            "energy": energy,
            "free_energy": energy,
            "forces": forces.mean(0),
            "energies": energies.mean(0),
        }
        if self.atoms.pbc.all():
            stresses = [o.stress[0].double().cpu().numpy() for o in outputs if o.stress is not None]
            self.results["stress"] = full_3x3_to_voigt_6_stress(np.mean(stresses, axis=0))
        elif "stress" in properties:
            raise GeomAttError("Stress needs a structure that is periodic in all three directions.")
        self._spread = None
        if len(self.members) > 1:
            self._spread = float(totals.std()), np.linalg.norm(forces.std(0), axis=-1)

    def _check(self, atoms: Atoms) -> None:
        """Refuse what the model cannot answer for; elements are looked at when they change only."""
        if self._known is None or not np.array_equal(self._known, atoms.numbers) or atoms.pbc.any():
            pbc = (bool(atoms.pbc[0]), bool(atoms.pbc[1]), bool(atoms.pbc[2]))
            cell = atoms.cell.array if any(pbc) else None
            structure = Structure(
                np.asarray(atoms.numbers, dtype=np.int64), atoms.positions, cell=cell, pbc=pbc
            )
            self.model.check(structure, f"{atoms.get_chemical_formula() or 'The structure'}")
            for message in self.members[0].doubts(structure):
                warnings.warn(message, stacklevel=2)
            self._known = structure.numbers.copy()
            self._numbers = [torch.from_numpy(self._known)[None].to(m.device) for m in self.members]
        if not np.isfinite(atoms.positions).all():
            raise GeomAttError("Some positions are not finite numbers: the simulation has probably diverged.")
