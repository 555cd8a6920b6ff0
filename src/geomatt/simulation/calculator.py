"""A model as an ASE calculator: energy, forces, stress, atomic energies; one potential or a committee."""

from __future__ import annotations

import copy
import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from geomatt.data.batch import Batch
from geomatt.data.structures import Structure
from geomatt.errors import GeomAttError
from geomatt.model.files import check_device, load
from geomatt.model.geometric_attention.inference import Evaluator
from geomatt.model.potential import Committee, Potential
from geomatt.model.precision import parse_dtype

try:
    from ase import Atoms
    from ase.calculators.calculator import Calculator, all_changes
    from ase.stress import full_3x3_to_voigt_6_stress
except ImportError as error:
    raise GeomAttError("The calculator needs ASE. Install it with: pip install ase") from error


@dataclass(frozen=True)
class _Answer:
    """What a member says of a structure (eV, Å)."""

    energy: float
    energies: np.ndarray  # (N,)
    forces: np.ndarray  # (N, 3)
    stress: np.ndarray | None  # (3, 3)


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
        self.model: Potential | Committee
        if isinstance(model, Potential | Committee):
            # A copy: the caller's model must not change its precision under their hands.
            self.model = copy.deepcopy(model).to(check_device(device), parse_dtype(dtype))
        else:
            self.model = load(model, device, dtype)
        self.members = self.model.members if isinstance(self.model, Committee) else [self.model]
        self._evaluators = [Evaluator(member.network) for member in self.members]
        self._known: np.ndarray | None = None  # atomic numbers checked and on the device already
        self._atoms: list[tuple[Tensor, Tensor]] = []  # by member: those, and what each atom adds (eV)
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
        """What has changed since the last calculation; the cell of a molecule does not count.

        Dynamics asks several times a step, and ASE's own comparison takes as long as a small molecule does.
        """
        if self.atoms is None:
            return list(all_changes)
        before = self.atoms
        pairs = [
            ("positions", before.positions, atoms.positions),
            ("numbers", before.numbers, atoms.numbers),
            ("pbc", before.pbc, atoms.pbc),
        ]
        if atoms.pbc.any():
            pairs.append(("cell", before.cell.array, atoms.cell.array))
        return [name for name, old, new in pairs if not _same(old, new, tol)]

    def calculate(
        self,
        atoms: Atoms | None = None,
        properties: Sequence[str] = ("energy",),
        system_changes: Sequence[str] = tuple(all_changes),
    ) -> None:
        """Compute everything at once: forces cost little more than the energy, and MD asks for both."""
        if atoms is not None and self.check_state(atoms):  # ASE has made the copy already when it asks
            self.atoms = atoms.copy()
        if self.atoms is None:
            raise GeomAttError("The calculator was given no atoms.")
        self._check(self.atoms)
        periodic = self.atoms.pbc
        cell = None
        if periodic.any():
            cell = torch.from_numpy(np.where(periodic[:, None], self.atoms.cell.array, 0.0))
        centred = torch.from_numpy(self.atoms.positions - self.atoms.positions.mean(0))
        answers = [self._ask(number, centred, cell) for number in range(len(self.members))]
        answer = answers[0] if len(answers) == 1 else _mean(answers)
        # There is no electronic entropy, so the free energy, which ASE asks for at times, is the same.
        self.results = {
            "energy": answer.energy,
            "free_energy": answer.energy,
            "forces": answer.forces,
            "energies": answer.energies,
        }
        if periodic.all() and answer.stress is not None:
            self.results["stress"] = full_3x3_to_voigt_6_stress(answer.stress)
        elif "stress" in properties:
            raise GeomAttError("Stress needs a structure that is periodic in all three directions.")
        self._spread = None
        if len(answers) > 1:
            forces = np.stack([a.forces for a in answers])
            energies = np.array([a.energy for a in answers])
            self._spread = float(energies.std()), np.linalg.norm(forces.std(0), axis=-1)

    def _ask(self, number: int, positions: Tensor, cell: Tensor | None) -> _Answer:
        """What one member says."""
        member, (numbers, offset) = self.members[number], self._atoms[number]
        batch = Batch(
            numbers,
            positions.to(member.device, member.dtype)[None],
            cell=None if cell is None else cell.to(member.device, member.dtype)[None],
        )
        found = self._evaluators[number](batch, forces=True, attention=False, path=member.path)
        scale = member.normalisation.scale
        energies = offset + scale * found.atomic[0].double()
        return _Answer(
            float(energies.sum()),
            energies.cpu().numpy(),
            (scale * _there(found.forces)[0]).double().cpu().numpy(),
            None if found.stress is None else (scale * found.stress[0]).double().cpu().numpy(),
        )

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
            self._atoms = []
            for member in self.members:
                numbers = torch.from_numpy(self._known)[None].to(member.device)
                self._atoms.append((numbers, member.normalisation.offset(numbers)[0]))
        if not np.isfinite(atoms.positions).all():
            raise GeomAttError("Some positions are not finite numbers: the simulation has probably diverged.")


def _same(old: np.ndarray, new: np.ndarray, tol: float) -> bool:
    """Equal arrays, or closer than `tol`; what is not a number is never the same."""
    if np.array_equal(old, new):
        return True
    return old.shape == new.shape and old.dtype != bool and bool((np.abs(old - new) <= tol).all())


def _mean(answers: list[_Answer]) -> _Answer:
    """The committee's answer."""
    stresses = [a.stress for a in answers if a.stress is not None]
    return _Answer(
        float(np.mean([a.energy for a in answers])),
        np.mean([a.energies for a in answers], axis=0),
        np.mean([a.forces for a in answers], axis=0),
        np.mean(stresses, axis=0) if stresses else None,
    )


def _there(forces: Tensor | None) -> Tensor:
    if forces is None:
        raise TypeError("forces were asked for")
    return forces
