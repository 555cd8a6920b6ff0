"""Several potentials as one: the mean of their predictions, and their spread."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from geomatt.data.batch import Batch
from geomatt.errors import GeomAttError
from geomatt.model.calibration import Calibration
from geomatt.model.interface import AttentionRecord, ImagePairs
from geomatt.model.output import Output
from geomatt.model.potential import AnyPotential, Potential


@dataclass(repr=False)
class Committee(AnyPotential):
    """Potentials of one system. Attention is the mean of each matrix over the members."""

    members: list[Potential]
    calibration: Calibration | None = None  # of its spread, from validation data

    def __post_init__(self) -> None:
        if not all(isinstance(member, Potential) for member in self.members or ()):
            raise GeomAttError("The members of a committee are potentials, such as geomatt.load(FILE).")
        if not self.members:
            raise GeomAttError("A committee needs at least one member.")
        self.record = self.members[0].record

    def __repr__(self) -> str:
        return f"Committee({len(self.members)} of {self.members[0]!r})"

    def _evaluate(self, batch: Batch, forces: bool, attention: bool, keep: bool) -> Output:
        found = [m.evaluate(batch, forces=forces, attention=attention, keep=keep) for m in self.members]
        all_forces = _stack([f.forces for f in found])  # (members, B, N, 3)
        stress = _stack([f.stress for f in found])
        records = found[0].attention
        if records is not None:
            alike = zip(*(f.attention or [] for f in found), strict=False)
            records = [
                own[0].with_matrix(torch.stack([r.matrix for r in own]).mean(0), _mean_images(own))
                for own in alike
            ]
        energy = torch.stack([f.energy for f in found])
        return Output(
            energy.mean(0),
            torch.stack([f.atomic_energies for f in found]).mean(0),
            None if all_forces is None else all_forces.mean(0),
            records,
            None if stress is None else stress.mean(0),
            energy_spread=energy.std(0, correction=0),
            forces_spread=None if all_forces is None else all_forces.std(0, correction=0).norm(dim=-1),
        )


def _stack(values: list[Tensor | None]) -> Tensor | None:
    """All of them in one tensor, or None if any is missing."""
    there = [value for value in values if value is not None]
    return torch.stack(there) if len(there) == len(values) else None


def _mean_images(records: Sequence[AttentionRecord[Tensor]]) -> list[ImagePairs[np.ndarray]] | None:
    """The mean of each image of neighbours in a cell; None unless all members have the same neighbours."""
    found = []
    for images in zip(*(r.images or () for r in records), strict=False):
        first = images[0]
        for other in images[1:]:
            if not all(np.array_equal(getattr(first, n), getattr(other, n)) for n in ("i", "j", "shift")):
                return None
        found.append(dataclasses.replace(first, value=np.mean([one.value for one in images], axis=0)))
    return found or None
