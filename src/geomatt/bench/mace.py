"""MACE as a peer, where mace-torch is installed."""

from __future__ import annotations

import importlib

import torch
from torch import Tensor

from geomatt.bench.peers import CUTOFF, AutogradPeer, Peer, near_pairs
from geomatt.bench.systems import Workload


def mace(workload: Workload) -> Peer:
    """MACE with 128 invariant channels and two layers, on precomputed pairs within the cutoff."""
    modules = importlib.import_module("mace.modules")  # before e3nn, which it prepares for newer torch
    o3 = importlib.import_module("e3nn.o3")

    elements = sorted(set(workload.numbers.tolist()))
    model = modules.MACE(
        r_max=CUTOFF,
        num_bessel=8,
        num_polynomial_cutoff=5,
        max_ell=3,
        interaction_cls=modules.interaction_classes["RealAgnosticResidualInteractionBlock"],
        interaction_cls_first=modules.interaction_classes["RealAgnosticInteractionBlock"],
        num_interactions=2,
        num_elements=len(elements),
        hidden_irreps=o3.Irreps("128x0e"),
        MLP_irreps=o3.Irreps("16x0e"),
        atomic_energies=torch.zeros(len(elements)).numpy(),
        avg_num_neighbors=14,
        atomic_numbers=elements,
        correlation=3,
        gate=torch.nn.functional.silu,
    ).to(workload.device, torch.float32)
    one_hot = (workload.numbers[:, None] == torch.tensor(elements, device=workload.device)).float()

    def energies(positions: Tensor, pairs: Tensor) -> Tensor:
        batch, atoms, _ = positions.shape
        device = positions.device
        zeros = positions.new_zeros(pairs.shape[1], 3)
        data = {
            "positions": positions.reshape(-1, 3),
            "node_attrs": one_hot.repeat(batch, 1),
            "edge_index": pairs,
            "shifts": zeros,
            "unit_shifts": zeros,
            "cell": positions.new_zeros(3 * batch, 3),
            "batch": torch.arange(batch, device=device).repeat_interleave(atoms),
            "ptr": torch.arange(0, (batch + 1) * atoms, atoms, device=device),
            "head": torch.zeros(batch, dtype=torch.int64, device=device),
        }
        return model(data, training=True, compute_force=False)["energy"]

    return AutogradPeer("MACE 128x0e", workload, model.parameters(), energies, near_pairs)
