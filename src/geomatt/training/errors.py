"""Sums of errors over the structures of an epoch, in normalised units."""

from __future__ import annotations

import torch
from torch import Tensor

from geomatt.training.loss import Errors


class ErrorSums:
    """Sums of loss and absolute errors per member, kept on the device."""

    def __init__(self, members: int, device: torch.device) -> None:
        self.sums = torch.zeros(4, members, dtype=torch.float64, device=device)
        self.structures = 0

    def clear(self, structures: int) -> None:
        """Start anew for so many structures."""
        self.sums.zero_()
        self.structures = structures

    def add(self, loss: Tensor, errors: Errors) -> None:
        """Add a batch: loss (M,) and its errors."""
        self.sums[0] += loss * errors.energy.shape[1]
        self.sums[1] += errors.energy.abs().sum(1)
        if errors.forces is not None:
            self.sums[2] += errors.forces.abs().sum((1, 2, 3))
            self.sums[3] += errors.components

    def per_member(self) -> list[list[float]]:
        """Sums of loss, |ΔE| and |ΔF|, numbers of structures and of force components, for each member."""
        loss, energy, forces, components = self.sums.tolist()
        count = float(self.structures)
        return [[l, e, f, count, c] for l, e, f, c in zip(loss, energy, forces, components, strict=True)]
