"""A trained model as users hold it: structures in, energies, forces and attention out, in eV and Å."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from geomatt.data.batch import Batch, collate
from geomatt.data.structures import Structure, as_structure
from geomatt.elements import formula
from geomatt.errors import GeomAttError
from geomatt.model.geometric_attention.inference import Evaluator, Path
from geomatt.model.geometric_attention.network import GeometricAttention
from geomatt.model.interface import AttentionRecord
from geomatt.model.normalisation import Normalisation
from geomatt.model.precision import parse_dtype


@dataclass(frozen=True)
class Output:
    """Predictions for a batch, as tensors (eV, eV/Å)."""

    energy: Tensor  # (B,) float64
    atomic_energies: Tensor  # (B, N) float64, summing to the energy
    forces: Tensor | None  # (B, N, 3)
    attention: list[AttentionRecord[Tensor]] | None
    stress: Tensor | None = None  # (B, 3, 3), eV/Å³ in ASE's sign; nan for structures without a volume


@dataclass(frozen=True)
class Prediction:
    """Predictions for one structure, as arrays (eV, eV/Å). Spreads are of a committee's members."""

    energy: float
    atomic_energies: np.ndarray  # (N,) float64
    forces: np.ndarray | None = None  # (N, 3) float64
    attention: list[AttentionRecord[np.ndarray]] | None = None
    stress: np.ndarray | None = None  # (3, 3) eV/Å³, of structures periodic in all directions
    energy_spread: float | None = None
    forces_spread: np.ndarray | None = None  # (N,) norm of the standard deviation of each atom's force


@dataclass
class Potential:
    """A network with its normalisation and its record: how it came to be."""

    network: GeometricAttention
    normalisation: Normalisation
    record: dict[str, Any] = field(default_factory=dict)
    path: Path = "auto"  # or "dense", "sparse": how to evaluate; the numbers are the same

    @property
    def elements(self) -> tuple[int, ...]:
        return self.network.config.elements

    @property
    def device(self) -> torch.device:
        return self.network.mu.device

    @property
    def dtype(self) -> torch.dtype:
        return self.network.mu.dtype

    def to(
        self, device: torch.device | str | None = None, dtype: torch.dtype | str | None = None
    ) -> Potential:
        """Move (in place) to a device or precision, such as "float64"."""
        self.network.to(device=device, dtype=parse_dtype(dtype))
        return self

    def evaluate(
        self,
        batch: Batch,
        *,
        forces: bool = True,
        attention: bool = False,
        evaluator: Evaluator | None = None,
    ) -> Output:
        """Energies of a batch, with forces (−∂E/∂r) and attention when asked for.

        An `evaluator` of this network, kept while its weights stay the same, saves preparing them again.
        """
        evaluator = evaluator or Evaluator(self.network, table=False)
        found = evaluator(batch, forces=forces, attention=attention, path=self.path)
        scale = self.normalisation.scale
        atomic_energies = self.normalisation.offset(batch.numbers) + scale * found.atomic.double()
        return Output(
            atomic_energies.sum(-1),
            atomic_energies,
            None if found.forces is None else scale * found.forces,
            None if found.attention is None else self.network.records(found.attention),
            None if found.stress is None else scale * found.stress,
        )

    def predict(
        self,
        structures: Sequence[Structure],
        *,
        forces: bool = True,
        attention: bool = False,
        batch_size: int = 32,
        progress: Callable[[int], None] | None = None,
    ) -> list[Prediction]:
        """Predictions for structures of any sizes, in their order; ASE Atoms, or one alone, will do."""
        structures = several(structures)
        for number, structure in enumerate(structures):
            self.check(structure, f"structure {number}")
        for message in sorted({m for s in structures for m in self.doubts(s, forces)}):
            warnings.warn(message, stacklevel=2)
        result: list[Prediction] = []
        evaluator = Evaluator(self.network, table=len(structures) > batch_size)
        for start in range(0, len(structures), batch_size):
            chunk = structures[start : start + batch_size]
            batch = collate(chunk, self.dtype, self.device)
            output = self.evaluate(batch, forces=forces, attention=attention, evaluator=evaluator)
            result.extend(_split(output, [len(s) for s in chunk]))
            if progress is not None:
                progress(len(chunk))
        return result

    def check(self, structure: Structure, name: str = "the structure") -> None:
        """Refuse what the model cannot answer for, and say why."""
        unknown = sorted({int(z) for z in structure.numbers} - set(self.elements))
        if unknown:
            raise GeomAttError(
                f"{name} holds atomic numbers {unknown}, which this model was not trained on "
                f"(it knows {list(self.elements)}). Train on data that has them."
            )
        if structure.periodic and self.network.config.bias:
            raise GeomAttError(
                f"{name} is periodic, but this model's overlap functions have a bias, which acts at any "
                "distance. Train with --no-bias for periodic structures, or set pbc to False for a molecule."
            )
        if structure.periodic and (
            structure.cell is None or not np.asarray(structure.cell)[list(structure.pbc)].any(-1).all()
        ):
            raise GeomAttError(
                f"{name} is periodic along a direction without a lattice vector. Give its cell, or set pbc "
                "to False there."
            )
        if not len(structure):
            raise GeomAttError(f"{name} has no atoms.")
        if not np.isfinite(structure.positions).all():
            raise GeomAttError(f"{name} has positions that are not finite numbers.")

    def doubts(self, structure: Structure, forces: bool = True) -> list[str]:
        """What a user should be told of an answer, with or without forces, that is given all the same."""
        found, composition = [], self.normalisation.composition
        if composition and dict(Counter(int(z) for z in structure.numbers)) != composition:
            known = formula([z for z, n in composition.items() for _ in range(n)])
            found.append(
                f"This model was trained on {known} alone: energies of other compositions have an arbitrary "
                "zero, and forces are an extrapolation. Train on several molecules for more."
            )
        if forces and self.record.get("settings", {}).get("energy_only"):
            found.append("This model was trained on energies alone: it never saw the forces it now predicts.")
        if structure.charge:
            found.append("The model knows nothing of charges: the charge of the structure is ignored.")
        return found


@dataclass
class Committee:
    """Several potentials as one: the mean of their predictions, and their spread."""

    members: list[Potential]

    @property
    def elements(self) -> tuple[int, ...]:
        return tuple(sorted(set.intersection(*(set(m.elements) for m in self.members))))

    @property
    def record(self) -> dict[str, Any]:
        return self.members[0].record

    @property
    def normalisation(self) -> Normalisation:
        return self.members[0].normalisation

    def to(
        self, device: torch.device | str | None = None, dtype: torch.dtype | str | None = None
    ) -> Committee:
        for member in self.members:
            member.to(device, dtype)
        return self

    def predict(
        self,
        structures: Sequence[Structure],
        *,
        forces: bool = True,
        attention: bool = False,
        batch_size: int = 32,
        progress: Callable[[int], None] | None = None,
    ) -> list[Prediction]:
        """Mean and standard deviation over members; attention is the mean of each matrix."""
        structures = several(structures)
        runs = [
            member.predict(
                structures,
                forces=forces,
                attention=attention,
                batch_size=batch_size,
                progress=progress if member is self.members[0] else None,
            )
            for member in self.members
        ]
        return [_combine([run[i] for run in runs]) for i in range(len(structures))]

    def check(self, structure: Structure, name: str = "the structure") -> None:
        for member in self.members:
            member.check(structure, name)


def several(structures: Any) -> list[Structure]:
    """Structures from structures or ASE Atoms, one or many."""
    one = isinstance(structures, Structure) or hasattr(structures, "get_positions")
    return [as_structure(s) for s in ([structures] if one else structures)]


def _split(output: Output, sizes: list[int]) -> list[Prediction]:
    """One prediction per structure, padding removed."""
    energies = output.energy.cpu().numpy()
    atomic = output.atomic_energies.cpu().numpy()
    forces = None if output.forces is None else output.forces.double().cpu().numpy()
    return [
        Prediction(
            float(energies[b]),
            atomic[b, :n],
            None if forces is None else forces[b, :n],
            None
            if output.attention is None
            else [
                AttentionRecord(r.order, r.layer, r.head, r.matrix[b, :n, :n].cpu().numpy())
                for r in output.attention
            ],
            _finite_stress(output, b),
        )
        for b, n in enumerate(sizes)
    ]


def _finite_stress(output: Output, b: int) -> np.ndarray | None:
    if output.stress is None or bool(output.stress[b].isnan().any()):
        return None
    return output.stress[b].double().cpu().numpy()


def _combine(predictions: list[Prediction]) -> Prediction:
    """Mean over members with its spread."""
    energies = np.array([p.energy for p in predictions])
    forces = None
    if all(p.forces is not None for p in predictions):
        forces = np.stack([p.forces for p in predictions if p.forces is not None])  # (members, N, 3)
    attention = None
    if predictions[0].attention is not None:
        lists = [p.attention or [] for p in predictions]
        attention = [
            AttentionRecord(r.order, r.layer, r.head, np.mean([other[i].matrix for other in lists], axis=0))
            for i, r in enumerate(lists[0])
        ]
    stresses = [p.stress for p in predictions]
    return Prediction(
        float(energies.mean()),
        np.mean([p.atomic_energies for p in predictions], axis=0),
        None if forces is None else forces.mean(0),
        attention,
        None if any(s is None for s in stresses) else np.mean([s for s in stresses if s is not None], axis=0),
        float(energies.std()),
        None if forces is None else np.linalg.norm(forces.std(0), axis=-1),
    )
