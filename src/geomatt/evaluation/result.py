"""Predictions with their labels, and the errors."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from geomatt.data.dataset import Dataset
from geomatt.elements import SYMBOLS, formula
from geomatt.model.calibration import LEVELS, Calibration, Scale, force_errors
from geomatt.units import from_ev

# Entries of `ErrorSummary` that do not depend on the unit of energies.
_FIXED = ("structures", "atoms", "stress_mae", "stress_rmse")


@dataclass(frozen=True)
class ErrorSummary:
    """Errors of a group of structures or atoms; None without labels. Force errors are per component."""

    structures: int
    atoms: int
    energy_mae: float | None = None
    energy_rmse: float | None = None
    energy_per_atom_mae: float | None = None
    energy_per_atom_rmse: float | None = None
    forces_mae: float | None = None
    forces_rmse: float | None = None
    stress_mae: float | None = None  # always eV/Å³
    stress_rmse: float | None = None

    def scaled(self, factor: float) -> ErrorSummary:
        """The same errors in another unit."""
        values = {k: v if v is None or k in _FIXED else v * factor for k, v in asdict(self).items()}
        return ErrorSummary(**values)


@dataclass(frozen=True)
class EvaluationResult:
    """Labels and predictions of the frames that were evaluated (eV, Å), with their errors.

    `overall`, `per_element` and `per_molecule` are in eV; `to_dict` reports in any unit.
    """

    data: Dataset  # the frames evaluated, with their labels
    energies: np.ndarray  # (n,) predicted
    forces: np.ndarray | None  # (atoms, 3) predicted, None where the data has no forces
    trained: int  # frames the model was trained on; left out unless `trained_included`
    trained_included: bool = False
    energies_spread: np.ndarray | None = None  # (n,) of a committee, or estimated errors of one model
    forces_spread: np.ndarray | None = None  # (atoms,)
    stress: np.ndarray | None = None  # (n, 3, 3) predicted, nan for structures without; None without labels
    unit: str = "eV"  # for reports
    calibration: Calibration | None = None  # of the spread
    provenance: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def overall(self) -> ErrorSummary:
        return self._errors(np.ones(len(self.data), dtype=bool))

    @cached_property
    def per_molecule(self) -> dict[str, ErrorSummary]:
        """Errors by sum formula."""
        names = self._formulas
        return {name: self._errors(names == name) for name in dict.fromkeys(names.tolist())}

    @cached_property
    def per_element(self) -> dict[str, ErrorSummary]:
        """Force errors by element of the atom."""
        owner = np.repeat(np.arange(len(self.data)), self.data.sizes)
        result = {}
        for z in self.data.elements:
            atoms = self.data.numbers == z
            structures = len(np.unique(owner[atoms]))
            result[SYMBOLS[z]] = ErrorSummary(structures, int(atoms.sum()), **self._force_errors(atoms))
        return result

    @cached_property
    def spread(self) -> dict[str, float] | None:
        """The mean spread (eV, eV/Å) and its correlation with the errors; None for a model that has none.

        A correlation near one means that errors are large where members disagree, or where the surroundings
        of atoms are far from those in the training data.
        """
        if self.energies_spread is None:
            return None
        result = {"energy_mean": float(self.energies_spread.mean())}
        if self.forces is not None and self.data.forces is not None and self.forces_spread is not None:
            error = np.linalg.norm(self.forces - self.data.forces, axis=-1)
            known = ~np.isnan(error)
            error, spread = error[known], self.forces_spread[known]
            result["forces_mean"] = float(self.forces_spread.mean())
            if len(error) and min(np.ptp(error), np.ptp(spread)) > 0:
                result["forces_correlation"] = float(np.corrcoef(error, spread)[0, 1])
        return result

    @cached_property
    def coverage(self) -> dict[str, dict[str, list[float]]] | None:
        """Shares of errors below the error bars at each of LEVELS, of energies and of forces.

        "calibrated" is what was asked for if the data is like the validation data; "raw" takes the spread as
        the standard deviation of a normal distribution. None without a calibration.
        """
        if self.calibration is None or self.energies_spread is None:
            return None
        result = {}
        if self.data.energies is not None:
            error = np.abs(self.energies - self.data.energies)
            result["energy"] = _shares(error, self.energies_spread, self.calibration.energy, freedom=1)
        scale, spread = self.calibration.forces, self.forces_spread
        if scale and spread is not None and self.forces is not None and self.data.forces is not None:
            error = force_errors(self.forces, self.data.forces)
            known = np.repeat(self.data.has_forces, self.data.sizes)
            result["forces"] = _shares(error[known], spread[known], scale, freedom=3)
        return result or None

    def to_dict(self, unit: str | None = None) -> dict[str, Any]:
        """Everything except the single predictions, ready for JSON; errors in `unit` and `unit`/Å."""
        unit = unit or self.unit
        factor = from_ev(unit)

        def table(groups: dict[str, ErrorSummary]) -> dict[str, dict[str, Any]]:
            return {name: asdict(errors.scaled(factor)) for name, errors in groups.items()}

        return {
            "unit": {"energy": unit, "forces": f"{unit}/Ang"}
            | ({} if self.stress is None else {"stress": "eV/Ang^3"}),
            "structures": len(self.data),
            "trained_frames": {"count": self.trained, "included": self.trained_included},
            **table({"overall": self.overall}),
            "per_element": table(self.per_element),
            "per_molecule": table(self.per_molecule),
            "committee_spread" if self.provenance.get("members", 1) > 1 else "estimated_error": None
            if self.spread is None
            else {k: v if k.endswith("correlation") else v * factor for k, v in self.spread.items()},
            "coverage": None
            if self.coverage is None
            else {"levels": list(LEVELS), "calibration_frames": self.calibration.frames, **self.coverage},  # type: ignore[union-attr]
            "provenance": self.provenance,
        }

    @cached_property
    def _formulas(self) -> np.ndarray:
        counts = self.data.composition()
        unique, inverse = np.unique(counts, axis=0, return_inverse=True)
        names = np.array([formula(np.repeat(self.data.elements, row)) for row in unique])
        return names[inverse.reshape(-1)]

    def _errors(self, chosen: np.ndarray) -> ErrorSummary:
        """Errors of the structures where `chosen` (n,) is True."""
        sizes = self.data.sizes[chosen]
        found = self._force_errors(np.repeat(chosen, self.data.sizes))
        if self.stress is not None and self.data.stress is not None:
            found |= _mae_rmse("stress", (self.stress - self.data.stress)[chosen])
        if self.data.energies is not None:
            difference = (self.energies - self.data.energies)[chosen]
            found |= _mae_rmse("energy", difference) | _mae_rmse("energy_per_atom", difference / sizes)
        return ErrorSummary(int(chosen.sum()), int(sizes.sum()), **found)

    def _force_errors(self, atoms: np.ndarray) -> dict[str, float]:
        if self.forces is None or self.data.forces is None:
            return {}
        return _mae_rmse("forces", (self.forces - self.data.forces)[atoms])


def _shares(error: np.ndarray, spread: np.ndarray, scale: Scale, freedom: int) -> dict[str, list[float]]:
    """Shares of errors below the calibrated error bars, and below those of a normal distribution."""
    from scipy.stats import chi

    # The spread of a force is the length of a vector with `freedom` components of equal width.
    raw = [chi.ppf(level, freedom) / np.sqrt(freedom) for level in LEVELS]
    return {
        "calibrated": [float((error <= scale.bar(spread, level)).mean()) for level in LEVELS],
        "raw": [float((error <= factor * spread).mean()) for factor in raw],
    }


def _mae_rmse(name: str, error: np.ndarray) -> dict[str, float]:
    """NAME_mae and NAME_rmse of the errors that are known; empty if none is."""
    error = error[~np.isnan(error)]
    if not len(error):
        return {}
    return {
        f"{name}_mae": float(np.abs(error).mean()),
        f"{name}_rmse": float(np.sqrt(np.square(error).mean())),
    }
