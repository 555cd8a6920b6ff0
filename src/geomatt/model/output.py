"""Predictions of a potential: tensors for a batch, arrays for a structure, in eV and Å."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from torch import Tensor

from geomatt.model.domain import WallResult
from geomatt.model.interface import AttentionRecord


@dataclass(frozen=True)
class Output:
    """Predictions for a batch, as tensors (eV, eV/Å).

    Spreads are those of a committee; for one model they are errors estimated from its training data.
    """

    energy: Tensor  # (B,) float64
    atomic_energies: Tensor  # (B, N) float64, summing to the energy
    forces: Tensor | None  # (B, N, 3)
    attention: list[AttentionRecord[Tensor]] | None
    stress: Tensor | None = None  # (B, 3, 3), eV/Å³ in ASE's sign; nan for structures without a volume
    walls: WallResult | None = None  # what the walls at the ends of the data added, if they were on
    energy_spread: Tensor | None = None  # (B,) standard deviation over the members
    forces_spread: Tensor | None = None  # (B, N) norm of the standard deviation of each atom's force

    def with_walls(self, walls: WallResult) -> Output:
        """The predictions with the walls at the ends of the training data added."""
        return replace(
            self,
            energy=self.energy + walls.energy.double(),
            atomic_energies=self.atomic_energies + walls.atomic.double(),
            forces=None if self.forces is None else self.forces + walls.forces,
            stress=None if self.stress is None or walls.stress is None else self.stress + walls.stress,
            walls=walls,
        )

    def split(self, sizes: Sequence[int]) -> list[Prediction]:
        """One prediction for each structure, of these numbers of atoms, without padding."""
        energy, atomic = _array(self.energy), _array(self.atomic_energies)
        forces, stress = _array(self.forces), _array(self.stress)
        energy_spread, forces_spread = _array(self.energy_spread), _array(self.forces_spread)
        records = None
        if self.attention is not None:
            records = [r.with_matrix(r.matrix.cpu().numpy(), r.images) for r in self.attention]
        return [
            Prediction(
                float(energy[b]),
                atomic[b, :n],
                None if forces is None else forces[b, :n],
                None
                if records is None
                else [r.with_matrix(r.matrix[b, :n, :n], r.images and r.images[b]) for r in records],
                None if stress is None or np.isnan(stress[b]).any() else stress[b],
                None if energy_spread is None else float(energy_spread[b]),
                None if forces_spread is None else forces_spread[b, :n],
            )
            for b, n in enumerate(sizes)
        ]


@dataclass(frozen=True)
class Prediction:
    """Predictions for one structure, as arrays (eV, eV/Å), with spreads as in `Output`."""

    energy: float
    atomic_energies: np.ndarray  # (N,) float64
    forces: np.ndarray | None = None  # (N, 3) float64
    attention: list[AttentionRecord[np.ndarray]] | None = None
    stress: np.ndarray | None = None  # (3, 3) eV/Å³, of structures periodic in all directions
    energy_spread: float | None = None
    forces_spread: np.ndarray | None = None  # (N,)


def _array(values: Tensor | None) -> Any:
    return None if values is None else values.double().cpu().numpy()
