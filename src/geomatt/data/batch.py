"""Structures as padded tensors, the input of every network."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from geomatt.data.structures import Structure


@dataclass(frozen=True)
class Batch:
    """B structures of at most N atoms. Atomic number 0 marks padding.

    In training every tensor has a leading axis of M members, each with structures of its own.
    """

    numbers: Tensor  # (B, N) int64
    positions: Tensor  # (B, N, 3), each structure centred so that float32 keeps its digits
    energy: Tensor | None = None  # (B,) float64, eV
    forces: Tensor | None = None  # (B, N, 3), eV/Å, nan for structures without
    cell: Tensor | None = None  # (B, 3, 3), zero rows along directions that are not periodic
    stress: Tensor | None = None  # (B, 3, 3), eV/Å³, nan for structures without
    charge: Tensor | None = None  # (B,) total charge, e; None: all neutral
    spin: Tensor | None = None  # (B,) unpaired electrons; None: none
    weight: Tensor | None = None  # (B,) relative weight in the loss; None: all 1

    @property
    def mask(self) -> Tensor:  # (B, N) bool
        return self.numbers > 0

    @property
    def atoms(self) -> Tensor:  # (B,) int64
        return self.mask.sum(-1)

    def __len__(self) -> int:
        return self.numbers.shape[-2]

    def apply(self, change: Callable[[Tensor], Tensor]) -> Batch:
        """The batch with every tensor changed."""
        found = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        changed: dict[str, Any] = {name: None if x is None else change(x) for name, x in found.items()}
        return Batch(**changed)

    def as_member(self) -> Batch:
        """With a leading axis of one member."""
        return self.apply(lambda x: x[None])

    def member(self, m: int) -> Batch:
        """One member's structures, without the member axis."""
        return self.apply(lambda x: x[m])

    def rows(self, index: Tensor) -> Batch:
        """The structures `index` (M, B) of each member."""
        member = torch.arange(len(index), device=index.device)[:, None]
        return self.apply(lambda x: x[member, index])

    def trimmed(self) -> Batch:
        """Without the padding that no structure needs."""
        atoms = max(1, int(self.atoms.max()))
        if atoms == self.numbers.shape[-1]:
            return self
        forces = None if self.forces is None else self.forces[..., :atoms, :].contiguous()
        numbers, positions = self.numbers[..., :atoms], self.positions[..., :atoms, :]
        return dataclasses.replace(
            self, numbers=numbers.contiguous(), positions=positions.contiguous(), forces=forces
        )

    @classmethod
    def stack(cls, members: Sequence[Batch]) -> Batch:
        """Batches of several members, which must agree in shape, as one."""
        named: dict[str, Any] = {
            f.name: [getattr(m, f.name) for m in members] for f in dataclasses.fields(cls)
        }
        neutral = {"charge": 0.0, "spin": 0.0, "weight": 1.0, "stress": torch.nan, "cell": 0.0}
        stacked: dict[str, Any] = {}
        for name, values in named.items():
            known = next((x for x in values if x is not None), None)
            if name in neutral and known is not None:  # members without a label get its neutral value
                values = [torch.full_like(known, neutral[name]) if x is None else x for x in values]
            stacked[name] = None if any(x is None for x in values) else torch.stack(values)
        return cls(**stacked)


def collate(
    structures: Sequence[Structure],
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
    pad_to: int | None = None,
) -> Batch:
    """Pad structures of any sizes into one batch, with their labels.

    The batch has energies if all structures have them; forces and stress if any has.
    """
    size = max(max((len(s) for s in structures), default=0), pad_to or 0)
    shape = (len(structures), size)
    numbers = np.zeros(shape, dtype=np.int64)
    positions = np.zeros((*shape, 3))
    forces = np.zeros((*shape, 3)) if any(s.forces is not None for s in structures) else None
    energies = [s.energy for s in structures]
    cells = np.zeros((len(structures), 3, 3)) if any(s.periodic for s in structures) else None
    for b, s in enumerate(structures):
        numbers[b, : len(s)] = s.numbers
        positions[b, : len(s)] = s.positions - (s.positions.mean(0) if len(s) else 0)
        if forces is not None:
            forces[b, : len(s)] = np.nan if s.forces is None else s.forces
        if cells is not None and s.cell is not None:
            cells[b] = np.where(np.array(s.pbc)[:, None], s.cell, 0.0)
    return Batch(
        torch.from_numpy(numbers).to(device),
        torch.from_numpy(positions).to(device, dtype),
        (
            None
            if any(e is None for e in energies)
            else torch.tensor(energies, dtype=torch.float64, device=device)
        ),
        None if forces is None else torch.from_numpy(forces).to(device, dtype),
        None if cells is None else torch.from_numpy(cells).to(device, dtype),
        _per_structure([s.stress for s in structures], np.full((3, 3), np.nan), dtype, device),
        _per_structure([s.charge or None for s in structures], 0.0, dtype, device),
        _per_structure([(s.multiplicity or 1) - 1 or None for s in structures], 0.0, dtype, device),
        _per_structure([None if s.weight == 1 else s.weight for s in structures], 1.0, dtype, device),
    )


def _per_structure(
    values: Sequence[Any], default: Any, dtype: torch.dtype, device: torch.device | str
) -> Tensor | None:
    """A row for each structure; None if no structure has a value."""
    if all(value is None for value in values):
        return None
    rows = np.array([default if value is None else value for value in values], dtype=np.float64)
    return torch.from_numpy(rows).to(device, dtype)
