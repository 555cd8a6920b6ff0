"""Overlap functions of all pairs of atoms: values, derivatives, and the sums their gradients need.

All overlap functions of a network are rows of one matrix A (M, C, L'): F²(d) = A Φ̂(d). The channels C run
over the streams; within a stream over its modules, the layers, and f (for k = 2, where the sum over f is
taken first, over the layers alone). Column L of A holds the biases, further columns are zero.

Functions, derivatives and adjoints are one tensor (J, R, N, N, F) per stream: J modules, R = layers · M · B.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional

from geomatt.model.geometric_attention.config import GeometricAttentionConfig
from geomatt.model.geometric_attention.network import EXPONENT_LIMIT

Streams = list[Tensor]  # [stream] (J, R, N, N, F)


class Channels:
    """Where each stream, module and layer sits among the channels."""

    def __init__(self, config: GeometricAttentionConfig) -> None:
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


class PairFunctions:
    """The overlap functions of all pairs. Streams come one by one, to be used while they are in the cache."""

    def __init__(
        self,
        config: GeometricAttentionConfig,
        channels: Channels,
        mu: Tensor,  # (M, L)
        a: Tensor,  # (M, C, L')
        distance: Tensor,  # (M·B, N, N)
        real: Tensor,  # (M·B, N, N), True for pairs of real atoms
    ) -> None:
        members, size = mu.shape
        self.channels, self.shape, self.a = channels, distance.shape, a
        # The extra columns get a far-away centre, so their functions vanish; column L becomes the mask.
        centres = functional.pad(mu, (0, channels.columns - size), value=1e6)[:, None]
        offset = distance.reshape(members, -1, 1) - centres  # (M, P, L')
        mask = real.reshape(members, -1, 1)
        exponent = config.gamma * offset.square()
        self.phi = torch.where((exponent < EXPONENT_LIMIT) & mask, torch.exp(-exponent), 0.0)
        self.slope = (-2.0 * config.gamma) * offset * self.phi
        self.phi[..., size] = mask[..., 0].to(self.phi.dtype)

    def overlaps(self) -> Iterator[Tensor]:
        """Values of the overlap functions."""
        return self._product(self.phi)

    @cached_property
    def slopes(self) -> Streams:
        """Derivatives of the overlap functions with respect to the distance."""
        return list(self._product(self.slope))

    def by_distance(self, bars: Streams) -> Tensor:
        """Σ_c bar_c dF_c/dd, summed over both directions of a pair: ∂E/∂d, (M·B, N, N)."""
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

    def gradient(self, hats: Iterable[Tensor], bars: Streams, d_dot: Tensor) -> Tensor:
        """Σ_pairs hat Φ̂ − bar dΦ̂/dt, the gradient with respect to A, (M, C, L')."""
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
