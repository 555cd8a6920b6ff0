"""Overlap functions of one network on a CPU by way of a grid of distances, with their gradients.

The overlap functions depend on the distance alone, so the product of a hundred Gaussians with every channel,
which `AllPairs` makes for every pair, is made for the nodes of a grid only, for values and two derivatives:
once for a network that stays as it is, anew in every step of training. A pair then is a weighted sum of six
rows, three of either node around it (see `hermite`). Gradients take the same way back: pairs are summed into
nodes, and one small product leads from the nodes to the weights. All results are those of the interpolated
functions, exactly: forces are derivatives of the energy, and gradients those of the loss.

Sums of few rows are what torch's `embedding_bag` does best, in either direction. P = B·N·N pairs, G nodes;
groups g are the modules and layers of a stream, each with F channels.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import torch
from torch import Tensor
from torch.nn import functional

from geomatt.model.geometric_attention.config import ModelConfig
from geomatt.model.geometric_attention.cpu.hermite import basis_at_nodes, hermite_weights
from geomatt.model.geometric_attention.dense.pair_functions import Channels, PairFunctions, Streams

# h √γ. While training, a Gaussian is off by 1e-7 of its height, which is float32's own resolution, and its
# slope by 2e-6. Who keeps the nodes can afford more of them, as long as they fit a processor's cache: below
# float32's resolution, and below 1e-8 in float64.
TRAINING_STEP = 0.18
KEPT_STEP = {torch.float32: 0.135, torch.float64: 0.045}


class Nodes:
    """The overlap functions of one network at the nodes."""

    def __init__(
        self, config: ModelConfig, channels: Channels, mu: Tensor, a: Tensor, keep: bool = False
    ) -> None:
        """`mu` (1, L), `a` (1, C, L'); `keep`: to be used many times, so finer and with more care."""
        self.channels = channels
        self.step = (KEPT_STEP[a.dtype] if keep else TRAINING_STEP) / math.sqrt(config.gamma)
        basis = basis_at_nodes(config.gamma, self.step, tuple(mu[0].tolist()), channels.columns)
        self.basis = basis if keep else basis.to(a.dtype)
        self.rows = len(basis)  # three a node
        self.last = self.rows // 3 - 2  # the left node of the last interval
        self.groups = [modules * channels.layers for _, modules, _ in channels.streams]
        # Values, h · slopes and h² · curvatures of all nodes: (g · G · 3, F) for every stream.
        self.tables = []
        for (start, _, width), groups in zip(channels.streams, self.groups, strict=True):
            part = a[0, start : start + groups * width].view(groups, width, -1).to(self.basis.dtype)
            table = torch.bmm(self.basis.expand(groups, -1, -1), part.mT)
            self.tables.append(table.flatten(0, 1).to(a.dtype))

    def by_functions(self, by_tables: Iterable[Tensor]) -> Tensor:
        """From the gradient by the tables to that by A, (1, C, L')."""
        parts = []
        for by_table, groups in zip(by_tables, self.groups, strict=True):
            by_rows = by_table.view(groups, self.rows, -1)
            parts.append(torch.bmm(by_rows.mT, self.basis.expand(groups, -1, -1)).flatten(0, 1))
        return torch.cat(parts)[None]


class Places:
    """Where the pairs of a batch lie between the nodes."""

    def __init__(self, nodes: Nodes, distance: Tensor, real: Tensor) -> None:
        """`distance` and `real` (B, N, N)."""
        self.nodes, self.shape = nodes, distance.shape
        u = (distance.flatten() / nodes.step).clamp_(max=nodes.last)
        self.cell = u.to(torch.int64).clamp_(min=0)  # (P,); where a distance is not a number, weights are not
        there = real.flatten()  # nothing where padding is
        self.value, self.slope = (w * there for w in hermite_weights(u - self.cell, nodes.step))  # (6, P)


class GridPairs(PairFunctions):
    """As `AllPairs`, for one network."""

    def __init__(self, places: Places) -> None:
        self.places, self.nodes, self.shape = places, places.nodes, places.shape
        self.pairs = places.shape.numel()
        first = 3 * places.cell + self.nodes.rows * torch.arange(max(self.nodes.groups))[:, None]
        self.index = first[..., None] + torch.arange(6)  # (g, P, 6), rows of the tables
        self.sixes = torch.arange(0, self.index.numel(), 6).view(-1, self.pairs)  # (g, P), where a sum starts

    def overlaps(self) -> Iterator[Tensor]:
        return self._interpolate(self.places.value)

    def derivatives(self) -> Iterator[Tensor]:
        return self._interpolate(self.places.slope)

    def gradient(self, hats: Iterable[Tensor], bars: Streams, d_dot: Tensor) -> Tensor:
        places, groups_of = self.places, self.nodes.groups
        source, starts = self._by_cell()
        number = torch.arange(max(groups_of))[:, None]
        index = source % self.pairs + number * self.pairs  # (g, 6 · P)
        starts = starts + number * len(source)
        value = places.value.flatten()[source].expand_as(index).contiguous()
        slope = (places.slope * -d_dot.flatten()).flatten()[source].expand_as(index).contiguous()
        parts = []
        for hat, bar, groups in zip(hats, bars, groups_of, strict=True):
            where, bags, width = index[:groups].flatten(), starts[:groups].flatten(), hat.shape[-1]
            summed = functional.embedding_bag(
                where, hat.view(-1, width), bags, mode="sum", per_sample_weights=value[:groups].flatten()
            )
            summed += functional.embedding_bag(
                where, bar.view(-1, width), bags, mode="sum", per_sample_weights=slope[:groups].flatten()
            )
            left, right = summed.view(groups, self.nodes.rows // 3, 6, width).chunk(2, 2)
            left[:, 1:] += right[:, :-1]
            parts.append(left.reshape(-1, width))  # (g · G · 3, F)
        return self.nodes.by_functions(parts)

    def _interpolate(self, weights: Tensor) -> Iterator[Tensor]:
        """Six rows of the tables for every pair, with the given weights (6, P)."""
        nodes, atoms = self.nodes, self.shape[-1]
        weights = weights.mT.expand(max(nodes.groups), -1, -1).contiguous()
        for table, groups, (_, modules, width) in zip(
            nodes.tables, nodes.groups, nodes.channels.streams, strict=True
        ):
            index, starts = self.index[:groups].flatten(), self.sixes[:groups].flatten()
            own = weights[:groups].flatten()
            x = functional.embedding_bag(index, table, starts, mode="sum", per_sample_weights=own)
            yield x.view(modules, -1, atoms, atoms, width)

    def _by_cell(self) -> tuple[Tensor, Tensor]:
        """Places in an array (6, P), sorted by cell, weight and pair; where every cell and weight starts.

        In this order the pairs of a cell, which are summed six times, stay in the fastest cache meanwhile.
        """
        cell = self.places.cell
        order = cell.argsort(stable=True)
        count = torch.bincount(cell, minlength=self.nodes.rows // 3)
        start = count.cumsum(0) - count
        own = cell[order]
        six = torch.arange(6)[:, None]
        place = (5 * start[own] + torch.arange(self.pairs)) + six * count[own]  # (6, P)
        source = torch.empty(6 * self.pairs, dtype=torch.int64)
        source[place.flatten()] = (order + six * self.pairs).flatten()
        return source, (6 * start + six * count).mT.flatten()


def grid_pays(config: ModelConfig, mu: Tensor, positions: Tensor) -> bool:
    """Whether the grid serves networks with `mu` (M, L) at (..., N, 3), with less work than all pairs."""
    if len(mu) > 1 or positions.device.type != "cpu" or positions.dtype != torch.float32:
        return False
    pairs = positions.numel() // 3 * positions.shape[-2]
    return pairs > 3 * (config.d_max + 1.0) * math.sqrt(config.gamma) / TRAINING_STEP
