"""A trained model: energies, forces, stress and attention of structures, in eV and Å."""

from __future__ import annotations

import copy
import warnings
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from geomatt.data.batch import Batch, collate
from geomatt.data.structures import Structure, as_structure
from geomatt.elements import SYMBOLS, formula, symbols
from geomatt.errors import GeomAttError
from geomatt.model.bounds import without_bounds
from geomatt.model.calibration import Calibration
from geomatt.model.devices import check_device
from geomatt.model.domain import MOST_WATCHED, WARNING, Domain, Limits
from geomatt.model.domain.frames import frame_doubts
from geomatt.model.evaluator import Evaluator
from geomatt.model.interface import Network
from geomatt.model.memory import out_of_memory, too_large
from geomatt.model.neighbours import complete_cell
from geomatt.model.normalisation import Normalisation
from geomatt.model.output import Output, Prediction
from geomatt.model.precision import parse_dtype
from geomatt.model.surroundings import Estimate
from geomatt.settings import typed


class AnyPotential(ABC):
    """Common interface of a single potential and a committee."""

    members: list[Potential]
    record: dict[str, Any]
    calibration: Calibration | None = None  # of the spread

    def evaluate(
        self,
        batch: Batch,
        *,
        forces: bool = True,
        attention: bool = False,
        keep: bool = False,
        limits: Limits | None = None,
    ) -> Output:
        """Predictions for a batch; `keep` if many more will follow (see `Evaluator`).

        With `limits` (from `domain.limits`) the walls at the ends of the training data are added.
        """
        if not isinstance(batch, Batch):
            raise GeomAttError("`evaluate` takes a Batch of tensors. Use `predict` for structures.")
        if limits is not None and self.domain is None:
            raise GeomAttError("This model has no ranges of distances, so there are no walls. Train it anew.")
        try:
            output = self._evaluate(batch, forces, attention, keep)
            if limits is None or self.domain is None:
                return output
            return output.with_walls(self.domain.walls(batch, limits))
        except (RuntimeError, MemoryError) as error:
            if not out_of_memory(error):
                raise
            linear = all(member.linear_in_atoms(batch) for member in self.members)
            raise too_large(error, batch, linear) from error

    @abstractmethod
    def _evaluate(self, batch: Batch, forces: bool, attention: bool, keep: bool) -> Output:
        """As `evaluate`, without walls."""

    @property
    def domain(self) -> Domain | None:
        """The ranges of distances in the training data; None in files of older versions."""
        return self.members[0].ranges

    @property
    def elements(self) -> tuple[int, ...]:
        """Atomic numbers every member knows."""
        return tuple(sorted(set.intersection(*(set(m.network.config.elements) for m in self.members))))

    @property
    def uses_electrons(self) -> bool:
        """True if the total charge and the number of unpaired electrons matter."""
        return any(m.network.uses_electrons for m in self.members)

    @property
    def trained_frames(self) -> set[str]:
        """Hashes of the frames any member was trained or validated on."""
        return {h for member in self.members for h in member.record.get("trained_frames", ())}

    @property
    def device(self) -> torch.device:
        return self.members[0].network.device

    @property
    def dtype(self) -> torch.dtype:
        return self.members[0].network.dtype

    @property
    def bounded(self) -> bool:
        """True if the networks have bounds outside their training data (`Network.bounds`)."""
        return all(any(n in m.network.optional for n in m.network.tensors()) for m in self.members)

    def without_bounds(self) -> Self:
        """A copy whose networks have no bounds."""
        free = copy.deepcopy(self)
        for member in free.members:
            member.network.load_tensors(without_bounds(member.network))
        return free

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | str | None = None) -> Self:
        """Move (in place) to a device or precision, such as "float64"."""
        where, precision = None if device is None else check_device(device), parse_dtype(dtype)
        for member in self.members:
            member.network.to(device=where, dtype=precision)
        return self

    def predict(
        self,
        structures: Sequence[Structure],
        *,
        forces: bool = True,
        attention: bool = False,
        batch_size: int = 32,
        progress: Callable[[int], None] | None = None,
        check_domain: bool = True,
        spread: bool = False,
    ) -> list[Prediction]:
        """Predictions for structures of any sizes, in their order; also ASE Atoms, or a single structure.

        With `check_domain` structures outside the training data are announced by a warning. `spread` also
        asks for the estimated errors of a single model; a committee always gives its spread.
        """
        structures = several(structures)
        if typed("batch_size", batch_size, int) < 1:
            raise GeomAttError(f"`batch_size` must be at least 1, not {batch_size}.")
        for number, structure in enumerate(structures):
            self.check(structure, f"structure {number}")
        messages = sorted({m for s in structures for m in self.doubts(s, forces)})
        outside = self.extrapolations(structures) if check_domain else []
        for message in (*messages, *outside):
            warnings.warn(message, stacklevel=2)
        for member in self.members:
            member.forget_weights()
        result: list[Prediction] = []
        keep = len(structures) > batch_size
        for start in range(0, len(structures), batch_size):
            chunk = structures[start : start + batch_size]
            batch = collate(chunk, self.dtype, self.device)
            output = self.evaluate(batch, forces=forces, attention=attention, keep=keep)
            output = self.with_spread(batch, output) if spread else output
            result.extend(output.split([len(s) for s in chunk]))
            if progress is not None:
                progress(len(chunk))
        return result

    def with_spread(self, batch: Batch, output: Output) -> Output:
        """The predictions with their spread, where it is known."""
        return output

    def hessian(
        self,
        structure: Structure,
        *,
        step: float = 0.005,
        batch_size: int = 32,
        progress: Callable[[int], None] | None = None,
    ) -> np.ndarray:
        """Second derivatives of the energy (3N, 3N) in eV/Å², by central differences of the forces.

        Rows and columns are x, y, z of atom 0, then of atom 1. `step` is the displacement in Å. A model in
        float64 (`potential.to(dtype="float64")`) gives the most digits.
        """
        given = several(structure)
        if len(given) != 1:
            raise GeomAttError(f"A Hessian is that of one structure, not of {len(given)}.")
        one = given[0]
        if not typed("step", step, float) > 0:
            raise GeomAttError(f"`step` must be a positive displacement in Å, not {step}.")
        shifts = step * np.eye(3 * len(one)).reshape(-1, len(one), 3)
        displaced = [replace(one, positions=one.positions + s) for s in np.concatenate([shifts, -shifts])]
        for message in self.extrapolations([one]):
            warnings.warn(message, stacklevel=2)
        moved = self.predict(displaced, batch_size=batch_size, check_domain=False, progress=progress)
        forces = np.array([p.forces for p in moved]).reshape(2, 3 * len(one), 3 * len(one))
        slopes = (forces[1] - forces[0]) / (2 * step)
        return (slopes + slopes.T) / 2

    def check(self, structure: Structure, name: str = "the structure") -> None:
        """Raise an error for a structure the model cannot be used on."""
        present = {int(z) for z in structure.numbers}
        wrong = sorted(z for z in present if not 0 < z < len(SYMBOLS))
        if wrong:
            raise GeomAttError(f"{name} has atoms that are no element (atomic numbers {wrong}): remove them.")
        unknown = sorted(present - set(self.elements))
        if unknown:
            raise GeomAttError(
                f"{name} holds {', '.join(symbols(unknown))}, which this model was not trained on "
                f"(it knows {', '.join(symbols(self.elements))}). Train on data that has them."
            )
        if structure.periodic and any(member.network.radius is None for member in self.members):
            hint = self.members[0].network.periodic_hint
            raise GeomAttError(
                f"{name} is periodic, but in this model all pairs of atoms interact, at any distance. "
                f"{hint}Set pbc to False for a molecule."
            )
        if structure.periodic and (
            structure.cell is None or not np.asarray(structure.cell)[list(structure.pbc)].any(-1).all()
        ):
            raise GeomAttError(
                f"{name} is periodic along a direction without a lattice vector. Give its cell, or set pbc "
                "to False there."
            )
        complete_cell(structure.cell, structure.pbc)  # raises an error if it has no volume
        if not len(structure):
            raise GeomAttError(f"{name} has no atoms.")
        if not np.isfinite(structure.positions).all():
            raise GeomAttError(f"{name} has positions that are not finite numbers.")

    def extrapolations(self, structures: Sequence[Structure]) -> list[str]:
        """Warnings about structures of a known composition with bonds or distances that are not."""
        known = {i: s for i, s in enumerate(structures) if self.watches(s)}
        if self.domain is None or not known:
            return []
        return frame_doubts(self.domain.ranges, known, WARNING, self.domain.walls.pairs)

    def watches(self, structure: Structure) -> bool:
        """True if `extrapolations` looks at structures of these atoms."""
        few = len(structure) <= MOST_WATCHED
        return few and self.domain is not None and not self.other_composition(structure)

    def other_composition(self, structure: Structure) -> bool:
        """True for atoms other than those of the one molecule the model was trained on."""
        composition = self.members[0].normalisation.composition
        return bool(composition) and dict(Counter(structure.numbers.tolist())) != composition

    def foreign(self, structure: Structure) -> bool:
        """True for atoms that are neither those of the one molecule trained on nor several of it."""
        return self.other_composition(structure) and not self._copies(structure)

    def _copies(self, structure: Structure) -> bool:
        """True for several of the one molecule the model was trained on, if its energies are extensive.

        Of a periodic material any amount.
        """
        first, counts = self.members[0].normalisation, Counter(structure.numbers.tolist())
        ratios = {counts[z] / n for z, n in first.composition.items()}
        same = set(counts) == set(first.composition) and len(ratios) == 1
        whole = any(structure.pbc) or all(ratio.is_integer() for ratio in ratios)
        return bool(first.reference) and same and whole

    def doubts(self, structure: Structure, forces: bool = True) -> list[str]:
        """Warnings about predictions for a structure, with or without forces."""
        found, composition = [], self.members[0].normalisation.composition
        if self.foreign(structure):
            known = formula([z for z, n in composition.items() for _ in range(n)])
            found.append(
                f"This model was trained on {known} alone: energies of other compositions have an arbitrary "
                "zero, and forces are an extrapolation. Train on several molecules for more."
            )
        if forces and any(m.record.get("settings", {}).get("energy_only") for m in self.members):
            found.append("This model was trained on energies alone: its forces were never compared with any.")
        blind = not all(m.network.uses_electrons for m in self.members)
        if structure.charge and blind:
            found.append("The model does not use charges: the charge of the structure is ignored.")
        if structure.multiplicity not in (None, 1) and blind:
            found.append("The model does not use spins: the multiplicity of the structure is ignored.")
        return found


@dataclass(repr=False)
class Potential(AnyPotential):
    """A network with its normalisation and a record of its training."""

    network: Network
    normalisation: Normalisation
    record: dict[str, Any] = field(default_factory=dict)
    ranges: Domain | None = None  # distances in the training data
    engine: str = "auto"  # how to evaluate; the numbers are the same
    estimate: Estimate | None = None  # of its errors
    calibration: Calibration | None = None  # of the estimate
    _evaluators: dict[bool, Evaluator] = field(default_factory=dict, repr=False)
    _offset: tuple[Tensor, Tensor] | None = field(default=None, repr=False)

    def __repr__(self) -> str:
        data = self.record.get("data", {}).get("name") or "unnamed data"
        kind, weights = self.network.kind, sum(p.numel() for p in self.network.parameters())
        elements, dtype = " ".join(symbols(self.elements)), str(self.dtype).removeprefix("torch.")
        return f"Potential({kind}, {weights:,} weights, {elements}; {data}; {dtype}, {self.device})"

    @property
    def members(self) -> list[Potential]:  # type: ignore[override]
        return [self]

    def __deepcopy__(self, memo: dict[int, Any]) -> Potential:
        network, record = copy.deepcopy(self.network, memo), copy.deepcopy(self.record, memo)
        bars = self.estimate, self.calibration
        return Potential(network, self.normalisation, record, self.ranges, self.engine, *bars)

    def _evaluate(self, batch: Batch, forces: bool, attention: bool, keep: bool) -> Output:
        found = self._evaluator(keep)(batch, forces=forces)
        scale = self.normalisation.scale
        atomic = torch.add(self._offsets(batch.numbers), found.atomic[0], alpha=scale)  # float64
        records = None
        if attention:
            with torch.no_grad():
                records = self.network.attention(batch)
        return Output(
            atomic.sum(-1),
            atomic,
            None if found.forces is None else scale * found.forces[0],
            records,
            None if found.stress is None else scale * found.stress[0],
        )

    def with_spread(self, batch: Batch, output: Output) -> Output:
        if self.estimate is None or batch.cell is not None:
            return output
        energy, forces = self.estimate.errors(batch)
        return replace(output, energy_spread=energy, forces_spread=None if output.forces is None else forces)

    def _evaluator(self, keep: bool) -> Evaluator:
        """An evaluator of the present weights, made anew when they have changed."""
        known = self._evaluators.get(keep)
        if known is None or not known.holds(self.network, self.engine):
            known = self._evaluators[keep] = Evaluator(self.network, keep=keep, engine=self.engine)
        return known

    def linear_in_atoms(self, batch: Batch) -> bool:
        """True if the memory of an evaluation grows with the number of atoms, and not with that of pairs."""
        if self.network.radius is not None:
            return True
        engine = self.network.engine(self.engine)
        return engine.chosen(self.network.stacked(), batch.as_member()).linear

    def forget_weights(self) -> None:
        """Prepare the weights again at the next evaluation."""
        self._evaluators.clear()

    def _offsets(self, numbers: Tensor) -> Tensor:
        """Per-atom energy offsets (B, N); kept for the last tensor of atomic numbers, as in dynamics."""
        if self._offset is None or self._offset[0] is not numbers:
            self._offset = (numbers, self.normalisation.offset(numbers))
        return self._offset[1]


def several(structures: Any) -> list[Structure]:
    """Structures from structures or ASE Atoms, one or many."""
    one = isinstance(structures, Structure | str) or not isinstance(structures, Iterable)
    one = one or hasattr(structures, "get_positions")
    return [as_structure(s) for s in ([structures] if one else structures)]
