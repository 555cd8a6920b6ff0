"""Quantities of pairs of atoms that several networks use."""

from __future__ import annotations

import torch
from torch import Tensor

from geomatt.data.batch import Batch


def pair_distances(positions: Tensor) -> Tensor:
    """d_ij (..., N, N) of positions (..., N, 3): exactly zero, with zero gradient, where atoms coincide."""
    return lengths(positions[..., :, None, :] - positions[..., None, :, :])


def lengths(vectors: Tensor) -> Tensor:
    """Lengths (...) of vectors (..., 3); exactly zero, with zero gradient, for vectors of zero."""
    squared = vectors.square().sum(-1)
    apart = squared > 0
    return torch.where(apart, torch.sqrt(torch.where(apart, squared, 1.0)), 0.0)


def pair_switch(switch: Tensor, layers: int, batch: Batch) -> Tensor:
    """A switch as (layers, B, N, N), with ones where i = j."""
    atoms = batch.numbers.shape[-1]
    own = torch.eye(atoms, dtype=torch.bool, device=batch.numbers.device)
    every = switch.to(batch.positions).expand(layers, *batch.numbers.shape, atoms)
    return torch.where(own, 1.0, every)
