"""Attention as operators on the atoms: literal products of matrices, compared with the network."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from geomatt.data import Structure, collate
from geomatt.model.geometric_attention import GeometricAttention, pair_distances


def chain_operator(network: GeometricAttention, stream: int, layer: int, distances: np.ndarray) -> np.ndarray:
    """α^(k) as (Δd / N_S) Σ_f F¹_f F²_f … : one N × N operator for each overlap module and channel f.

    Written with Φ̂, Q, q, K, k as in the paper, without the network's own overlap functions.
    """
    mu, gamma = network.mu.numpy(), network.config.gamma
    phi = np.exp(-gamma * (distances[..., None] - mu) ** 2)  # (N, N, L)
    at_zero = np.exp(-gamma * mu**2)  # (L,)
    overlap: Any = network.overlaps[stream]
    alpha = np.zeros_like(distances)
    for f in range(overlap.Q.shape[2]):
        operator = np.eye(len(distances))
        for m in range(overlap.Q.shape[1]):
            Q, K = overlap.Q[layer, m, f].numpy(), overlap.K[layer, m, f].numpy()
            q, k = float(overlap.q[layer, m, f]), float(overlap.k[layer, m, f])
            operator = operator @ ((Q @ at_zero + q) * (phi @ K + k))
        alpha += operator
    return network.config.spacing / len(network.config.orders) * alpha


def stream_operator(network: GeometricAttention, stream: int, alpha: list[np.ndarray]) -> np.ndarray:
    """The affine operator of a stream on the features of all atoms, (N·F_v + 1)²: a product of its layers.

    A layer is v ← v + A (v Wᵀ + 1 bᵀ), which is 1 + A ⊗ W with a last column for b.
    """
    atoms, width = len(alpha[0]), network.config.features
    total = np.eye(atoms * width + 1)
    for layer, A in enumerate(alpha):
        W, b = network.W[stream, layer].numpy(), network.b[stream, layer].numpy()
        step = np.eye(len(total))
        step[:-1, :-1] += np.kron(A, W)
        step[:-1, -1] = np.kron(A.sum(1), b)
        total = step @ total
    return total


def operators(network: GeometricAttention, structure: Structure) -> dict[str, Any]:
    """Errors of the operator form relative to the network, for every order and for whole streams."""
    batch = collate([structure], network.dtype, network.device)
    with torch.no_grad():
        distances = pair_distances(batch.positions)
        alpha = network.coefficients(distances, batch.mask)
        embedded = network.embed(batch.numbers)[0].numpy()
        rows = []
        for s, order in enumerate(network.config.orders):
            exact = [a[0].numpy() for a in alpha[s]]
            by_hand = [chain_operator(network, s, layer, distances[0].numpy()) for layer in range(len(exact))]
            v = network.embed(batch.numbers)
            for layer, a in enumerate(alpha[s]):
                v = v + a @ (v @ network.W[s, layer].T + network.b[s, layer])
            moved = stream_operator(network, s, by_hand) @ np.append(embedded.ravel(), 1.0)
            found = v[0].numpy()
            rows.append(
                {
                    "order": order,
                    "operators": order - 1,
                    "alpha_error": _relative(by_hand, exact),
                    "stream_error": _relative(moved[:-1].reshape(found.shape), found),
                    "asymmetry": max(np.abs(a - a.T).max() / np.abs(a).max() for a in exact),
                }
            )
    return {"atoms": len(structure), "rows": rows}


def _relative(found: Any, exact: Any) -> float:
    return float(np.abs(np.asarray(found) - np.asarray(exact)).max() / np.abs(exact).max())
