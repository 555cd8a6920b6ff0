"""Overlap functions from a table: for evaluating the same network again and again on a CPU.

The overlap functions depend on the distance alone. Their values and first two derivatives on a grid give
them everywhere by interpolation (see `hermite`), with an error of order (h √γ)⁶: for the usual γ = 20 / Å²
below float32's resolution with h = 0.03 Å, and below 1e-8 with float64's 0.01 Å. Six rows of the table make
a pair, whatever the size of the basis. Forces are the exact derivative of the interpolated energy.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

from geomatt.model.config import ModelConfig
from geomatt.model.hermite import basis_at_nodes, hermite_weights
from geomatt.model.pair_functions import Channels, Streams

STEP = {torch.float32: 0.135, torch.float64: 0.045}  # h √γ; a larger table no longer fits a processor's cache


class Table:
    """The overlap functions A (C, L') of one network on a grid of distances."""

    def __init__(self, config: ModelConfig, channels: Channels, mu: Tensor, a: Tensor) -> None:
        self.channels, self.step = channels, STEP[a.dtype] / math.sqrt(config.gamma)
        basis = basis_at_nodes(config.gamma, self.step, tuple(mu.tolist()), a.shape[1])
        self.last = len(basis) // 3 - 2  # the left node of the last interval
        self.padding = len(basis)  # six rows of zeros: where pairs with padding look
        self.rows = functional.pad(basis @ a.double().mT, (0, 0, 0, 6)).to(a.dtype)  # (3 · nodes + 6, C)
        self.six = torch.arange(6)

    def pairs(self, distance: Tensor, real: Tensor) -> TabulatedPairs:
        """The functions at the distances (B, N, N) of the pairs that are real."""
        u = (distance.flatten() / self.step).clamp(max=self.last)
        node = u.to(torch.int64)
        t = u - node
        first = torch.where(real.flatten(), 3 * node, self.padding)
        return TabulatedPairs(self, first[:, None] + self.six, t, distance.shape)


class TabulatedPairs:
    """As `PairFunctions`, for one network and without gradients by its weights."""

    def __init__(self, table: Table, index: Tensor, t: Tensor, shape: torch.Size) -> None:
        self.table, self.index, self.shape = table, index, shape
        self.value, self.slope = hermite_weights(t, table.step)  # (6, P) each

    def overlaps(self) -> Streams:
        """Values of the overlap functions."""
        full = self._interpolate(self.value)
        layers, atoms = self.table.channels.layers, self.shape[-1]
        result = []
        for start, modules, width in self.table.channels.streams:
            part = full[:, start : start + modules * layers * width].unflatten(1, (modules, layers, width))
            result.append(part.permute(1, 2, 0, 3).contiguous().view(modules, -1, atoms, atoms, width))
        return result

    def by_distance(self, bars: Streams) -> Tensor:
        """Σ_c bar_c dF_c/dd, summed over both directions of a pair, (B, N, N)."""
        layers, pairs = self.table.channels.layers, len(self.index)
        rows = [m.view(layers, pairs, -1).transpose(0, 1).flatten(1) for bar in bars for m in bar]
        one_way = torch.linalg.vecdot(torch.cat(rows, 1), self._interpolate(self.slope)).view(self.shape)
        return one_way + one_way.mT

    def _interpolate(self, weights: Tensor) -> Tensor:
        """Six rows of the table for every pair, with the given weights (6, P)."""
        own = weights.mT.contiguous()
        return functional.embedding_bag(self.index, self.table.rows, per_sample_weights=own, mode="sum")
