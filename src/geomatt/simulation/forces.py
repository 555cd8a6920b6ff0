"""Forces for batched dynamics, from whatever evaluates a batch of structures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from geomatt.data.batch import Batch
from geomatt.model.interface import Engine
from geomatt.model.potential import AnyPotential

# Energies (R,) in eV and forces (R, N, 3) in eV/Å of positions (R, N, 3) float64, in any precision.
Forces = Callable[[Tensor], tuple[Tensor, Tensor]]

# The same for positions and cells (R, 3, 3), with the stress (R, 3, 3) in eV/Å³.
CellForces = Callable[[Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]


def engine_forces(
    engine: Engine,
    prepared: Any,
    numbers: Tensor,
    dtype: torch.dtype,
    offset: Tensor,
    scale: Tensor,
    *,
    charge: Tensor | None = None,
    spin: Tensor | None = None,
) -> Forces:
    """Forces of M models of one configuration with B replicas each, as one call of their engine.

    `numbers` (M, B, N): the replicas are those of the first model, then those of the second, and so on.
    Energies in eV are `offset` (M, B) float64 plus `scale` (M,) times the engine's. `charge` and `spin`
    (M, B) are total charges and unpaired electrons.
    """
    scale = scale.double()

    def forces(positions: Tensor) -> tuple[Tensor, Tensor]:
        where = centred(positions.reshape(*numbers.shape, 3), numbers).to(dtype)
        batch = Batch(numbers, where, charge=charge, spin=spin)
        found = engine.evaluate(prepared, batch, forces=True)
        if found.forces is None:
            raise TypeError("the engine gave no forces")
        energy = offset + scale[:, None] * found.energy
        return energy.flatten(), (scale[:, None, None, None] * found.forces).flatten(0, 1)

    return forces


class PotentialForces:
    """Mean forces of the members of a potential, for the replicas of a batch (R, N).

    For a committee every call leaves the largest disagreement about the force on an atom in `spread` (R,).
    """

    def __init__(self, potential: AnyPotential, batch: Batch) -> None:
        self._members: list[Forces] = []
        numbers, one = batch.numbers, batch.as_member()
        self.capturable = True  # in a CUDA graph
        for member in potential.members:
            engine = member.network.engine(member.engine)
            self.capturable &= engine.capturable(one)
            offset = member.normalisation.offset(numbers).sum(-1)[None]
            scale = torch.tensor([member.normalisation.scale], dtype=torch.float64, device=numbers.device)
            prepared = engine.prepare(member.network.stacked(), keep=True)
            self._members.append(
                engine_forces(
                    engine,
                    prepared,
                    one.numbers,
                    potential.dtype,
                    offset,
                    scale,
                    charge=one.charge,
                    spin=one.spin,
                )
            )
        several = len(self._members) > 1
        shape, where = (len(numbers),), numbers.device
        self.spread = torch.zeros(shape, dtype=torch.float64, device=where) if several else None

    def __call__(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        if self.spread is None:
            return self._members[0](positions)
        energies, forces = zip(*(member(positions) for member in self._members), strict=True)
        every = torch.stack(forces).double()  # (members, R, N, 3)
        self.spread.copy_(every.std(0, correction=0).norm(dim=-1).amax(-1))
        return torch.stack(energies).mean(0), every.mean(0)


class PeriodicForces:
    """Forces and stress of a potential for the periodic replicas of a batch (R, N); `spread` as above."""

    def __init__(self, potential: AnyPotential, batch: Batch) -> None:
        self.potential, self.batch, self.capturable = potential, batch, False
        several = len(potential.members) > 1
        self.spread = torch.zeros(len(batch), device=batch.numbers.device).double() if several else None

    def __call__(self, positions: Tensor, cell: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        dtype = self.potential.dtype
        where = centred(positions, self.batch.numbers).to(dtype)
        known = self.batch
        batch = Batch(known.numbers, where, cell=cell.to(dtype), charge=known.charge, spin=known.spin)
        found = self.potential.evaluate(batch, keep=True)
        if found.forces is None or found.stress is None:
            raise TypeError("the model gave no forces or no stress")
        if self.spread is not None and found.forces_spread is not None:
            self.spread.copy_(found.forces_spread.amax(-1))
        return found.energy, found.forces, found.stress


def centred(positions: Tensor, numbers: Tensor) -> Tensor:
    """Positions (..., N, 3) about their mean, so that float32 keeps their digits; zero for padding."""
    real = (numbers > 0)[..., None]
    middle = (positions * real).sum(-2, keepdim=True) / real.sum(-2, keepdim=True)
    return (positions - middle) * real
