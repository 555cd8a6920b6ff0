"""The equations of the paper written out term by term in float64, with loops: slow and easy to check.

It shares no code with the package. Every fast path is held against it.
"""

from __future__ import annotations

import math

import torch


def oracle_energy(weights, config, numbers, positions, off=()):
    """Sum of normalised atomic energies, and alpha[stream][layer], of one structure without padding.

    `weights` is a state dict; positions (N, 3) may require gradients; `off`: pairs without overlaps, as
    (layer, i, j).
    """
    w = {name: value.double() for name, value in weights.items() if value.is_floating_point()}
    r = positions.double()
    n = len(numbers)
    mu, gamma = w["mu"], config.gamma

    def phi(d):
        return torch.exp(-gamma * (d - mu) ** 2)

    def distance(i, j):
        if i == j or torch.equal(r[i], r[j]):
            return torch.zeros((), dtype=torch.float64)
        return torch.linalg.vector_norm(r[i] - r[j])

    basis = [[phi(distance(i, j)) for j in range(n)] for i in range(n)]
    at_zero = phi(torch.zeros((), dtype=torch.float64))
    rows = [config.elements.index(int(z)) for z in numbers]
    alphas, features = [], []
    for s, order in enumerate(config.orders):
        v = [w["embedding"][row] for row in rows]
        alphas.append([])
        for layer in range(config.layers):
            pairs = []
            for m in range(order - 1):
                big_q, big_k = w[f"overlaps.{s}.Q"][layer, m], w[f"overlaps.{s}.K"][layer, m]
                q = w[f"overlaps.{s}.q"][layer, m] if config.bias else 0.0
                k = w[f"overlaps.{s}.k"][layer, m] if config.bias else 0.0
                left = big_q @ at_zero + q
                pairs.append([[left * (big_k @ basis[i][j] + k) for j in range(n)] for i in range(n)])
                for i, j in ((i, j) for at, i, j in off if at == layer):
                    pairs[-1][i][j] = torch.zeros_like(left)
            chain = pairs[0]
            for step in pairs[1:]:
                chain = [
                    [sum(chain[i][m] * step[m][j] for m in range(n)) for j in range(n)] for i in range(n)
                ]
            alpha = [
                [config.spacing / len(config.orders) * chain[i][j].sum() for j in range(n)] for i in range(n)
            ]
            big_w, b = w["W"][s, layer], w["b"][s, layer]
            message = [big_w @ v[j] + b for j in range(n)]
            v = [v[i] + sum(alpha[i][j] * message[j] for j in range(n)) for i in range(n)]
            alphas[-1].append(torch.stack([torch.stack(row) for row in alpha]))
        features.append(v)
    energy = torch.zeros((), dtype=torch.float64)
    for i in range(n):
        x = torch.cat([features[s][i] for s in range(len(config.orders))])
        hidden = w["hidden.weight"] @ x + w["hidden.bias"]
        activated = torch.log1p(torch.exp(-hidden.abs())) + hidden.clamp(min=0) - math.log(2.0)
        energy = energy + (w["output.weight"] @ activated + w["output.bias"])[0]
    return energy, alphas


def oracle_energy_and_forces(weights, config, numbers, positions):
    """Normalised energy and forces."""
    r = positions.detach().double().clone().requires_grad_(True)
    energy, alphas = oracle_energy(weights, config, numbers, r)
    (gradient,) = torch.autograd.grad(energy, r)
    return energy.detach(), -gradient, [[a.detach() for a in layers] for layers in alphas]
