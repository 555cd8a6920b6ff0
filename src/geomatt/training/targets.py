"""The structures that training steps and validations take their batches from: held in memory, or on disk."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from geomatt.data.batch import Batch, collate
from geomatt.data.dataset import Dataset
from geomatt.data.mapped import MappedDataset
from geomatt.errors import GeomAttError
from geomatt.model import Normalisation


def normalised(batch: Batch, normalisation: Normalisation, use_forces: bool = True) -> Batch:
    """A batch with labels in normalised units. Energies leave float64 only here, without their mean."""
    assert batch.energy is not None
    energy = normalisation.energy_residual(batch.numbers, batch.energy).to(batch.positions.dtype)
    forces = batch.forces / normalisation.scale if use_forces and batch.forces is not None else None
    stress = batch.stress / normalisation.scale if use_forces and batch.stress is not None else None
    return dataclasses.replace(batch, energy=energy, forces=forces, stress=stress)


class Streamed:
    """Structures of mapped data sets, read from disk batch by batch."""

    def __init__(self, members: Sequence[tuple[np.ndarray, Callable[[np.ndarray], Batch]]]) -> None:
        """The indices of each member's structures, with a function that reads some of them."""
        self.members = members

    def __len__(self) -> int:
        return len(self.members[0][0])

    def rows(self, index: Tensor) -> Batch:
        """The structures `index` (M, B) of each member."""
        chosen = [own[row] for (own, _), row in zip(self.members, index.cpu().numpy(), strict=True)]
        batches = [read(rows) for (_, read), rows in zip(self.members, chosen, strict=True)]
        return Batch.stack(batches)


Targets = Batch | Streamed


def training_targets(
    dataset: Dataset,
    indices: np.ndarray,
    normalisation: Normalisation,
    *,
    dtype: torch.dtype,
    device: torch.device,
    atoms: int,
    use_forces: bool,
) -> Targets:
    """The structures `indices` with normalised labels, padded to a number of atoms; without a member axis."""

    def read(rows: np.ndarray) -> Batch:
        batch = collate(list(dataset.select(rows)), dtype, device, pad_to=atoms)
        if batch.forces is None and dataset.forces is not None:  # of no structure of this batch
            unknown = torch.where(batch.mask[..., None], torch.nan, torch.zeros_like(batch.positions))
            batch = dataclasses.replace(batch, forces=unknown)
        return normalised(batch, normalisation, use_forces)

    return Streamed([(indices, read)]) if isinstance(dataset, MappedDataset) else read(indices)


def stacked(members: Sequence[Targets]) -> Targets:
    """The targets of several members as one, with a member axis."""
    resident = [member for member in members if isinstance(member, Batch)]
    streamed = [member for member in members if isinstance(member, Streamed)]
    if resident and streamed:
        raise GeomAttError(
            "Models trained side by side need data that is mapped for all of them, or for none."
        )
    return Batch.stack(resident) if resident else Streamed([m for s in streamed for m in s.members])
