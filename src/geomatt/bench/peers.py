"""Other people's models behind one small interface, so that each is timed doing the same work."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from geomatt.bench.literal import literal_energies
from geomatt.bench.result import importable
from geomatt.bench.systems import Workload
from geomatt.errors import GeomAttError
from geomatt.model.geometric_attention.network import GeometricAttention
from geomatt.training.loss import Loss

CUTOFF = 5.0  # Å


class Peer(Protocol):
    """A model to compare with."""

    name: str

    def training_step(self) -> None:
        """Energy and force loss, backward and Adam, on the next batch of the workload."""

    def energy_and_forces(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Of the workload's molecule at positions (N, 3): energy () and forces (N, 3)."""


class AutogradPeer:
    """A peer whose forces come from automatic differentiation.

    `energies(positions, pairs)` gives energies (B,) of positions (B, N, 3); `pairs` is what `prepare` made of
    a batch of frames ahead of all timing, or of the first frame for single molecules.
    """

    def __init__(
        self,
        name: str,
        workload: Workload,
        parameters: Iterable[nn.Parameter],
        energies: Callable[[Tensor, Any], Tensor],
        prepare: Callable[[Tensor], Any] = lambda positions: None,
    ) -> None:
        self.name, self._workload, self._energies = name, workload, energies
        self._optimiser = torch.optim.Adam(parameters, lr=1e-4)
        self._loss = Loss()
        self._pairs = [prepare(workload.positions[index]) for index in workload.batches]
        self._own_pairs = prepare(workload.positions[:1])
        self._next: Iterator[int] = itertools.cycle(range(len(workload.batches)))
        self._atoms = torch.full((workload.batch,), workload.atoms, device=workload.device)

    def training_step(self) -> None:
        batch = next(self._next)
        index = self._workload.batches[batch]
        positions = self._workload.positions[index].requires_grad_()
        energies = self._energies(positions, self._pairs[batch])
        (gradient,) = torch.autograd.grad(energies.sum(), positions, create_graph=True)
        energy_error = energies - self._workload.energy[index]
        loss = self._loss(energy_error, -gradient - self._workload.forces[index], self._atoms)
        self._optimiser.zero_grad()
        loss.backward()
        self._optimiser.step()

    def energy_and_forces(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        positions = positions.detach()[None].requires_grad_()
        energies = self._energies(positions, self._own_pairs)
        (gradient,) = torch.autograd.grad(energies.sum(), positions)
        return energies.detach()[0], -gradient[0]


def near_pairs(positions: Tensor) -> Tensor:
    """Pairs within the cutoff (2, P) of atoms (B, N, 3) counted through the batch."""
    atoms = positions.shape[1]
    near = torch.cdist(positions, positions) < CUTOFF
    near &= ~torch.eye(atoms, dtype=torch.bool, device=positions.device)
    b, i, j = near.nonzero(as_tuple=True)
    return torch.stack([b * atoms + i, b * atoms + j])


def literal(workload: Workload, network: GeometricAttention) -> Peer:
    """The paper's equations as they stand, with the network's weights."""

    def energies(positions: Tensor, pairs: None) -> Tensor:
        return literal_energies(network, workload.numbers, positions)

    return AutogradPeer("literal", workload, network.parameters(), energies)


def schnet(workload: Workload) -> Peer:
    """PyTorch Geometric's SchNet with three interactions, on precomputed pairs within the cutoff."""
    if not importable("torch_geometric"):
        raise GeomAttError(
            "The baseline is PyTorch Geometric's SchNet, which is not installed. "
            "Install it with: pip install geomatt[bench]"
        )
    from torch_geometric.nn.models import SchNet

    class Graph(nn.Module):
        """Distances of pairs that are known ahead."""

        pairs: Tensor

        def forward(self, positions: Tensor, batch: Tensor) -> tuple[Tensor, Tensor]:
            i, j = self.pairs
            return self.pairs, (positions[i] - positions[j]).norm(dim=-1)

    graph = Graph()
    model = SchNet(
        hidden_channels=128,
        num_filters=128,
        num_interactions=3,
        num_gaussians=50,
        cutoff=CUTOFF,
        interaction_graph=graph,
    ).to(workload.device)
    owner = torch.arange(workload.batch, device=workload.device).repeat_interleave(workload.atoms)
    numbers = workload.numbers.repeat(workload.batch)

    def energies(positions: Tensor, pairs: Tensor) -> Tensor:
        graph.pairs = pairs
        atoms = positions.shape[0] * positions.shape[1]
        return model(numbers[:atoms], positions.reshape(-1, 3), owner[:atoms]).squeeze(-1)

    return AutogradPeer("PyG SchNet", workload, model.parameters(), energies, near_pairs)


@dataclass(frozen=True)
class PeerKind:
    """A peer that may be installed."""

    module: str
    build: Callable[[Workload], Peer]


def _mace(workload: Workload) -> Peer:
    from geomatt.bench.mace import mace

    return mace(workload)


# SchNet is the baseline of all targets; others take part where they are installed.
PEERS: dict[str, PeerKind] = {
    "schnet": PeerKind("torch_geometric", schnet),
    "mace": PeerKind("mace", _mace),
}


def installed_peers(names: Iterable[str], workload: Workload) -> list[Peer]:
    """The baseline first, then what else is installed of the named."""
    others = [name for name in names if name != "schnet" and importable(PEERS[name].module)]
    return [schnet(workload), *(PEERS[name].build(workload) for name in others)]
