"""Forces for batched dynamics, from whatever evaluates a batch of structures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from geomatt.data.batch import Batch
from geomatt.model.interface import Engine

# Energies (R,) in eV and forces (R, N, 3) in eV/Å of positions (R, N, 3) float64, in any precision.
Forces = Callable[[Tensor], tuple[Tensor, Tensor]]


def engine_forces(
    engine: Engine, prepared: Any, numbers: Tensor, dtype: torch.dtype, offset: Tensor, scale: Tensor
) -> Forces:
    """Forces of M models of one configuration with B replicas each, as one call of their engine.

    `numbers` (M, B, N): the replicas are those of the first model, then those of the second, and so on.
    Energies in eV are `offset` (M, B) float64 plus `scale` (M,) times the engine's.
    """
    scale = scale.double()

    def forces(positions: Tensor) -> tuple[Tensor, Tensor]:
        where = centred(positions.reshape(*numbers.shape, 3), numbers).to(dtype)
        found = engine.evaluate(prepared, Batch(numbers, where), forces=True)
        if found.forces is None:
            raise TypeError("the engine gave no forces")
        energy = offset + scale[:, None] * found.energy
        return energy.flatten(), (scale[:, None, None, None] * found.forces).flatten(0, 1)

    return forces


def centred(positions: Tensor, numbers: Tensor) -> Tensor:
    """Positions (..., N, 3) about their mean, so that float32 keeps their digits; zero for padding."""
    real = (numbers > 0)[..., None]
    middle = (positions * real).sum(-2, keepdim=True) / real.sum(-2, keepdim=True)
    return (positions - middle) * real
