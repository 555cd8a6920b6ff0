"""Pair states with one part of the network changed, for `geomatt reproduce ablation`.

Symbols are those of the network they derive from: states X of pairs, factors A and B, their product P.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from geomatt.data import Batch
from geomatt.errors import GeomAttError
from geomatt.model import Network, network_class, register
from geomatt.model.pair_states import Round

PairStates: Any = network_class("pair")
FARTHEST = 6.0  # Å, the last centre of `Gaussians`


class NormalElements(PairStates):
    """g and h begin normal in place of near one, and K with unit gain. All engines serve it."""

    kind = "pair-normal-elements"

    @torch.no_grad()
    def reset_parameters(self) -> None:
        super().reset_parameters()
        nn.init.normal_(self.g)
        nn.init.normal_(self.h)
        nn.init.orthogonal_(self.K)


class Changed(PairStates):
    """Pair states for molecules whose rounds can be changed piece by piece.

    Differentiated automatically: faster engines know the equations of the unchanged network only.
    """

    kind = "pair-changed"
    engine, engines = Network.engine, Network.engines
    optional, bounds = Network.optional, Network.bounds

    def graph(self, batch: Batch) -> Any:
        raise GeomAttError(f"A {self.kind} network is for molecules: set pbc to False.")

    def run(self, batch: Batch, switch: Tensor | None = None) -> Iterator[Round]:
        weights, u = self.pair_weights(batch, switch), self.envelopes(batch)
        x = u * self.initial_states(batch) * weights[0]
        for t in range(self.config.rounds):
            factors = (x @ self.W_AB[t].T).split(self.config.channels, -1)  # (B, N, N, C) each
            products = [self.scale(batch) * p for p in self.products(*factors)]
            hidden = self.hidden(torch.cat([x, *products], -1), t)  # (B, N, N, 2C)
            x = (x + u * (hidden @ self.W2[t].T + self.b2[t])) * weights[t + 1]
            yield Round(factors[0], factors[1], hidden, x)

    def products(self, *factors: Tensor) -> list[Tensor]:
        """The inputs of the update beside X, without the factor s."""
        return [torch.einsum("bimc,bmjc->bijc", *factors)]

    def hidden(self, inputs: Tensor, t: int) -> Tensor:
        """The hidden layer of the update in round t."""
        return functional.silu(inputs @ self.W1[t].T + self.b1[t])


class Gaussians(Changed):
    """Basis functions with centres even in the distance, from 0 to 6 Å, in place of exp(−d)."""

    kind = "pair-gaussians"

    def __init__(self, config: Any, dtype: torch.dtype = torch.float32) -> None:
        super().__init__(config, dtype)
        self.mu: Tensor  # a buffer of the network
        self.mu.copy_(torch.linspace(0.0, FARTHEST, config.functions))

    def basis(self, distances: Tensor) -> Tensor:
        width = 2.0 * FARTHEST / self.config.functions  # neighbours overlap as those of the network do
        return torch.exp(-(((distances[..., None] - self.mu) / width) ** 2))


class Symmetric(Changed):
    """X and P are made symmetric in i and j: (X + Xᵀ) / √2."""

    kind = "pair-symmetric"

    def initial_states(self, batch: Batch) -> Tensor:
        return _symmetric(super().initial_states(batch))

    def products(self, *factors: Tensor) -> list[Tensor]:
        return [_symmetric(p) for p in super().products(*factors)]


class BothProducts(Changed):
    """The update is also given Σ_m A'_im ∘ B'_jm, with factors A' and B' of its own."""

    kind = "pair-both-products"

    def __init__(self, config: Any, dtype: torch.dtype = torch.float32) -> None:
        super().__init__(config, dtype)
        rounds, width = config.rounds, config.channels
        self.W_AB = nn.Parameter(torch.empty(rounds, 4 * width, width))  # W_A, W_B, W_A', W_B'
        self.W1 = nn.Parameter(torch.empty(rounds, 2 * width, 3 * width))
        self.reset_parameters()
        self.to(dtype)

    @torch.no_grad()
    def reset_parameters(self) -> None:
        super().reset_parameters()
        _orthogonal(self.W_AB, self.config.channels)

    def products(self, *factors: Tensor) -> list[Tensor]:
        return [*super().products(*factors[:2]), torch.einsum("bimc,bjmc->bijc", *factors[2:])]


class Gated(Changed):
    """The hidden layer is silu(h₁) ∘ h₂, from a W₁ with twice as many rows."""

    kind = "pair-gated"

    def __init__(self, config: Any, dtype: torch.dtype = torch.float32) -> None:
        super().__init__(config, dtype)
        rounds, width = config.rounds, config.channels
        self.W1 = nn.Parameter(torch.empty(rounds, 4 * width, 2 * width))
        self.b1 = nn.Parameter(torch.empty(rounds, 4 * width))
        self.reset_parameters()
        self.to(dtype)

    @torch.no_grad()
    def reset_parameters(self) -> None:
        super().reset_parameters()
        _orthogonal(self.W1, 2 * self.config.channels)

    def hidden(self, inputs: Tensor, t: int) -> Tensor:
        first, second = (inputs @ self.W1[t].T + self.b1[t]).chunk(2, -1)
        return functional.silu(first) * second


def _symmetric(states: Tensor) -> Tensor:
    """(X + Xᵀ) / √2 of states (B, N, N, C)."""
    return (states + states.transpose(1, 2)) * 0.5**0.5


def _orthogonal(weights: Tensor, rows: int) -> None:
    """Every so many rows of the weights (T, …, …) of a round an orthogonal matrix of its own."""
    for one in weights:
        for part in one.split(rows):
            nn.init.orthogonal_(part)


# By the names of the variations.
NETWORKS = {
    "normal-elements": NormalElements,
    "gaussians": Gaussians,
    "symmetric": Symmetric,
    "both-products": BothProducts,
    "gated": Gated,
}
for _network in NETWORKS.values():
    register(_network, listed=False)
