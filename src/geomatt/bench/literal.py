"""The equations of the paper as one writes them down first: the second baseline.

All pairs, all basis functions, every overlap module on its own, forces by automatic differentiation. Basis
functions are left to underflow into denormal numbers, as in the code the paper was made with.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from geomatt.model.geometric_attention.network import GeometricAttention, OverlapFunctions, pair_distances


def literal_energies(network: GeometricAttention, numbers: Tensor, positions: Tensor) -> Tensor:
    """Normalised energies (B,) of atoms (N,) at positions (B, N, 3), with the network's parameters."""
    config = network.config
    phi = _basis(network, pair_distances(positions))  # (B, N, N, L)
    at_zero = _basis(network, phi.new_zeros(()))  # (L,)
    rows = torch.searchsorted(network.elements, numbers)
    streams = []
    for s, overlap in enumerate(network.overlaps):
        assert isinstance(overlap, OverlapFunctions)
        v = network.embedding[rows].expand(len(positions), -1, -1)  # (B, N, V)
        for layer in range(config.layers):
            chain = _overlap(overlap, layer, 0, phi, at_zero)  # (B, N, N, F)
            for module in range(1, config.orders[s] - 1):
                chain = torch.einsum("bimf,bmjf->bijf", chain, _overlap(overlap, layer, module, phi, at_zero))
            alpha = config.spacing / len(config.orders) * chain.sum(-1)
            v = v + alpha @ functional.linear(v, network.W[s, layer], network.b[s, layer])
        streams.append(v)
    hidden = functional.softplus(network.hidden(torch.cat(streams, -1))) - network.softplus_shift
    return network.output(hidden).sum((1, 2))


def literal_energies_and_forces(
    network: GeometricAttention, numbers: Tensor, positions: Tensor, create_graph: bool = False
) -> tuple[Tensor, Tensor]:
    """Normalised energies (B,) and forces (B, N, 3); with `create_graph`, differentiable once more."""
    positions = positions.detach().requires_grad_()
    energies = literal_energies(network, numbers, positions)
    (gradient,) = torch.autograd.grad(energies.sum(), positions, create_graph=create_graph)
    return (energies if create_graph else energies.detach()), -gradient


def _basis(network: GeometricAttention, distances: Tensor) -> Tensor:
    return torch.exp(-network.config.gamma * (distances[..., None] - network.mu) ** 2)


def _overlap(overlap: OverlapFunctions, layer: int, module: int, phi: Tensor, at_zero: Tensor) -> Tensor:
    """(Q Φ̂(0) + q) ∘ (K Φ̂(d) + k) of one module, (B, N, N, F)."""
    q = None if overlap.q is None else overlap.q[layer, module]
    k = None if overlap.k is None else overlap.k[layer, module]
    left = functional.linear(at_zero, overlap.Q[layer, module], q)
    return left * functional.linear(phi, overlap.K[layer, module], k)
