"""Other models behind one small interface, so that each is timed doing the same work."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from geomatt.bench.report import importable
from geomatt.bench.settings import BASELINE, LITERAL, MACE, NEQUIP
from geomatt.bench.systems import ELEMENTS
from geomatt.data import Batch
from geomatt.elements import symbols
from geomatt.model import Network, new_network
from geomatt.training import Errors, Loss

if TYPE_CHECKING:
    from geomatt.bench.workbench import Workbench

CUTOFF = 5.0  # Å
NEIGHBOURS = 14.0  # of an atom of aspirin within it


class Peer:
    """A model to compare with: eager, forces by automatic differentiation, torch's Adam.

    `energies(positions, prepared)` gives energies (B,) of positions (B, N, 3). `prepare` makes what is known
    of positions ahead of all timing, such as pairs of atoms; single molecules use those of the first frame.
    """

    def __init__(
        self,
        name: str,
        frames: Batch,
        batch: int,
        parameters: Iterable[nn.Parameter],
        energies: Callable[[Tensor, Any], Tensor],
        prepare: Callable[[Tensor], Any] = lambda positions: None,
    ) -> None:
        self.name, self._energies, self._prepare = name, energies, prepare
        self._optimiser, self._loss = torch.optim.Adam(parameters, lr=1e-4), Loss()
        index = torch.randperm(len(frames), generator=torch.Generator().manual_seed(0))
        parts = [frames.apply(lambda x, rows=rows: x[rows]) for rows in _whole(index, batch)]  # type: ignore[misc]
        self._batches = [(part, part.atoms, prepare(part.positions)) for part in parts]
        self._next = 0
        self._prepared = prepare(frames.positions[:1])

    def training_step(self) -> None:
        """Energy and force loss, backward and Adam, on the next batch of the frames."""
        batch, atoms, prepared = self._batches[self._next]
        self._next = (self._next + 1) % len(self._batches)
        assert batch.energy is not None
        assert batch.forces is not None
        positions = batch.positions.clone().requires_grad_()
        energies = self._energies(positions, prepared)
        (gradient,) = torch.autograd.grad(energies.sum(), positions, create_graph=True)
        loss = self._loss(Errors(energies - batch.energy, -gradient - batch.forces, atoms))
        self._optimiser.zero_grad()
        loss.backward()
        self._optimiser.step()

    def evaluator(self, positions: Tensor) -> Callable[[], tuple[Tensor, Tensor]]:
        """Evaluates positions (B, N, 3), prepared now."""
        prepared = self._prepare(positions)
        return lambda: self.energy_and_forces(positions, prepared)

    def energy_and_forces(self, positions: Tensor, prepared: Any = None) -> tuple[Tensor, Tensor]:
        """Energies (B,) and forces (B, N, 3); of one molecule unless `prepared` says otherwise."""
        positions = positions.detach().requires_grad_()
        energies = self._energies(positions, self._prepared if prepared is None else prepared)
        (gradient,) = torch.autograd.grad(energies.sum(), positions)
        return energies.detach(), -gradient


def _whole(index: Tensor, size: int) -> list[Tensor]:
    return list(index[: len(index) - len(index) % size].split(size))


def near_pairs(positions: Tensor) -> Tensor:
    """Pairs within the cutoff (2, P) of atoms (B, N, 3) counted through the batch."""
    atoms = positions.shape[1]
    near = torch.cdist(positions, positions) < CUTOFF
    near &= ~torch.eye(atoms, dtype=torch.bool, device=positions.device)
    b, i, j = near.nonzero(as_tuple=True)
    return torch.stack([b * atoms + i, b * atoms + j])


def literal(network: Network, frames: Batch, batch: int) -> Peer:
    """The network as it is written, with automatic differentiation."""

    def energies(positions: Tensor, prepared: None) -> Tensor:
        numbers = frames.numbers[:1].expand(len(positions), -1)
        return network(Batch(numbers, positions)).sum(-1)

    return Peer(LITERAL, frames, batch, network.parameters(), energies)


def schnet(frames: Batch, batch: int) -> Peer:
    """PyTorch Geometric's SchNet with three interactions, on precomputed pairs within the cutoff."""
    network = new_network("schnet", {"cutoff": CUTOFF}, ELEMENTS, dtype=frames.positions.dtype)
    model: Any = network.to(frames.positions.device).model

    class Graph(nn.Module):
        """Distances of pairs that are known ahead."""

        pairs: Tensor

        def forward(self, positions: Tensor, batch: Tensor) -> tuple[Tensor, Tensor]:
            i, j = self.pairs
            return self.pairs, (positions[i] - positions[j]).norm(dim=-1)

    model.interaction_graph = Graph()
    numbers = frames.numbers[0]

    def prepare(positions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Pairs, and of all atoms of the batch their numbers and structures."""
        structures = torch.arange(len(positions), device=positions.device)
        return (
            near_pairs(positions),
            numbers.repeat(len(positions)),
            structures.repeat_interleave(len(numbers)),
        )

    def energies(positions: Tensor, prepared: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        model.interaction_graph.pairs, z, structure = prepared
        return model(z, positions.reshape(-1, 3), structure).squeeze(-1)

    return Peer(BASELINE, frames, batch, model.parameters(), energies, prepare)


def mace(frames: Batch, batch: int) -> Peer:
    """MACE with 128 invariant channels and two layers, on precomputed pairs within the cutoff."""
    modules = importlib.import_module("mace.modules")  # before e3nn, which it prepares for newer torch
    o3 = importlib.import_module("e3nn.o3")
    numbers = frames.numbers[0]
    elements = sorted(set(numbers.tolist()))
    model = modules.MACE(
        r_max=CUTOFF, num_bessel=8, num_polynomial_cutoff=5, max_ell=3, correlation=3, num_interactions=2,
        interaction_cls=modules.interaction_classes["RealAgnosticResidualInteractionBlock"],
        interaction_cls_first=modules.interaction_classes["RealAgnosticInteractionBlock"],
        num_elements=len(elements), atomic_numbers=elements, avg_num_neighbors=NEIGHBOURS,
        atomic_energies=torch.zeros(len(elements)).numpy(), gate=torch.nn.functional.silu,
        hidden_irreps=o3.Irreps("128x0e"), MLP_irreps=o3.Irreps("16x0e"),
    ).to(numbers.device, torch.float32)  # fmt: skip
    one_hot = (numbers[:, None] == torch.tensor(elements, device=numbers.device)).float()

    def energies(positions: Tensor, pairs: Tensor) -> Tensor:
        structures, atoms, _ = positions.shape
        device = positions.device
        zeros = positions.new_zeros(pairs.shape[1], 3)
        data = {
            "positions": positions.reshape(-1, 3),
            "node_attrs": one_hot.repeat(structures, 1),
            "edge_index": pairs,
            "shifts": zeros,
            "unit_shifts": zeros,
            "cell": positions.new_zeros(3 * structures, 3),
            "batch": torch.arange(structures, device=device).repeat_interleave(atoms),
            "ptr": torch.arange(0, (structures + 1) * atoms, atoms, device=device),
            "head": torch.zeros(structures, dtype=torch.int64, device=device),
        }
        return model(data, training=True, compute_force=False)["energy"]

    return Peer(MACE, frames, batch, model.parameters(), energies, near_pairs)


def nequip(frames: Batch, batch: int) -> Peer:
    """NequIP with its defaults (l = 1, 32 features, four layers), on precomputed pairs within the cutoff."""
    models: Any = importlib.import_module("nequip.model")
    dtype = torch.get_default_dtype()
    importlib.import_module("nequip.utils.global_state").set_global_state()
    torch.set_default_dtype(dtype)  # which the line above changes for the whole process
    numbers = frames.numbers[0]
    elements = sorted(set(numbers.tolist()))
    model = models.NequIPGNNModel(
        seed=0, model_dtype="float32", r_max=CUTOFF, type_names=symbols(elements), l_max=1,
        avg_num_neighbors=NEIGHBOURS, per_type_energy_scales=1.0, per_type_energy_shifts=0.0,
        do_derivatives=False,
    ).to(numbers.device)  # fmt: skip
    types = torch.searchsorted(torch.tensor(elements, device=numbers.device), numbers)

    def energies(positions: Tensor, pairs: Tensor) -> Tensor:
        structures, atoms, _ = positions.shape
        data = {
            "pos": positions.reshape(-1, 3),
            "atom_types": types.repeat(structures),
            "edge_index": pairs,
            "batch": torch.arange(structures, device=positions.device).repeat_interleave(atoms),
            "num_atoms": torch.full((structures,), atoms, device=positions.device),
        }
        return model(data)["total_energy"].squeeze(-1)

    return Peer(NEQUIP, frames, batch, model.parameters(), energies, near_pairs)


# Peers besides the baseline, by module: name, package, and how to make one.
OTHERS = {"mace": (MACE, "mace-torch", mace), "nequip": (NEQUIP, "nequip>=0.7", nequip)}


def installed_peers(bench: Workbench, frames: Batch) -> list[Peer]:
    """The baseline first, then what is installed of the others; a note says what is not."""
    settings, notes = bench.settings, bench.report.notes
    found = [schnet(frames, settings.batch)]
    for module in settings.peers:
        name, package, build = OTHERS[module]
        reason = f"pip install '{package}'"
        if importable(module):
            try:
                found.append(build(frames, settings.batch))
                continue
            except Exception as error:  # versions with another interface fail in many ways
                reason = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        if (note := f"{name} was not measured ({reason}).") not in notes:
            notes.append(note)
    return found
