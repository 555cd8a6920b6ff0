"""Ranges of distances as tensors beside a batch, and how far its pairs are outside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from geomatt.data.batch import Batch
from geomatt.model.domain.measure import distances, minimum_image
from geomatt.model.domain.ranges import PairLimits, Pairs, Ranges


@dataclass(frozen=True)
class Limits:
    """The range of every pair of B structures in Å; −inf and inf where there is no limit, as for padding."""

    lower: Tensor  # (B, N, N)
    upper: Tensor  # (B, N, N)
    notes: tuple[str, ...] = ()  # by structure: why there are no limits, or what they leave out

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Limits:
        return Limits(self.lower.to(device, dtype), self.upper.to(device, dtype), self.notes)


@dataclass(frozen=True)
class Outside:
    """The pair of each structure that is furthest outside its range."""

    excess: Tensor  # (..., B) Å, negative if all pairs are inside, −inf without limits
    pair: Tensor  # (..., B, 2) int64


def limits_of(ranges: Ranges, batch: Batch, pairs: Pairs = "local") -> Limits:
    """The limits of every structure of a batch (B, N), whose bonds are taken from its positions.

    Done once, on the processor, for structures that will be evaluated many times.
    """
    numbers, positions = batch.numbers.cpu().numpy(), batch.positions.double().cpu().numpy()
    cells = None if batch.cell is None else batch.cell.double().cpu().numpy()
    found = []
    for b, z in enumerate(numbers):
        atoms = int((z > 0).sum())
        cell = None if cells is None else cells[b]
        limits = ranges.limits(z[:atoms], distances(positions[b, :atoms], cell), pairs)
        found.append(limits if cell is None else visible(limits, cell))
    return stack(found, numbers.shape[1]).to(batch.positions.device, batch.positions.dtype)


def stack(limits: Sequence[PairLimits], size: int) -> Limits:
    """Limits of structures of any sizes, padded to `size` atoms."""
    lower = np.full((len(limits), size, size), -np.inf)
    upper = np.full_like(lower, np.inf)
    for b, one in enumerate(limits):
        atoms = len(one.lower)
        lower[b, :atoms, :atoms], upper[b, :atoms, :atoms] = one.lower, one.upper
    return Limits(torch.from_numpy(lower), torch.from_numpy(upper), tuple(one.note for one in limits))


def outside(positions: Tensor, limits: Limits, cell: Tensor | None = None) -> Outside:
    """The largest excess of positions (..., B, N, 3) and its pair, without synchronising the device."""
    _, distance = geometry(positions, cell)
    excess = torch.maximum(limits.lower - distance, distance - limits.upper)
    largest, where = excess.flatten(-2).max(-1)
    size = distance.shape[-1]
    return Outside(largest, torch.stack([where // size, where % size], -1))


def geometry(positions: Tensor, cell: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Vectors r_i − r_j (..., N, N, 3) and distances (..., N, N), never zero so that they can divide."""
    vectors = positions[..., :, None, :] - positions[..., None, :, :]
    if cell is not None:
        vectors = minimum_image(vectors, cell)
    return vectors, vectors.square().sum(-1).clamp(min=1e-12).sqrt()


def visible(limits: PairLimits, cell: np.ndarray) -> PairLimits:
    """Without upper limits that the distance to the nearest image cannot exceed."""
    heights = 1.0 / np.linalg.norm(np.linalg.pinv(cell)[:, (cell != 0).any(1)], axis=0)
    reach = 0.5 * heights.min(initial=np.inf)
    return PairLimits(limits.lower, np.where(limits.upper < reach, limits.upper, np.inf), limits.note)
