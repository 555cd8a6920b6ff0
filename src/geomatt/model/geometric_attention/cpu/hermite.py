"""Quintic Hermite interpolation between nodes of a grid of distances: what `grid` is made of.

A function's value, h · slope and h² · curvature at the two nodes around a distance, six numbers with six
weights, give it there with an error of order h⁶, and its derivative exactly that of what was interpolated.
"""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn import functional

# Row n of this matrix holds the coefficients of t^n in the weights of the value, h · slope and h² · curvature
# at the left node, then at the right one; t runs from 0 to 1 between them.
QUINTIC = [
    [1.0, 0.0, 0.0, 0.0, 0.0, 0.0],
    [0.0, 1.0, 0.0, 0.0, 0.0, 0.0],
    [0.0, 0.0, 0.5, 0.0, 0.0, 0.0],
    [-10.0, -6.0, -1.5, 10.0, -4.0, 0.5],
    [15.0, 8.0, 1.5, -15.0, 7.0, -1.0],
    [-6.0, -3.0, -0.5, 6.0, -3.0, 0.5],
]


@lru_cache(maxsize=8)
def basis_at_nodes(gamma: float, step: float, mu: tuple[float, ...], columns: int) -> Tensor:
    """Φ̂, h Φ̂′ and h² Φ̂″ at every node, (G · 3, L') in float64; column L is one, for the biases.

    Nodes go as far as the last basis function reaches, and one further.
    """
    count = math.ceil((mu[-1] + math.sqrt(40.0 / gamma)) / step) + 2
    offset = torch.arange(count, dtype=torch.float64)[:, None] * step - torch.tensor(mu, dtype=torch.float64)
    exponent = gamma * offset.square()
    value = torch.where(exponent < 40.0, torch.exp(-exponent), 0.0)
    slope = -2.0 * gamma * offset * value
    bend = 2.0 * gamma * (2.0 * exponent - 1.0) * value
    basis = functional.pad(torch.stack([value, step * slope, step**2 * bend], 1), (0, columns - len(mu)))
    basis[:, 0, len(mu)] = 1.0
    return basis.flatten(0, 1)


def hermite_weights(t: Tensor, step: float) -> tuple[Tensor, Tensor]:
    """The six weights of a value at t (P,) between two nodes, and those of its slope, (6, P) each."""
    exact = t.double()  # the polynomials cancel too much for float32
    square = exact * exact
    cube = square * exact
    powers = torch.stack([torch.ones_like(exact), exact, square, cube, square * square, square * cube])
    value, slope = (_polynomials(step) @ powers).to(t.dtype).chunk(2)
    return value, slope


@lru_cache(maxsize=8)
def _polynomials(step: float) -> Tensor:
    """Coefficients over 1, t … t⁵ of the six weights of a value, and of those of its slope, (12, 6)."""
    quintic = torch.tensor(QUINTIC, dtype=torch.float64)
    slope = functional.pad(torch.arange(1.0, 6.0)[:, None] * quintic[1:] / step, (0, 0, 0, 1))
    return torch.cat([quintic, slope], 1).mT.contiguous()
