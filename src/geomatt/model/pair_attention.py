"""α of all streams from the distances between atoms, and the way back: what the sweeps of `dense` ask for.

One of these is made for every batch. Its methods are called in the order in which they stand here, each at
most once, and keep for the next what it needs. `ChainedAttention` does it with torch's products, wherever
torch runs; `native.NativeAttention` in compiled code.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor

from geomatt.model import chain
from geomatt.model.pair_functions import PairFunctions, Streams


class PairAttention(ABC):
    """α and its derivatives, [stream] (R, N, N) with R = layers · M · B and without the factor Δd / N_S."""

    @abstractmethod
    def alpha(self) -> list[Tensor]:
        """α."""

    @abstractmethod
    def by_distance(self, alpha_bar: list[Tensor]) -> Tensor:
        """∂E/∂d from ∂E/∂α, summed over both directions of a pair, (M·B, N, N)."""

    @abstractmethod
    def alpha_dot(self, d_dot: Tensor) -> list[Tensor]:
        """The derivative of α along a change of the distances (M·B, N, N)."""

    @abstractmethod
    def gradient(self, alpha_hat: list[Tensor]) -> Tensor:
        """The loss's gradient by A, the matrix of the overlap functions, (M, C, L')."""


class ChainedAttention(PairAttention):
    """The overlap functions of all pairs, then products of them, stream by stream."""

    def __init__(self, pairs: PairFunctions) -> None:
        self.pairs = pairs
        self.chains: list[chain.Chain] = []
        self.dots: list[chain.Chain] = []
        self.bars: Streams = []
        self.suffixes: list[list[Tensor]] = []

    def alpha(self) -> list[Tensor]:
        found = [chain.attention(x) for x in self.pairs.overlaps()]
        self.chains = [c for _, c in found]
        return [alpha for alpha, _ in found]

    def by_distance(self, alpha_bar: list[Tensor]) -> Tensor:
        self.alpha_bar = alpha_bar
        found = [chain.adjoints(c, bar) for c, bar in zip(self.chains, alpha_bar, strict=True)]
        self.bars, self.suffixes = [bars for bars, _ in found], [suffix for _, suffix in found]
        return self.pairs.by_distance(self.bars)

    def alpha_dot(self, d_dot: Tensor) -> list[Tensor]:
        self.d_dot = d_dot
        tangents = self.pairs.tangents(d_dot)
        found = [chain.attention_dot(c, x_dot) for c, x_dot in zip(self.chains, tangents, strict=True)]
        self.dots = [dot for _, dot in found]
        return [alpha_dot for alpha_dot, _ in found]

    def gradient(self, alpha_hat: list[Tensor]) -> Tensor:
        hats = (
            chain.hats(c, self.dots[s], self.suffixes[s], self.alpha_bar[s], alpha_hat[s])
            for s, c in enumerate(self.chains)
        )
        return self.pairs.gradient(hats, self.bars, self.d_dot)
