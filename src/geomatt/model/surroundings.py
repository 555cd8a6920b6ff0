"""Error estimates of a single model: how far the surroundings of atoms are from those in the training data.

The surroundings x_i of atom i are the inverse distances to the nearest atoms of each element, largest first.
With mean m_z and covariance C_z of the training atoms of its element z, the distance of atom i is

    d_i = √((x_i − m_z)ᵀ (C_z + ε)⁻¹ (x_i − m_z) / n_z)

with n_z such that the mean of d² over the training atoms is one. Estimated errors are a_z d_i² for the force
on an atom and b √(Σ_i d_i⁶) for the energy, with factors from validation data. With lower powers of d they
are too small far from the training data: these did best for ethanol and malonaldehyde.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from geomatt.data.batch import Batch, collate
from geomatt.data.dataset import Dataset

NEAREST = 6  # atoms of each element
RIDGE = 0.01  # ε over the mean variance
_SMALLEST = 1e-8  # ε at least, 1/Å²
_FRAMES = 2000  # measured at most
_PAIRS = 500_000  # of atoms at a time


@dataclass(frozen=True)
class Surroundings:
    """Mean (D,) and whitening matrix (D, D) of the surroundings of each element's atoms."""

    elements: tuple[int, ...]
    mean: dict[int, np.ndarray]
    whitening: dict[int, np.ndarray]  # W with Wᵀ W = (C + ε)⁻¹ / n

    @classmethod
    def measure(cls, data: Dataset) -> Surroundings | None:
        """From training frames, evenly spread if there are many; None for periodic ones."""
        if data.pbc is not None and data.pbc.any():
            return None
        frames = np.unique(np.linspace(0, len(data) - 1, _FRAMES).astype(int))
        largest = int(data.sizes[frames].max())
        step = max(1, _PAIRS // largest**2)
        elements = tuple(data.elements)
        rows: dict[int, list[np.ndarray]] = {z: [] for z in elements}
        for start in range(0, len(frames), step):
            batch = collate([data[int(i)] for i in frames[start : start + step]], torch.float64)
            found, numbers = described(batch, elements).numpy(), batch.numbers.numpy()
            for z in elements:
                rows[z].append(found[numbers == z])
        mean, whitening = {}, {}
        for z, parts in rows.items():
            values = np.concatenate(parts)
            if not len(values):  # of frames that were not looked at
                continue
            size = values.shape[1]
            mean[z] = values.mean(0)
            centred = values - mean[z]
            covariance = centred.T @ centred / len(values)
            ridge = max(RIDGE * float(np.trace(covariance)) / size, _SMALLEST)
            variance, axes = np.linalg.eigh(covariance)
            variance = np.maximum(variance, 0.0)
            scale = max(float((variance / (variance + ridge)).sum()), 1.0)
            whitening[z] = axes.T / np.sqrt((variance + ridge) * scale)[:, None]
        return cls(elements, mean, whitening)

    def distance(self, batch: Batch) -> Tensor:
        """The distances (B, N), float64; zero for padding and elements that are not known."""
        found = described(batch, self.elements)
        distance = torch.zeros(batch.numbers.shape, dtype=torch.float64, device=batch.numbers.device)
        for z, mean in self.mean.items():
            atoms = batch.numbers == z
            centred = found[atoms] - torch.from_numpy(mean).to(found.device)
            distance[atoms] = (centred @ torch.from_numpy(self.whitening[z]).to(found.device).T).norm(dim=-1)
        return distance

    def to_dict(self) -> dict[str, Any]:
        return {
            "elements": list(self.elements),
            "mean": {str(z): _short(values) for z, values in self.mean.items()},
            "whitening": {str(z): _short(values) for z, values in self.whitening.items()},
        }

    @classmethod
    def from_dict(cls, stored: dict[str, Any]) -> Surroundings:
        elements = tuple(int(z) for z in stored["elements"])
        size = NEAREST * len(elements)
        mean = {int(z): np.array(v, dtype=np.float64) for z, v in stored["mean"].items()}
        whitening = {int(z): np.array(v, dtype=np.float64) for z, v in stored["whitening"].items()}
        if mean.keys() != whitening.keys() or any(
            mean[z].shape != (size,) or whitening[z].shape != (size, size) for z in mean
        ):
            raise ValueError("surroundings do not fit")
        return cls(elements, mean, whitening)


def described(batch: Batch, elements: Sequence[int]) -> Tensor:
    """The surroundings (B, N, D) of atoms without a cell, in 1/Å and float64."""
    positions = batch.positions.double()
    distance = (positions[:, :, None] - positions[:, None]).norm(dim=-1)  # (B, N, N)
    inverse = 1.0 / distance.clamp(min=1e-3)
    inverse.diagonal(dim1=1, dim2=2).zero_()
    count = min(NEAREST, inverse.shape[-1])
    parts = []
    for z in elements:
        own = inverse * (batch.numbers == z)[:, None]
        nearest = own.topk(count, dim=-1).values
        parts.append(torch.nn.functional.pad(nearest, (0, NEAREST - count)))
    return torch.cat(parts, -1)


@dataclass(frozen=True)
class Estimate:
    """Estimated errors of a single model, from the surroundings of its atoms."""

    surroundings: Surroundings
    energy: float  # eV
    forces: dict[int, float]  # eV/Å, by element; empty without forces

    @classmethod
    def fit(
        cls,
        surroundings: Surroundings,
        distances: Sequence[np.ndarray],  # (N,) of each validation structure
        energy_error: np.ndarray,  # (n,)
        numbers: np.ndarray,  # (atoms,)
        force_error: np.ndarray | None,  # (atoms,) lengths, nan where unknown
    ) -> Estimate:
        """Factors for which the mean estimate is the mean error."""
        whole = np.array([np.sqrt((d**6).sum()) for d in distances])
        energy = float(np.abs(energy_error).mean() / max(whole.mean(), 1e-12))
        forces: dict[int, float] = {}
        if force_error is not None and np.isfinite(force_error).any():
            squares, known = np.square(np.concatenate(distances)), np.isfinite(force_error)
            every = float(force_error[known].mean() / max(squares[known].mean(), 1e-12))
            for z in surroundings.elements:
                own = known & (numbers == z)
                mean = squares[own].mean() if own.any() else 0.0
                forces[z] = float(force_error[own].mean() / mean) if mean > 0 else every
        return cls(surroundings, energy, forces)

    def errors(self, batch: Batch) -> tuple[Tensor, Tensor | None]:
        """Estimated errors of energies (B,) in eV and of forces (B, N) in eV/Å; None without factors."""
        distance = self.surroundings.distance(batch)
        squares, energy = distance.square(), self.energy * (distance**3).norm(dim=-1)
        if not self.forces:
            return energy, None
        table = torch.zeros(119, dtype=torch.float64, device=squares.device)
        for z, factor in self.forces.items():
            table[z] = factor
        return energy, table[batch.numbers] * squares

    def to_dict(self) -> dict[str, Any]:
        forces = {str(z): factor for z, factor in self.forces.items()}
        return {"surroundings": self.surroundings.to_dict(), "energy": self.energy, "forces": forces}

    @classmethod
    def from_dict(cls, stored: dict[str, Any]) -> Estimate:
        forces = {int(z): float(factor) for z, factor in stored["forces"].items()}
        return cls(Surroundings.from_dict(stored["surroundings"]), float(stored["energy"]), forces)


def _short(values: np.ndarray) -> Any:
    """Six digits are enough for an estimate."""
    return [_short(row) for row in values] if values.ndim > 1 else [float(f"{v:.6g}") for v in values]
