"""A model as an ASE calculator: energy, forces, stress and atomic energies."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from scipy.spatial.distance import pdist
from torch import Tensor

from geomatt.data.batch import Batch
from geomatt.data.electrons import multiplicity, total_charge
from geomatt.data.structures import as_structure
from geomatt.errors import GeomAttError
from geomatt.model import Potential
from geomatt.model.domain import WARNING, Domain, Limits, warning
from geomatt.model.domain.frames import EXTRAPOLATION
from geomatt.settings import typed
from geomatt.simulation.inputs import Model, load_model, overlap, watched

try:
    from ase import Atoms
    from ase.calculators.calculator import Calculator, all_changes
    from ase.stress import full_3x3_to_voigt_6_stress
except ImportError as error:
    raise GeomAttError("The calculator needs ASE. Install it with: pip install ase") from error


class GeomAttCalculator(Calculator):
    """Energy (eV), forces (eV/Å), stress (eV/Å³, periodic structures) and atomic energies for ASE.

    Args:
        model: a model file, the directory of a run, a `Potential` or a `Committee`. A committee gives
            the mean of its members, and their spread as `energy_spread` and `forces_spread`. Calibrated
            error bars are given by `error_bars`.
        device: where to compute, "cpu" or "cuda".
        dtype: "float32" or "float64"; by default the precision the model has.
        walls: add the walls where the training data end. They are zero inside the data, and keep dynamics
            from leaving it; `wall_steps` counts the calculations in which one was active.
    """

    implemented_properties = ["energy", "free_energy", "forces", "energies", "stress"]  # noqa: RUF012 - ASE's convention
    ignored_changes = {"initial_charges", "initial_magmoms"}  # noqa: RUF012 - ASE's convention

    def __init__(
        self,
        model: Model,
        device: torch.device | str = "cpu",
        dtype: torch.dtype | str | None = None,
        walls: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.model = load_model(model, device, dtype, walls=walls)
        self._numbers = np.zeros(0, dtype=np.int64)  # atomic numbers that were checked
        self._pbc = np.zeros(0, dtype=bool)  # and periodic directions
        self._on_device: Tensor | None = None  # the atomic numbers on the device, (1, N)
        self._spread: tuple[float, np.ndarray] | None = None
        self._last: Batch | None = None  # of the last calculation
        self._told: set[str] = set()  # warnings given
        self._watch = _RangeWatch(self.model.domain, typed("walls", walls, bool))

    @property
    def wall_steps(self) -> int:
        """Calculations so far in which a wall was active."""
        return self._watch.active

    @property
    def energy_spread(self) -> float | None:
        """Standard deviation of the members' energies in the last calculation (eV); None for one model."""
        return self._spread[0] if self._spread and self.results else None

    @property
    def forces_spread(self) -> np.ndarray | None:
        """Norm of the standard deviation of each atom's force (N,) in the last calculation (eV/Å)."""
        return self._spread[1].copy() if self._spread and self.results else None

    def error_bars(self, level: float = 0.9) -> tuple[float, np.ndarray | None] | None:
        """Error bars of the last calculation: of the energy (eV), and of the force on each atom (N,) (eV/Å).

        A share `level` of errors is below them, on data like the training data. For a committee they come
        from the spread of its members, for one model from the distance of its atoms' surroundings to those
        in the training data. None for a model without calibration, and for one model in periodic cells.
        """
        calibration = self.model.calibration
        if calibration is None or self._last is None or not self.results:
            return None
        spread: tuple[float, np.ndarray | None] | None = self._spread
        if spread is None and isinstance(self.model, Potential):
            if self.model.estimate is None or self._last.cell is not None:
                return None
            energies, lengths = self.model.estimate.errors(self._last)
            spread = float(energies[0]), None if lengths is None else _array(lengths[0])
        if spread is None:
            return None
        energy, forces = spread
        scale = calibration.forces
        return (
            float(calibration.energy.bar(np.array(energy), level)),
            None if forces is None or scale is None else scale.bar(forces, level),
        )

    def check_state(self, atoms: Atoms, tol: float = 1e-15) -> list[str]:
        """Names of what has changed since the last calculation; the cell of a molecule does not count.

        ASE calls this several times per step; its own comparison is as slow as evaluating a small molecule.
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
        changes = [name for name, old, new in pairs if not _same(old, new, tol)]
        if not changes and self.model.uses_electrons and _electrons(before) != _electrons(atoms):
            changes.append("initial_charges")
        return changes

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
        assert self._on_device is not None
        periodic = self.atoms.pbc
        batch = self._batch(self.atoms)
        output = self.model.evaluate(batch, keep=True, limits=self._watch.limits(batch, self.atoms.positions))
        assert output.forces is not None
        energy = float(output.energy[0])
        # There is no electronic entropy, so the free energy, which ASE asks for at times, is the same.
        self.results = {
            "energy": energy,
            "free_energy": energy,
            "forces": _array(output.forces[0]),
            "energies": _array(output.atomic_energies[0]),
        }
        if periodic.all() and output.stress is not None:
            self.results["stress"] = full_3x3_to_voigt_6_stress(_array(output.stress[0]))
        elif "stress" in properties:
            raise GeomAttError("Stress needs a structure that is periodic in all three directions.")
        self._spread, self._last = None, batch
        if output.energy_spread is not None and output.forces_spread is not None:
            self._spread = float(output.energy_spread[0]), _array(output.forces_spread[0])

    def _batch(self, atoms: Atoms) -> Batch:
        assert self._on_device is not None
        device, dtype = self._on_device.device, self.model.dtype
        cell = None
        if atoms.pbc.any():
            lattice = np.where(atoms.pbc[:, None], atoms.cell.array, 0.0)
            cell = torch.from_numpy(lattice).to(device, dtype)[None]
        centred = torch.from_numpy(atoms.positions - atoms.positions.mean(0))
        batch = Batch(self._on_device, centred.to(device, dtype)[None], cell=cell)
        if not self.model.uses_electrons:
            return batch
        total, spins = _electrons(atoms)
        charge, spin = torch.tensor([[total], [(spins or 1) - 1]])
        return replace(batch, charge=charge.to(device, dtype), spin=spin.to(device, dtype))

    def _check(self, atoms: Atoms) -> None:
        """Raise an error for atoms the model cannot be used on; elements are checked when they change."""
        if not np.isfinite(atoms.positions).all():
            raise GeomAttError("Some positions are not finite numbers: the simulation has probably diverged.")
        new = not (np.array_equal(self._numbers, atoms.numbers) and np.array_equal(self._pbc, atoms.pbc))
        if new or atoms.pbc.any():  # a cell may change in every step
            structure = as_structure(atoms)
            self.model.check(structure, f"{atoms.get_chemical_formula() or 'The structure'}")
        if new:
            for message in filter(None, (overlap(structure), *self.model.doubts(structure))):
                self._warn_once(message)
            self._numbers, self._pbc = structure.numbers.copy(), atoms.pbc.copy()
            self._on_device = torch.from_numpy(self._numbers)[None].to(self.model.device)
            note = self._watch.start(self._batch(atoms))
            if note and not self.model.other_composition(structure):
                self._warn_once(f"{note} {EXTRAPOLATION}")
        for name, words, sums in (
            ("initial_charges", "charges", "charges"),
            ("initial_magmoms", "magnetic moments", "spins"),
        ):
            values = atoms.arrays.get(name)
            told = any(message.startswith(f"The model does not use {sums}") for message in self._told)
            if values is not None and values.any() and not self.model.uses_electrons and not told:
                self._warn_once(f"The model does not use {words}: the {words} of the atoms are ignored.")

    def _warn_once(self, message: str) -> None:
        if message not in self._told:
            self._told.add(message)
            warnings.warn(message, stacklevel=3)


class _RangeWatch:
    """Walls where the training data end, and one warning about leaving it, for one structure.

    Checks in every step if walls are needed; in numpy, since most steps need none.
    """

    def __init__(self, domain: Domain | None, walls: bool) -> None:
        self.domain, self.walls = domain, walls
        self.active = 0  # steps with an active wall
        self._limits: Limits | None = None
        self._range: tuple[np.ndarray, np.ndarray] | None = None  # of the pairs i < j, without a cell
        self._warned = False

    def start(self, batch: Batch) -> str:
        """Take the limits of a structure (1, N) from its present bonds; says what is not known of it."""
        self._limits = self._range = None
        if self.domain is None or not watched(batch.numbers.shape[1]):
            return ""
        self._limits = self.domain.limits(batch)
        if batch.cell is None:
            pairs = np.triu_indices(batch.numbers.shape[1], 1)
            lower, upper = (x[0].double().cpu().numpy() for x in (self._limits.lower, self._limits.upper))
            self._range = lower[pairs], upper[pairs]
        return self._limits.notes[0]

    def limits(self, batch: Batch, positions: np.ndarray) -> Limits | None:
        """The limits for walls if a pair of `positions` (N, 3) is outside its range, else None."""
        if self.domain is None or self._limits is None:
            return None
        if self._range is None:  # a periodic cell
            excess = float(self.domain.outside(batch, self._limits).excess[0])
        else:
            distance = pdist(positions)
            beyond = np.maximum(self._range[0] - distance, distance - self._range[1])
            excess = float(beyond.max(initial=-np.inf))
        if excess > WARNING and not self._warned:
            self._warned = True
            message = warning(batch.numbers, self.domain.outside(batch, self._limits))
            warnings.warn(message or "A pair is outside its range in the training data.", stacklevel=4)
        if not self.walls or excess <= self.domain.walls.margin:
            return None
        self.active += 1
        return self._limits


def _electrons(atoms: Atoms) -> tuple[float, int | None]:
    """Total charge and multiplicity."""
    return total_charge(atoms.info, atoms.arrays)[0], multiplicity(atoms.info, atoms.arrays)[0]


def _same(old: np.ndarray, new: np.ndarray, tol: float) -> bool:
    """True for arrays that are equal or closer than `tol`; NaN is never the same."""
    if np.array_equal(old, new):
        return True
    return old.shape == new.shape and old.dtype != bool and bool((np.abs(old - new) <= tol).all())


def _array(values: Tensor) -> np.ndarray:
    return values.double().cpu().numpy()
