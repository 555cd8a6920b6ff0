"""PyTorch Geometric's SchNet (Schütt et al. 2017) behind the interface of networks.

All pairs of atoms are edges. A pair beyond the cutoff, or with padding in it, is put at the cutoff, where
SchNet's cosine envelope is zero, so that shapes do not depend on the data.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from geomatt.data.batch import Batch
from geomatt.errors import GeomAttError
from geomatt.model.interface import Network
from geomatt.model.pairs import lengths, pair_switch
from geomatt.model.schnet.config import SchNetConfig


class SchNet(Network):
    """SchNet on all pairs of atoms of molecules."""

    kind = "schnet"
    Config = SchNetConfig
    parts: ClassVar = {"readout": ("model.lin1", "model.lin2"), "embedding": ("model.embedding",),
                       "interactions": ("model.interactions",)}  # fmt: skip
    small: ClassVar = {"features": 16, "filters": 16, "interactions": 2, "gaussians": 20}
    vectorises = False
    config: SchNetConfig

    def __init__(self, config: SchNetConfig, dtype: torch.dtype = torch.float32) -> None:
        super().__init__(config, dtype)
        try:
            from torch_geometric.nn.models import SchNet as Model
        except ImportError as error:
            raise GeomAttError(
                "SchNet needs PyTorch Geometric. Install it with: pip install 'geomatt[bench]'"
            ) from error
        self.model: Any = Model(
            hidden_channels=config.features,
            num_filters=config.filters,
            num_interactions=config.interactions,
            num_gaussians=config.gaussians,
            cutoff=config.cutoff,
            interaction_graph=torch.nn.Identity(),  # edges come from `_edges`
        )
        self.to(dtype)

    def atomic_energies(self, batch: Batch, switch: Tensor | None = None) -> Tensor:
        if batch.cell is not None:
            raise GeomAttError("SchNet is wrapped for molecules: set pbc to False.")
        model, (structures, atoms) = self.model, batch.numbers.shape
        edges = _edges(structures, atoms, batch.numbers.device)  # (2, B · N · (N − 1))
        h = model.embedding(batch.numbers.reshape(-1))  # (B · N, features)
        r, real = batch.positions.reshape(-1, 3), batch.mask.reshape(-1)
        distance = lengths(r.index_select(0, edges[0]) - r.index_select(0, edges[1]))
        pair = real.index_select(0, edges[0]) & real.index_select(0, edges[1])
        distance = torch.where(pair & (distance < self.config.cutoff), distance, self.config.cutoff)
        basis = model.distance_expansion(distance)
        factors = None
        if switch is not None:  # row i of a switch is what atom i receives
            where = edges[1] * atoms + edges[0] % atoms
            factors = pair_switch(switch, self.switch_layers, batch).flatten(1)[:, where]  # (layers, edges)
        for layer, interaction in enumerate(model.interactions):
            if factors is None:
                h = h + interaction(h, edges, distance, basis)
            else:
                h = h + _switched(interaction, h, edges, distance, basis, factors[layer])
        energy = model.lin2(model.act(model.lin1(h))).view(structures, atoms)
        return energy * batch.mask

    @property
    def switch_layers(self) -> int:
        return self.config.interactions


def _switched(
    block: Any, h: Tensor, edges: Tensor, distance: Tensor, basis: Tensor, factor: Tensor
) -> Tensor:
    """An interaction block of PyTorch Geometric whose messages are multiplied by `factor` (edges,)."""
    conv = block.conv
    envelope = 0.5 * (torch.cos(distance * torch.pi / conv.cutoff) + 1.0)
    messages = conv.lin1(h).index_select(0, edges[0]) * conv.nn(basis) * (envelope * factor)[:, None]
    received = torch.zeros_like(messages[: len(h)]).index_add(0, edges[1], messages)
    return block.lin(block.act(conv.lin2(received)))


def _edges(structures: int, atoms: int, device: torch.device) -> Tensor:
    """All pairs i ≠ j of every structure, as atoms counted through the batch."""
    i = torch.arange(atoms, device=device)[:, None].expand(-1, max(0, atoms - 1))
    j = (i + 1 + torch.arange(max(0, atoms - 1), device=device)) % atoms
    start = atoms * torch.arange(structures, device=device)[:, None]
    return torch.stack([(start + i.reshape(-1)).reshape(-1), (start + j.reshape(-1)).reshape(-1)])
