"""Overlap functions of one network on a CPU in float32, by way of a grid of distances, with their gradients.

The overlap functions depend on the distance alone, so the product of a hundred Gaussians with every channel,
which `AllPairs` makes for every pair, is made for the nodes of a grid only, anew whenever the weights change,
for values and two derivatives. A pair then is a weighted sum of six rows, three of either node around it
(see `hermite`). Gradients take the same way back: pairs are
summed into nodes, and one small product leads from the nodes to the weights. All results are those of the
interpolated functions, exactly: forces are derivatives of the energy, and gradients those of the loss.

Sums of few rows are what torch's `embedding_bag` does best, in either direction. P = B·N·N pairs, G nodes;
groups g are the modules and layers of a stream, each with F channels.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import torch
from torch import Tensor
from torch.nn import functional

from geomatt.model.config import ModelConfig
from geomatt.model.hermite import basis_at_nodes, hermite_weights
from geomatt.model.pair_functions import Channels, PairFunctions, Streams

# h √γ: a Gaussian is off by 1e-7 of its height, which is float32's own resolution, its slope by 2e-6.
STEP = 0.18


class GridPairs(PairFunctions):
    """As `AllPairs`, for one network in float32."""

    def __init__(
        self, config: ModelConfig, channels: Channels, mu: Tensor, a: Tensor, distance: Tensor, real: Tensor
    ) -> None:
        """`mu` (1, L), `a` (1, C, L'), `distance` and `real` (B, N, N)."""
        self.channels, self.shape, self.pairs = channels, distance.shape, distance.numel()
        step = STEP / math.sqrt(config.gamma)
        self.basis = basis_at_nodes(config.gamma, step, tuple(mu[0].tolist()), channels.columns).to(a.dtype)
        self.nodes = len(self.basis) // 3
        self.groups = [modules * channels.layers for _, modules, _ in channels.streams]
        u = (distance.flatten() / step).clamp_(max=self.nodes - 2)
        self.cell = u.to(torch.int64)  # (P,)
        there = real.flatten()  # nothing where padding is
        self.value, self.slope = (w * there for w in hermite_weights(u - self.cell, step))  # (6, P) each
        first = 3 * self.cell + 3 * self.nodes * torch.arange(max(self.groups))[:, None]
        self.index = first[..., None] + torch.arange(6)  # (g, P, 6), rows of the tables
        self.sixes = torch.arange(0, self.index.numel(), 6).view(-1, self.pairs)  # (g, P), where a sum starts
        # Values, h · slopes and h² · curvatures of all nodes: (g · G · 3, F) for every stream.
        self.tables = []
        for (start, _, width), groups in zip(channels.streams, self.groups, strict=True):
            part = a[0, start : start + groups * width].view(groups, width, -1)
            self.tables.append(torch.bmm(self.basis.expand(groups, -1, -1), part.mT).flatten(0, 1))

    def overlaps(self) -> Iterator[Tensor]:
        return self._interpolate(self.value)

    def derivatives(self) -> Iterator[Tensor]:
        return self._interpolate(self.slope)

    def gradient(self, hats: Iterable[Tensor], bars: Streams, d_dot: Tensor) -> Tensor:
        source, starts = self._by_cell()
        number = torch.arange(max(self.groups))[:, None]
        index = source % self.pairs + number * self.pairs  # (g, 6 · P)
        starts = starts + number * len(source)
        value = self.value.flatten()[source].expand_as(index).contiguous()
        slope = (self.slope * -d_dot.flatten()).flatten()[source].expand_as(index).contiguous()
        parts = []
        for hat, bar, groups in zip(hats, bars, self.groups, strict=True):
            where, bags, width = index[:groups].flatten(), starts[:groups].flatten(), hat.shape[-1]
            summed = functional.embedding_bag(
                where, hat.view(-1, width), bags, mode="sum", per_sample_weights=value[:groups].flatten()
            )
            summed += functional.embedding_bag(
                where, bar.view(-1, width), bags, mode="sum", per_sample_weights=slope[:groups].flatten()
            )
            left, right = summed.view(groups, self.nodes, 6, width).chunk(2, 2)
            left[:, 1:] += right[:, :-1]
            by_table = left.reshape(groups, -1, width)  # (g, G · 3, F)
            parts.append(torch.bmm(by_table.mT, self.basis.expand(groups, -1, -1)).flatten(0, 1))
        return torch.cat(parts)[None]

    def _interpolate(self, weights: Tensor) -> Iterator[Tensor]:
        """Six rows of the tables for every pair, with the given weights (6, P)."""
        weights = weights.mT.expand(max(self.groups), -1, -1).contiguous()
        atoms = self.shape[-1]
        for table, groups, (_, modules, width) in zip(
            self.tables, self.groups, self.channels.streams, strict=True
        ):
            index, starts = self.index[:groups].flatten(), self.sixes[:groups].flatten()
            own = weights[:groups].flatten()
            x = functional.embedding_bag(index, table, starts, mode="sum", per_sample_weights=own)
            yield x.view(modules, -1, atoms, atoms, width)

    def _by_cell(self) -> tuple[Tensor, Tensor]:
        """Places in an array (6, P), sorted by cell, weight and pair; where every cell and weight starts.

        In this order the pairs of a cell, which are summed six times, stay in the fastest cache meanwhile.
        """
        order = self.cell.argsort(stable=True)
        count = torch.bincount(self.cell, minlength=self.nodes)
        start = count.cumsum(0) - count
        own = self.cell[order]
        six = torch.arange(6)[:, None]
        place = (5 * start[own] + torch.arange(self.pairs)) + six * count[own]  # (6, P)
        source = torch.empty(6 * self.pairs, dtype=torch.int64)
        source[place.flatten()] = (order + six * self.pairs).flatten()
        return source, (6 * start + six * count).mT.flatten()


def grid_pays(config: ModelConfig, mu: Tensor, distance: Tensor) -> bool:
    """Whether the grid serves networks with `mu` (M, L) at such distances, with less work than all pairs."""
    if len(mu) > 1 or distance.device.type != "cpu" or distance.dtype != torch.float32:
        return False
    return distance.numel() > 3 * (config.d_max + 1.0) * math.sqrt(config.gamma) / STEP
