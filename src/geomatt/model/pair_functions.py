"""Overlap functions of all pairs of atoms: their values, their slopes, and the sums their gradients need.

All overlap functions of a network are rows of one matrix A (M, C, L'): F²(d) = A Φ̂(d). The channels C run
over the streams; within a stream over its modules, the layers, and f (for k = 2, where the sum over f is
taken beforehand, over the layers alone). Column L of A holds the biases, further columns are zero.

Two implementations with one interface:

* `AllPairs`: plain matrix products over all pairs. For GPUs and for several members at once.
* `SortedPairs`: for one network on a CPU. Distances are the same both ways, so half of the pairs suffice;
  sorted by distance, neighbours in the list see the same few Gaussians, so blocks of pairs are multiplied
  with a window of A only. The rest of Φ̂ is below the resolution of the numbers.

`overlaps` and friends hand out one tensor (R, N, N, F) per stream and module, R = layers · M · B.
"""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn import functional

from geomatt.model.config import ModelConfig

Streams = list[list[Tensor]]  # [stream][module] (R, N, N, F)
BLOCK = 160  # pairs multiplied at once with one window: small enough to be narrow, large enough to be quick


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


class AllPairs:
    """Φ̂ of every pair in one array."""

    def __init__(
        self, config: ModelConfig, channels: Channels, mu: Tensor, distance: Tensor, real: Tensor
    ) -> None:
        """`mu` (M, L), `distance` and `real` (M·B, N, N)."""
        members, size = mu.shape
        self.channels, self.shape = channels, distance.shape
        # The extra columns get a far-away centre, so their functions vanish; column L becomes the mask.
        centres = functional.pad(mu, (0, channels.columns - size), value=1e6)[:, None]
        offset = distance.reshape(members, -1, 1) - centres  # (M, P, L')
        mask = real.reshape(members, -1, 1)
        exponent = config.gamma * offset.square()
        self.phi = torch.where((exponent < 40.0) & mask, torch.exp(-exponent), 0.0)
        self.slope = (-2.0 * config.gamma) * offset * self.phi
        self.phi[..., size] = mask[..., 0].to(self.phi.dtype)

    def overlaps(self, a: Tensor) -> Streams:
        """Values of the overlap functions A (M, C, L')."""
        return self._product(a, self.phi)

    def slopes(self, a: Tensor) -> Streams:
        """Their derivatives by the distance."""
        return self._product(a, self.slope)

    def collect(self, bars: Streams) -> Streams:
        """Adjoints of the overlaps, as `by_distance` and `gradient` want them."""
        return bars

    def by_distance(self, bars: Streams, slopes: Streams) -> Tensor:
        """Σ_c bar_c dF_c/dd, summed over both directions of a pair, (M·B, N, N)."""
        total = torch.zeros(self.shape, dtype=self.phi.dtype, device=self.phi.device)
        for bar, slope in zip(_flat(bars), _flat(slopes), strict=True):
            total = total + (bar * slope).view(self.channels.layers, *self.shape, -1).sum((0, -1))
        return total + total.mT

    def tangents(self, slopes: Streams, d_dot: Tensor) -> Streams:
        """Derivatives of the overlaps along a change of the distances (M·B, N, N)."""
        layers = self.channels.layers
        return [
            [(d_dot[..., None] * x.view(layers, *self.shape, -1)).flatten(0, 1) for x in stream]
            for stream in slopes
        ]

    def gradient(self, hats: Streams, bars: Streams, d_dot: Tensor) -> Tensor:
        """Σ_pairs hat Φ̂ − bar dΦ̂/dt, the gradient by A, (M, C, L')."""
        phi_dot = d_dot.reshape(*self.phi.shape[:2], 1) * self.slope
        parts = []
        for hat, bar in zip(_flat(hats), _flat(bars), strict=True):
            shape = (self.channels.layers, *self.phi.shape[:2], hat.shape[-1])
            for h, b in zip(hat.view(shape), bar.view(shape), strict=True):
                parts.append(torch.baddbmm(h.mT @ self.phi, b.mT, phi_dot, alpha=-1.0))
        return torch.cat(parts, 1)

    def _product(self, a: Tensor, phi: Tensor) -> Streams:
        layers, atoms = self.channels.layers, self.shape[-1]
        result = []
        for start, modules, width in self.channels.streams:
            groups = a[:, start : start + modules * layers * width].unflatten(1, (modules * layers, width))
            if len(a) == 1:
                x = torch.bmm(phi.expand(modules * layers, -1, -1), groups[0].mT)  # (groups, P, F)
            else:
                x = torch.stack([torch.bmm(phi, g.mT).flatten(0, 1) for g in groups.unbind(1)])
            result.append([m.view(-1, atoms, atoms, width) for m in x.chunk(modules)])
        return result


class SortedPairs:
    """Half of the pairs, sorted by distance: H pairs of real atoms with i ≤ j."""

    def __init__(
        self, config: ModelConfig, channels: Channels, mu: Tensor, distance: Tensor, real: Tensor
    ) -> None:
        """`mu` (1, L), `distance` and `real` (B, N, N)."""
        self.channels, self.shape, self.size = channels, distance.shape, mu.shape[1]
        batch, atoms = distance.shape[:2]
        upper, lower, place = _half(atoms)
        flat = distance.reshape(batch, -1)
        half = torch.where(real.reshape(batch, -1)[:, upper], flat[:, upper], math.inf).flatten()
        ascending, order = half.sort()
        self.count = int(torch.isfinite(ascending).sum())  # H; pairs with padding come last
        order, self.d = order[: self.count], ascending[: self.count]
        where = torch.arange(batch)[:, None] * (atoms * atoms)
        self.ij = (where + upper).flatten()[order]  # (H,), place of a pair among all B·N·N ...
        self.ji = (where + lower).flatten()[order]  # ... and of its other direction
        rank = torch.full((batch * len(upper),), self.count)  # padding points to a row of zeros
        rank[order] = torch.arange(self.count)
        self.rank = rank.view(batch, -1)[:, place].flatten()  # (B·N·N,), place of any pair in the list
        # A pair counts in both directions, but the diagonal only once.
        self.weight = torch.where(self.ij == self.ji, 0.5, 1.0).to(self.d.dtype)
        self.blocks = self._windows(config.gamma, mu[0])

    def _windows(self, gamma: float, mu: Tensor) -> list[tuple[slice, slice, Tensor, Tensor]]:
        """Rows, columns, Φ̂ and its slope for each block of pairs."""
        reach = math.sqrt(min(40.0, -math.log(torch.finfo(mu.dtype).eps / 100)) / gamma)
        starts = list(range(0, self.count, BLOCK))
        ends = [min(start + BLOCK, self.count) for start in starts]
        first = torch.searchsorted(mu, self.d[starts] - reach).tolist()
        last = torch.searchsorted(mu, self.d[[end - 1 for end in ends]] + reach).tolist()
        blocks = []
        for start, end, low, high in zip(starts, ends, first, last, strict=True):
            offset = self.d[start:end, None] - mu[low:high]
            phi = torch.exp(-gamma * offset.square())
            blocks.append((slice(start, end), slice(low, high), phi, (-2.0 * gamma) * offset * phi))
        return blocks

    def overlaps(self, a: Tensor) -> Streams:
        """Values of the overlap functions A (1, C, L')."""
        table, bias = a[0].mT, a[0, :, self.size]
        half = self._list(a)
        for rows, window, phi, _ in self.blocks:
            torch.addmm(bias, phi, table[window], out=half[rows])
        return self._spread(half)

    def slopes(self, a: Tensor) -> Tensor:
        """Their derivatives by the distance, (H + 1, C)."""
        table = a[0].mT
        half = self._list(a)
        for rows, window, _, slope in self.blocks:
            torch.mm(slope, table[window], out=half[rows])
        return half

    def collect(self, bars: Streams) -> Tensor:
        """Adjoints of the overlaps summed over both directions of a pair, (H, C)."""
        pairs = len(self.rank)
        rows = [bar.view(self.channels.layers, pairs, -1).transpose(0, 1).flatten(1) for bar in _flat(bars)]
        full = torch.cat(rows, 1)  # (B·N·N, C)
        return full.index_select(0, self.ij).add_(full.index_select(0, self.ji))

    def by_distance(self, bars: Tensor, slopes: Tensor) -> Tensor:
        """Σ_c bar_c dF_c/dd, summed over both directions of a pair, (B, N, N)."""
        half = self.d.new_zeros(self.count + 1)
        torch.linalg.vecdot(bars, slopes[:-1], out=half[:-1])
        return half[self.rank].view(self.shape)

    def tangents(self, slopes: Tensor, d_dot: Tensor) -> Streams:
        """Derivatives of the overlaps along a change of the distances (B, N, N)."""
        half = self._list(slopes)
        torch.mul(slopes[:-1], d_dot.reshape(-1)[self.ij, None], out=half[:-1])
        return self._spread(half)

    def gradient(self, hats: Streams, bars: Tensor, d_dot: Tensor) -> Tensor:
        """Σ_pairs hat Φ̂ − bar dΦ̂/dt, the gradient by A, (1, C, L')."""
        both = self.collect(hats).mul_(self.weight[:, None])
        speed = d_dot.reshape(-1, 1)[self.ij]  # zero on the diagonal
        result = both.new_zeros(self.channels.columns, self.channels.count)
        for rows, window, phi, slope in self.blocks:
            target = result[window]
            target.addmm_(phi.mT, both[rows])
            target.addmm_((slope * speed[rows]).mT, bars[rows], alpha=-1.0)
        result[self.size] = both.sum(0)
        return result.mT[None]

    def _list(self, like: Tensor) -> Tensor:
        """Room for a value per pair and channel, and a last row of zeros for padding to point to."""
        half = like.new_empty(self.count + 1, self.channels.count)
        half[-1] = 0.0
        return half

    def _spread(self, half: Tensor) -> Streams:
        """From the list (H + 1, C), its last row zero, to matrices over all pairs."""
        layers, atoms = self.channels.layers, self.shape[-1]
        full = half.index_select(0, self.rank)  # (B·N·N, C)
        result = []
        for start, modules, width in self.channels.streams:
            part = full[:, start : start + modules * layers * width].unflatten(1, (modules, layers, width))
            part = part.permute(1, 2, 0, 3).contiguous()
            result.append([module.view(-1, atoms, atoms, width) for module in part])
        return result


@lru_cache(maxsize=64)
def _half(atoms: int) -> tuple[Tensor, Tensor, Tensor]:
    """Places in an N×N matrix of the pairs i ≤ j and of their transposes, and each element's pair."""
    i, j = torch.triu_indices(atoms, atoms)
    place = torch.empty(atoms, atoms, dtype=torch.int64)
    place[i, j] = place[j, i] = torch.arange(len(i))
    return i * atoms + j, j * atoms + i, place.flatten()


def _flat(streams: Streams) -> list[Tensor]:
    return [module for stream in streams for module in stream]
