"""Overlap functions of all pairs of atoms: their values, their slopes, and the sums their gradients need.

All overlap functions of a network are rows of one matrix A (M, C, L'): F²(d) = A Φ̂(d). The channels C run
over the streams; within a stream over its modules, the layers, and f (for k = 2, where the sum over f is
taken beforehand, over the layers alone). Column L of A holds the biases, further columns are zero.

`AllPairs` makes plain matrix products over all pairs, for any number of members, in any precision and on any
device. `grid.GridPairs` has the same interface and is faster where it serves.

Functions, slopes and adjoints are one tensor (J, R, N, N, F) per stream, J its modules, R = layers · M · B.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional

from geomatt.model.geometric_attention.config import ModelConfig

Streams = list[Tensor]  # [stream] (J, R, N, N, F)


class Channels:
    """Where each stream, module and layer sits among the channels."""

    def __init__(self, config: ModelConfig) -> None:
        self.columns = -(-(config.basis_size + 1) // 4) * 4  # L': aligned rows are faster
        self.layers = config.layers
        # Per stream: first channel, modules, functions of a module in one layer.
        self.streams: list[tuple[int, int, int]] = []
        start = 0
        for order in config.orders:
            modules, width = order - 1, 1 if order == 2 else config.width(order)
            self.streams.append((start, modules, width))
            start += modules * config.layers * width
        self.count = start


class PairFunctions(ABC):
    """The overlap functions of all pairs. Streams come one by one, to be used while they are in the cache."""

    shape: torch.Size  # (M·B, N, N)

    @abstractmethod
    def overlaps(self) -> Iterator[Tensor]:
        """Values of the overlap functions."""

    @abstractmethod
    def derivatives(self) -> Iterator[Tensor]:
        """Their derivatives by the distance."""

    @abstractmethod
    def gradient(self, hats: Iterable[Tensor], bars: Streams, d_dot: Tensor) -> Tensor:
        """Σ_pairs hat Φ̂ − bar dΦ̂/dt, the gradient by A, (M, C, L')."""

    @cached_property
    def slopes(self) -> Streams:
        """All `derivatives`, kept for those who need them again."""
        return list(self.derivatives())

    def by_distance(self, bars: Streams) -> Tensor:
        """Σ_c bar_c dF_c/dd, summed over both directions of a pair, (M·B, N, N)."""
        parts = [
            torch.linalg.vecdot(b, s).view(-1, *self.shape) for b, s in zip(bars, self.slopes, strict=True)
        ]
        one_way = torch.cat(parts).sum(0)
        return one_way + one_way.mT

    def tangents(self, d_dot: Tensor) -> Iterator[Tensor]:
        """Derivatives of the overlaps along a change of the distances (M·B, N, N)."""
        slopes = self.slopes
        del self.slopes  # their memory becomes that of the tangents
        for slope in slopes:
            slope.view(-1, *self.shape, slope.shape[-1]).mul_(d_dot[..., None])
            yield slope


class AllPairs(PairFunctions):
    """Φ̂ of every pair in one array."""

    def __init__(
        self, config: ModelConfig, channels: Channels, mu: Tensor, a: Tensor, distance: Tensor, real: Tensor
    ) -> None:
        """`mu` (M, L), `a` (M, C, L'), `distance` and `real` (M·B, N, N)."""
        members, size = mu.shape
        self.channels, self.shape, self.a = channels, distance.shape, a
        # The extra columns get a far-away centre, so their functions vanish; column L becomes the mask.
        centres = functional.pad(mu, (0, channels.columns - size), value=1e6)[:, None]
        offset = distance.reshape(members, -1, 1) - centres  # (M, P, L')
        mask = real.reshape(members, -1, 1)
        exponent = config.gamma * offset.square()
        self.phi = torch.where((exponent < 40.0) & mask, torch.exp(-exponent), 0.0)
        self.slope = (-2.0 * config.gamma) * offset * self.phi
        self.phi[..., size] = mask[..., 0].to(self.phi.dtype)

    def overlaps(self) -> Iterator[Tensor]:
        return self._product(self.phi)

    def derivatives(self) -> Iterator[Tensor]:
        return self._product(self.slope)

    def gradient(self, hats: Iterable[Tensor], bars: Streams, d_dot: Tensor) -> Tensor:
        phi_dot = d_dot.reshape(*self.phi.shape[:2], 1) * self.slope
        parts = []
        for hat, bar in zip(hats, bars, strict=True):
            shape = (-1, *self.phi.shape[:2], hat.shape[-1])
            for h, b in zip(hat.view(shape), bar.view(shape), strict=True):
                parts.append(torch.baddbmm(h.mT @ self.phi, b.mT, phi_dot, alpha=-1.0))
        return torch.cat(parts, 1)

    def _product(self, phi: Tensor) -> Iterator[Tensor]:
        a, layers, atoms = self.a, self.channels.layers, self.shape[-1]
        for start, modules, width in self.channels.streams:
            groups = a[:, start : start + modules * layers * width].unflatten(1, (modules * layers, width))
            if len(a) == 1:
                x = torch.bmm(phi.expand(modules * layers, -1, -1), groups[0].mT)  # (groups, P, F)
            else:
                x = torch.stack([torch.bmm(phi, g.mT).flatten(0, 1) for g in groups.unbind(1)])
            yield x.view(modules, -1, atoms, atoms, width)
