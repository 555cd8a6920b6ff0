"""Conversion between the network's normalised units and eV, in float64."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from geomatt.data.dataset import Dataset
from geomatt.elements import symbols
from geomatt.errors import GeomAttError


@dataclass(frozen=True)
class Normalisation:
    """E = shift + Σ_i reference[z_i] + scale · Σ_i ε_i, with ε_i the network's atomic energies (eV).

    Without a shift energies are extensive.
    """

    shift: float = 0.0
    scale: float = 1.0
    reference: dict[int, float] = field(default_factory=dict)
    composition: dict[int, int] = field(default_factory=dict)  # atoms of each element, if there was only one

    @classmethod
    def fit(
        cls,
        data: Dataset,
        reference: dict[int, float] | None = None,
        scale_by: str = "energy",
        extensive: bool = False,
    ) -> Normalisation:
        """For one composition the mean and standard deviation of the energies, as in the authors' code.

        A mix of compositions gets reference energies per element by least squares, unless they are given. If
        energies must be `extensive`, so does one composition: every atom has the same share of the mean,
        since energies of one composition do not tell more. The scale is the standard deviation of what is
        left of the energies, or with `scale_by` "forces" the root mean square of the force components
        times 1 Å. Structures count by their weights.
        """
        if data.energies is None:
            raise GeomAttError("The training data has no energies, so there is nothing to normalise by.")
        counts, shift, composition = data.composition().astype(np.float64), 0.0, {}
        if reference is None and data.single_composition:
            composition = {z: int(n) for z, n in zip(data.elements, counts[0], strict=True)}
            mean = float(np.average(data.energies, weights=data.weights))
            if extensive:
                reference = dict.fromkeys(data.elements, mean / counts[0].sum())
            else:
                shift, reference = mean, {}
        elif reference is None:
            solution = weighted_fit(counts, data.energies, data.weights)
            reference = {z: float(e) for z, e in zip(data.elements, solution, strict=True)}
        elif missing := [z for z in data.elements if z not in reference]:
            raise GeomAttError(
                f"No `reference` energy was given for {', '.join(symbols(missing))}. Give one for every "
                "element, or none."
            )
        rest = data.energies - shift - counts @ np.array([reference.get(z, 0.0) for z in data.elements])
        rms = _rms(data)
        scale = rms if scale_by == "forces" and data.forces is not None else _deviation(rest, data.weights)
        if not scale > 1e-9:  # one frame, or identical energies: fall back to the forces, then to 1 eV
            scale = rms
        return cls(shift, scale if scale > 1e-9 else 1.0, reference, composition)

    def offset(self, numbers: Tensor) -> Tensor:
        """Per-atom energy offset (B, N) float64: reference energy and share of the shift."""
        mask = numbers > 0
        share = self.shift / mask.sum(-1, keepdim=True).clamp(min=1).double() * mask
        if not self.reference:
            return share
        table = torch.zeros(119, dtype=torch.float64, device=numbers.device)
        for z, energy in self.reference.items():
            table[z] = energy
        return table[numbers] + share

    def energy_residual(self, numbers: Tensor, energy: Tensor) -> Tensor:
        """Energies (B,) in eV as the network's targets, float64."""
        return (energy - self.offset(numbers).sum(-1)) / self.scale

    def to_dict(self) -> dict[str, Any]:
        return {
            "shift": self.shift,
            "scale": self.scale,
            "reference": {str(z): e for z, e in self.reference.items()},
            "composition": {str(z): n for z, n in self.composition.items()},
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Normalisation:
        return cls(
            float(values["shift"]),
            float(values["scale"]),
            {int(z): float(e) for z, e in values["reference"].items()},
            {int(z): int(n) for z, n in values.get("composition", {}).items()},
        )


def weighted_fit(counts: np.ndarray, energies: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
    """Energies per element by least squares of structures with the given numbers of atoms (n, elements)."""
    root = 1.0 if weights is None else np.sqrt(weights)
    solution: np.ndarray = np.linalg.lstsq((counts.T * root).T, energies * root, rcond=None)[0]
    return solution


def _deviation(values: np.ndarray, weights: np.ndarray | None) -> float:
    if weights is None:
        return float(np.std(values))
    mean = np.average(values, weights=weights)
    return float(np.sqrt(np.average((values - mean) ** 2, weights=weights)))


def _rms(data: Dataset) -> float:
    """Root mean square of the components of forces that are known; 0 without any."""
    if data.forces is None:
        return 0.0
    known = ~np.isnan(data.forces)
    squares = data.forces[known] ** 2
    if data.weights is None:
        return float(np.sqrt(np.mean(squares))) if len(squares) else 0.0
    owner = np.repeat(data.weights, data.sizes)[:, None]
    weights = np.broadcast_to(owner, known.shape)[known]
    return float(np.sqrt(np.average(squares, weights=weights))) if weights.any() else 0.0
