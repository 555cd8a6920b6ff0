"""A model in torch-sim: many systems side by side, on the device they live on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from geomatt.data.batch import Batch
from geomatt.data.structures import Structure
from geomatt.errors import GeomAttError
from geomatt.simulation.engines.many_systems import ManySystems
from geomatt.simulation.forces import centred
from geomatt.simulation.inputs import Model

try:
    from torch_sim.models.interface import ModelInterface
except ImportError as error:
    raise GeomAttError(
        "torch-sim is not installed. Install it with: pip install 'geomatt[torch-sim]'"
    ) from error

Directions = tuple[bool, bool, bool]


@dataclass(frozen=True)
class _Layout:
    """Where the atoms of a state stand in a padded batch (B, N), and what stays the same during a run."""

    system: Tensor  # (atoms,) system of each atom: the state's tensor, to recognise its next steps by
    elements: Tensor  # (atoms,) atomic numbers, also the state's
    versions: tuple[int, int]  # of both, which change with their contents
    pbc: Directions
    numbers: Tensor  # (B, N) int64
    slot: Tensor  # (atoms,) place of each atom in the flattened batch

    @classmethod
    def of(cls, system: Tensor, elements: Tensor, pbc: Directions) -> _Layout:
        sizes = torch.bincount(system)
        largest = int(sizes.max()) if len(sizes) else 0
        first = torch.cumsum(sizes, 0) - sizes  # number of the first atom of each system
        slot = system * largest + torch.arange(len(system), device=system.device) - first[system]
        numbers = torch.zeros(len(sizes) * largest, dtype=torch.int64, device=system.device)
        numbers[slot] = elements.long()
        versions = system._version, elements._version
        return cls(system, elements, versions, pbc, numbers.reshape(len(sizes), largest), slot)

    def holds(self, system: Tensor, elements: Tensor, pbc: Directions) -> bool:
        """True if a state with these tensors has this layout."""
        same = self.system is system and self.elements is elements and self.pbc == pbc
        return same and self.versions == (system._version, elements._version)

    def batch(self, positions: Tensor, cell: Tensor, dtype: torch.dtype) -> Batch:
        """The state's positions (atoms, 3) and cells (B, 3, 3) as a batch."""
        count, size = self.numbers.shape
        if count * size != len(positions):  # systems of different sizes
            positions = positions.new_zeros(count * size, 3).index_copy(0, self.slot, positions)
        where = centred(positions.reshape(count, size, 3), self.numbers).to(dtype)
        lattice = None
        if any(self.pbc):  # torch-sim has lattice vectors in columns
            lattice = (cell.mT * torch.tensor(self.pbc, device=cell.device)[:, None]).to(dtype)
        return Batch(self.numbers, where, cell=lattice)

    def structures(self, positions: Tensor, cell: Tensor) -> list[Structure]:
        """The systems as structures."""
        sizes = (self.numbers > 0).sum(1).tolist()
        parts = zip(self.elements.split(sizes), positions.detach().split(sizes), cell.detach(), strict=True)
        return [
            Structure(
                z.long().cpu().numpy(),
                r.double().cpu().numpy(),
                cell=c.mT.double().cpu().numpy() if any(self.pbc) else None,
                pbc=self.pbc,
            )
            for z, r, c in parts
        ]


class TorchSimModel(ModelInterface):
    """Energies (eV), forces (eV/Å) and stress (eV/Å³) of the systems of a torch-sim state.

    `dtype`, the precision of states, is float64 whatever that of the network: total energies do not fit
    float32.

    Args:
        model: a model file, the folder of a run, a shipped model's name, a `Potential` or a `Committee`.
        device: where to compute, "cpu" or "cuda".
        dtype: precision of the network, "float32" or "float64"; by default the one the model has.
        walls: add the walls where the training data end. Their limits are taken from the bonds that a
            system has when it is first seen; `wall_steps` counts the evaluations in which one was active.
        charge, multiplicity: of every system, for models that use them.
    """

    def __init__(
        self,
        model: Model,
        device: torch.device | str = "cpu",
        dtype: torch.dtype | str | None = None,
        walls: bool = True,
        charge: float = 0.0,
        multiplicity: int | None = None,
    ) -> None:
        super().__init__()
        self.systems = ManySystems(model, device, dtype, walls)
        potential = self.systems.potential
        self._device, self._dtype = potential.device, torch.float64
        self._compute_forces = True
        self._compute_stress = all(member.network.radius is not None for member in potential.members)
        self._memory_scales_with = "n_atoms"
        self._electrons = charge, (multiplicity or 1) - 1
        self._layout: _Layout | None = None

    @property
    def wall_steps(self) -> np.ndarray:
        """Evaluations (B,) of each of the present systems in which a wall was active."""
        return self.systems.wall_steps.cpu().numpy()

    def forward(self, state: Any, **_: Any) -> dict[str, Tensor]:
        """Energy (B,), forces (atoms, 3) and, for networks with a radius, stress (B, 3, 3).

        Stress is nan for structures without a volume. `state` is a SimState, or a dictionary of its values.
        """
        given = state if isinstance(state, dict) else vars(state)
        positions, cell = given["positions"], given["cell"]
        layout = self._present(positions, cell, given)
        found = self.systems.evaluate(self._batch(layout, positions, cell))
        assert found.forces is not None
        forces = found.forces.reshape(-1, 3)[layout.slot]  # a copy: the next evaluation may overwrite these
        results = {"energy": found.energy, "forces": forces.to(positions.dtype)}
        if self._compute_stress:
            stress = found.stress if found.stress is not None else torch.full_like(cell, torch.nan)
            results["stress"] = stress.to(positions.dtype)
        return results

    def _present(self, positions: Tensor, cell: Tensor, given: dict[str, Any]) -> _Layout:
        """The layout of a state, kept as long as the same systems are simulated."""
        system, elements, pbc = given["system_idx"], given["atomic_numbers"], _directions(given["pbc"])
        if self._layout is not None and self._layout.holds(system, elements, pbc):
            return self._layout
        if positions.device.type != self._device.type:
            raise GeomAttError(
                f"The state is on {positions.device}, the model on {self._device}. Use the same `device`."
            )
        layout = _Layout.of(system, elements, pbc)
        charge, spin = self._electrons
        structures = [
            replace(s, charge=charge, multiplicity=int(spin) + 1) for s in layout.structures(positions, cell)
        ]
        self.systems.start(structures, self._batch(layout, positions, cell))
        self._layout = layout
        return layout

    def _batch(self, layout: _Layout, positions: Tensor, cell: Tensor) -> Batch:
        potential = self.systems.potential
        batch = layout.batch(positions, cell, potential.dtype)
        if not potential.uses_electrons:
            return batch
        charge, spin = (batch.positions.new_full((len(batch),), value) for value in self._electrons)
        return replace(batch, charge=charge, spin=spin)


def _directions(pbc: Any) -> Directions:
    """The periodic directions of a state: one value for all, or one for each."""
    x, y, z = torch.as_tensor(pbc).expand(3).tolist()
    return bool(x), bool(y), bool(z)
