"""Walls at the ends of the data: an energy for every pair of atoms outside its range in the training frames.

With r the distance of a pair, [a, b] its range, x = max(a − r, r − b) its excess, y = max(x − margin, 0)
and c = min(y, onset), the energy of the pair is

    u(y) = k [c³ / (6 onset) + (y − c) onset / 2 + (y − c)² / 2].

Its curvature grows from 0 to k over `onset` and stays there, so energy, force and curvature are continuous.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, get_args

import torch
from torch import Tensor

from geomatt.data.batch import Batch
from geomatt.errors import GeomAttError
from geomatt.model.domain.limits import Limits, geometry
from geomatt.model.domain.ranges import Pairs


@dataclass(frozen=True)
class WallResult:
    """Contribution of walls to a batch (eV, Å). Leading axes are those of the positions."""

    energy: Tensor  # (..., B)
    atomic: Tensor  # (..., B, N), half of each pair's energy to either atom
    forces: Tensor  # (..., B, N, 3)
    stress: Tensor | None  # (..., B, 3, 3), nan for structures without a volume; None without cells
    excess: Tensor  # (..., B, N, N), how far each pair is outside its range; negative inside
    active: Tensor  # (..., B, N, N) bool, pairs that a wall acts on


@dataclass(frozen=True)
class Walls:
    """Stiffness and place of the walls."""

    stiffness: float = 50.0  # k, eV/Å²
    margin: float = 0.1  # Å beyond the range where a wall begins
    onset: float = 0.05  # Å over which its curvature grows
    pairs: Pairs = "local"  # which pairs have walls

    def __post_init__(self) -> None:
        if self.pairs not in get_args(Pairs):
            raise GeomAttError(f"Walls are for `pairs` {' or '.join(get_args(Pairs))}, not {self.pairs!r}.")
        if not (self.stiffness >= 0 and self.margin >= 0 and self.onset > 0):
            raise GeomAttError("Walls need a `stiffness` and `margin` of at least 0 and a positive `onset`.")

    def __call__(self, batch: Batch, limits: Limits) -> WallResult:
        """Energy, forces and stress of a batch, with or without a leading axis of members."""
        return self.evaluate(batch.positions, limits, batch.cell)

    def evaluate(self, positions: Tensor, limits: Limits, cell: Tensor | None = None) -> WallResult:
        """For positions (..., B, N, 3), in their precision. Without synchronisation, as in a CUDA graph."""
        vectors, distance = geometry(positions, cell)  # (..., B, N, N, 3), (..., B, N, N)
        below, above = limits.lower - distance, distance - limits.upper
        excess = torch.maximum(below, above)
        energy, slope = self.pair_energy(excess)
        pull = torch.where(above > below, slope, -slope) / distance  # ∂u/∂r / r
        forces = -(pull[..., None] * vectors).sum(-2)
        atomic = 0.5 * energy.sum(-1)
        stress = None
        if cell is not None:
            virial = 0.5 * torch.einsum("...ij,...ijx,...ijy->...xy", pull, vectors, vectors)
            volume = torch.linalg.det(cell).abs()
            stress = virial / volume.masked_fill(volume == 0, torch.nan)[..., None, None]
        return WallResult(atomic.sum(-1), atomic, forces, stress, excess, excess > self.margin)

    def pair_energy(self, excess: Tensor) -> tuple[Tensor, Tensor]:
        """u and du/dx of pairs with this excess."""
        k, w = self.stiffness, self.onset
        outside = (excess - self.margin).clamp(min=0.0)
        curved = outside.clamp(max=w)
        rest = outside - curved
        energy = k * (curved**3 / (6.0 * w) + rest * (0.5 * w + 0.5 * rest))
        return energy, k * (curved**2 / (2.0 * w) + rest)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)
