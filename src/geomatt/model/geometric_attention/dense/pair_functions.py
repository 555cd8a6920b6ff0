"""Overlap functions of all pairs of atoms, with their derivatives.

Functions, derivatives and adjoints of a stream are a tensor (R, N, N, F) for each of its modules,
R = layers · M · B.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from geomatt.model.geometric_attention.folding import Folded, Folding
from geomatt.model.geometric_attention.network import EXPONENT_LIMIT


class PairFunctions:
    """The overlap functions of all pairs. Streams come one by one, to be used while they are in the cache."""

    def __init__(
        self,
        folding: Folding,
        folded: Folded,
        distance: Tensor,  # (M·B, N, N)
        real: Tensor,  # (M·B, N, N), True for pairs of real atoms
    ) -> None:
        mu, gamma = folded.parameters["mu"], folding.config.gamma
        members, size = mu.shape
        self.channels, self.shape, self.a = folding.channels, distance.shape, folded.functions
        # The extra columns get a far-away centre, so their functions vanish; column L becomes the mask.
        centres = functional.pad(mu, (0, self.channels.columns - size), value=1e6)[:, None]
        offset = distance.reshape(members, -1, 1) - centres  # (M, P, L')
        mask = real.reshape(members, -1, 1)
        exponent = gamma * offset.square()
        self.phi = torch.where((exponent < EXPONENT_LIMIT) & mask, torch.exp(-exponent), 0.0)
        self.slope = (-2.0 * gamma) * offset * self.phi
        self.phi[..., size] = mask[..., 0].to(self.phi.dtype)

    def overlaps(self) -> Iterator[Sequence[Tensor]]:
        """Values of the overlap functions: the modules of every stream."""
        return self._product(self.phi)

    def by_distance(self, bars: Sequence[Sequence[Tensor]]) -> Tensor:
        """Σ_c bar_c dF_c/dd, summed over both directions of a pair: ∂E/∂d, (M·B, N, N)."""
        parts = [
            torch.linalg.vecdot(bar, slope).view(-1, *self.shape)
            for own, slopes in zip(bars, self._product(self.slope), strict=True)
            for bar, slope in zip(own, slopes, strict=True)
        ]
        one_way = torch.cat(parts).sum(0)
        return one_way + one_way.mT

    def _product(self, phi: Tensor) -> Iterator[Sequence[Tensor]]:
        a, layers, atoms = self.a, self.channels.layers, self.shape[-1]
        for start, modules, width in self.channels.streams:
            groups = a[:, start : start + modules * layers * width].unflatten(1, (modules * layers, width))
            if len(a) == 1:
                x = torch.bmm(phi.expand(modules * layers, -1, -1), groups[0].mT)  # (groups, P, F)
            else:
                x = torch.stack([torch.bmm(phi, g.mT).flatten(0, 1) for g in groups.unbind(1)])
            yield x.view(modules, -1, atoms, atoms, width).unbind()
