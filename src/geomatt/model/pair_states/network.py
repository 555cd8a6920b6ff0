"""The pair-states network. Atoms i, j, m at distances d_ij with elements z_i:

    x_ij = exp(−d_ij / 1 Å)                                        decays with distance, 1 at d = 0
    φ_l(d) = exp(−β (x − μ_l)²)                                    L basis functions, centres even in x
    X_ij = u_ij (K φ(d_ij)) ∘ g(z_i) ∘ h(z_j)   (i ≠ j)            initial state of a pair, C numbers
    X_ii = e(z_i) + Q q(z_i) + S w(z_i)                            an atom is the pair with itself
    T rounds:
        A = W_A X,  B = W_B X                                      no biases: a state of zero has no part
        P_ij = s Σ_m A_im ∘ B_mj                                   sum over all atoms, i and j included
        H_ij = c(W₁ [X_ij, P_ij] + b₁)                             hidden width 2C; c: see below
        X_ij ← X_ij + u_ij (W₂ silu(H_ij) + b₂)
    E_i = MLP([X_ii, s Σ_{j≠i} X_ij])                              2C → 2C → C → 1, silu after c

s = N^(−1/2) with N the atoms of the structure, or a constant. u_ij = 1, or with a radius R an envelope that
is zero from R on (`envelope`) and 1 for i = j: then states of far pairs are exactly zero, s is a constant,
and structures may be periodic (`sparse`: states belong to neighbours and their images). The product is that
of matrices over atoms, one for each channel: T rounds describe terms of up to 2^T + 1 bodies.

c(h) = h while the network is trained. Afterwards hidden units get a ceiling: above the largest value that the
training frames show they saturate (`ceiling`), so that states and energy are bounded outside the data.

Q and S, total charge and number of unpaired electrons, are inputs where the data has them (`electrons`).

Shapes: B structures, N atoms (padded), L functions, C channels. Padding: states of pairs with a padded atom
are zero, so they add nothing to any sum. `dense`, `cpu`, `gpu` and `sparse` compute the same numbers faster.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from geomatt.data.batch import Batch
from geomatt.errors import GeomAttError
from geomatt.model.interface import AttentionPaths, AttentionRecord, Engine, Network
from geomatt.model.pair_states.ceiling import (
    ceiling_of,
    margin_of,
    of_readout,
    of_round,
    saturated,
    units,
)
from geomatt.model.pair_states.config import DECAY, FARTHEST, NEAREST, PairStatesConfig
from geomatt.model.pair_states.envelope import envelope
from geomatt.model.pair_states.sparse.graph import Graphs, PairGraph, joined
from geomatt.model.pair_states.sparse.rounds import Space
from geomatt.model.pair_states.sparse.states import (
    sparse_atomic_energies,
    sparse_attention,
    sparse_features,
    sparse_rounds,
)
from geomatt.model.pairs import pair_distances, pair_switch


@dataclass
class Round:
    """One round: the factors of its product, and the states it leads to."""

    a: Tensor  # (B, N, N, C)
    b: Tensor  # (B, N, N, C)
    hidden: Tensor  # H, (B, N, N, 2C)
    states: Tensor  # (B, N, N, C)


class PairStates(Network):
    """Atomic energies (normalised units) from the states of all pairs of atoms."""

    kind: ClassVar[str] = "pair-states"
    Config: ClassVar = PairStatesConfig
    recipe: ClassVar[str] = "pair"
    periodic_hint: ClassVar[str] = "Train with a `radius` for periodic structures. "
    small: ClassVar = {"channels": 8, "rounds": 2, "functions": 8}
    parts: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "initial": ("g", "h", "e", "K"),
        "rounds": ("W_AB", "W1", "b1", "W2", "b2"),
        "readout": ("readout",),
    }
    per_element: ClassVar[tuple[str, ...]] = ("g", "h", "e")
    matrices: ClassVar[tuple[str, ...]] = ("W_AB", "W1", "W2", "readout.0.weight", "readout.2.weight")
    optional: ClassVar[tuple[str, ...]] = ("ceiling",)

    config: PairStatesConfig

    def __init__(self, config: PairStatesConfig, dtype: torch.dtype = torch.float32) -> None:
        super().__init__(config, dtype)
        elements, width, rounds = len(config.elements), config.channels, config.rounds
        self.mu: Tensor
        self.register_buffer("mu", torch.linspace(FARTHEST, NEAREST, config.functions, dtype=torch.float64))
        self.ceiling: Tensor | None  # (2, U)
        self.register_buffer("ceiling", None)
        self.g = nn.Parameter(torch.empty(elements, width))
        self.h = nn.Parameter(torch.empty(elements, width))
        self.e = nn.Parameter(torch.empty(elements, width))
        if config.electrons:
            self.electrons = nn.Parameter(torch.zeros(elements, 2, width))  # q and w
            self.per_element = (*self.per_element, "electrons")  # type: ignore[misc]
        self.K = nn.Parameter(torch.empty(width, config.functions))
        self.W_AB = nn.Parameter(torch.empty(rounds, 2 * width, width))  # W_A above W_B
        self.W1 = nn.Parameter(torch.empty(rounds, 2 * width, 2 * width))
        self.b1 = nn.Parameter(torch.empty(rounds, 2 * width))
        self.W2 = nn.Parameter(torch.empty(rounds, width, 2 * width))
        self.b2 = nn.Parameter(torch.empty(rounds, width))
        self.readout = nn.Sequential(
            nn.Linear(2 * width, 2 * width),
            nn.SiLU(),
            nn.Linear(2 * width, width),
            nn.SiLU(),
            nn.Linear(width, 1),
        )
        self.reset_parameters()
        self.to(dtype)

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Orthogonal weights of unit gain (K: 2), zero biases, normal e, and g and h close to one.

        So all elements begin with nearly the same functions of the distance, and training finds what tells
        them apart. Normal g and h give every pair of elements functions of its own: such networks fit as
        well and are worse on other frames (`normal-elements` of `geomatt reproduce ablation`).
        """
        nn.init.normal_(self.e)
        for table in (self.g, self.h):
            nn.init.normal_(table, mean=1.0, std=0.2)
        nn.init.orthogonal_(self.K, gain=2.0)
        for t in range(self.config.rounds):
            for half in self.W_AB[t].chunk(2):
                nn.init.orthogonal_(half)
            nn.init.orthogonal_(self.W1[t])
            nn.init.orthogonal_(self.W2[t])
        for layer in self.readout:
            if isinstance(layer, nn.Linear):
                nn.init.orthogonal_(layer.weight)
                nn.init.zeros_(layer.bias)
        nn.init.zeros_(self.b1)
        nn.init.zeros_(self.b2)

    def atomic_energies(self, batch: Batch, switch: Tensor | None = None) -> Tensor:
        """Atomic energies (B, N); zero for padding.

        `switch` multiplies states of pairs i ≠ j: entry 0 the initial states, entry t those after round t.
        Any shape that broadcasts to (T + 1, B, N, N). A factor of one changes nothing, zero removes a pair.
        """
        if batch.cell is not None:
            return self.forward(batch, switch, self.graph(batch))
        for one in self.run(batch, switch):
            states = one.states
        return self.readout_layers(self.features(batch, states))[-1].squeeze(-1) * batch.mask

    def features(self, batch: Batch, states: Tensor) -> Tensor:
        """What the readout of an atom sees of the states, (B, N, 2C)."""
        own, between = self_pairs(batch), ~self_pairs(batch)
        return torch.cat([(states * own).sum(2), self.scale(batch)[..., 0] * (states * between).sum(2)], -1)

    def readout_layers(self, features: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The hidden units before silu (..., 2C) and (..., C), and the energy (..., 1)."""
        first = self._below(self.readout[0](features), 0)
        second = self._below(self.readout[2](functional.silu(first)), 1)
        return first, second, self.readout[4](functional.silu(second))

    def _below(self, h: Tensor, layer: int) -> Tensor:
        if self.ceiling is None:
            return h
        return saturated(h, of_readout(self.ceiling, layer, self.config.channels))

    def forward(
        self,
        batch: Batch,
        switch: Tensor | None = None,
        graph: PairGraph | None = None,
        space: Space | None = None,
    ) -> Tensor:
        """With a graph, over the neighbours in it; with a `space` as in `sparse_atomic_energies`."""
        if graph is None:
            return self.atomic_energies(batch, switch)
        return sparse_atomic_energies(self, batch, graph, switch, space)

    def graph(self, batch: Batch) -> PairGraph:
        """Neighbours in a batch; all pairs without a radius."""
        if batch.cell is not None and not self.config.radius:
            raise GeomAttError(
                f"In this model all pairs of atoms interact, at any distance. {self.periodic_hint}"
                "Set pbc to False for a molecule."
            )
        return joined(Graphs(self.config.radius).of(batch), batch.numbers.shape[-1])

    def make_room(self, names: Collection[str]) -> None:
        shape = (2, units(self.config.rounds, self.config.channels))
        self.ceiling = self.b1.new_zeros(shape).detach() if "ceiling" in names else None

    @torch.no_grad()
    def bounds(
        self, batches: Iterable[Batch], base: Mapping[str, Tensor] = MappingProxyType({})
    ) -> dict[str, Tensor]:
        """The ceiling of the hidden units, from their values in these structures; in rounds that of the base
        where it is higher."""
        kept, self.ceiling = self.ceiling, None
        frames, ranges = 0, []
        try:
            for batch in batches:
                frames += len(batch.numbers)
                ranges.append(self._ranges(batch))
        finally:
            self.ceiling = kept
        if not ranges:
            return {}
        lowest, highest = (torch.stack(ends) for ends in zip(*ranges, strict=True))
        ceiling = ceiling_of(lowest.amin(0), highest.amax(0), margin_of(self.config.radius, frames))
        if "ceiling" in base:
            rounds = ceiling[:, : -3 * self.config.channels]
            rounds.copy_(torch.maximum(rounds, base["ceiling"].to(rounds)[:, : rounds.shape[1]]))
        return {"ceiling": ceiling}

    def _ranges(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The lowest and highest value of each hidden unit, (U,)."""
        lowest, highest = zip(*((h.amin(0), h.amax(0)) for h in self._hidden(batch)), strict=True)
        return torch.cat(lowest), torch.cat(highest)

    def _hidden(self, batch: Batch) -> Iterator[Tensor]:
        """Units before silu: of every round (pairs, 2C), and of the readout (atoms, 2C) and (atoms, C)."""
        if self.config.radius:
            graph = self.graph(batch)
            for _, _, hidden, states in sparse_rounds(self, batch, graph):  # noqa: B007 - used after
                yield hidden
            features = sparse_features(self, batch, graph, states)
        else:
            real = batch.mask[:, :, None] & batch.mask[:, None]
            for one in self.run(batch):
                yield one.hidden[real]
            features = self.features(batch, one.states)[batch.mask]
        yield from self.readout_layers(features)[:2]

    @property
    def radius(self) -> float | None:
        return self.config.radius or None

    @property
    def uses_electrons(self) -> bool:
        return self.config.electrons

    @property
    def switch_layers(self) -> int:
        return self.config.rounds + 1

    def attention(self, batch: Batch) -> list[AttentionRecord[Tensor]]:
        """Of every round |Σ_c A_ij,c B_ji,c|, the path i → j → i, averaged with j → i → j."""
        if batch.cell is not None:
            return sparse_attention(self, batch, self.graph(batch))
        records = []
        for t, one in enumerate(self.run(batch), start=1):
            path = (one.a * one.b.transpose(1, 2)).sum(-1).abs()  # (B, N, N)
            symmetric = 0.5 * (path + path.transpose(1, 2))
            records.append(AttentionRecord(2, t - 1, 0, symmetric, name=f"round {t}"))
        return records

    def paths(
        self, batch: Batch, record: AttentionRecord[Tensor], pairs: Sequence[tuple[int, int]], count: int
    ) -> AttentionPaths | None:
        """Paths i – m – j by the size of what they add to the product, s ‖A_im ∘ B_mj‖; none in cells."""
        if batch.cell is not None:
            return None
        one = next(one for t, one in enumerate(self.run(batch)) if t == record.layer)
        i, j = torch.tensor(pairs, device=one.a.device).T
        terms = one.a[0, i] * one.b[0, :, j].transpose(0, 1)  # (P, N, C), over m
        top = (self.scale(batch)[0, 0] * terms.norm(dim=-1)).topk(min(count, terms.shape[1]))
        ends = [index[:, None].expand_as(top.indices) for index in (i, j)]
        atoms = torch.stack([ends[0], top.indices, ends[1]], -1)  # (P, K, 3)
        note = "The size of what each path i–m–j adds to the state of the pair in this round."
        return AttentionPaths(atoms, top.values, note)

    def engine(self, name: str = "auto") -> Engine:
        if name in ("auto", "float32"):
            from geomatt.model.pair_states.engine import PairStatesEngine

            return PairStatesEngine(self, tf32=name == "auto")
        if name == "dense" and not self.config.electrons:
            from geomatt.model.pair_states.dense.engine import DenseEngine

            return DenseEngine(self)
        if name == "sparse":
            from geomatt.model.pair_states.sparse.engine import SparseEngine

            return SparseEngine(self)
        return super().engine("autograd" if name == "dense" else name)

    @classmethod
    def engines(cls) -> tuple[str, ...]:
        return (*super().engines(), "float32", "dense", "sparse")

    def run(self, batch: Batch, switch: Tensor | None = None) -> Iterator[Round]:
        """All rounds, one after the other."""
        weights = self.pair_weights(batch, switch)
        u = self.envelopes(batch)
        x = u * self.initial_states(batch) * weights[0]
        for t in range(self.config.rounds):
            a, b = (x @ self.W_AB[t].T).chunk(2, -1)  # (B, N, N, C)
            p = self.scale(batch) * torch.einsum("bimc,bmjc->bijc", a, b)
            h = torch.cat([x, p], -1) @ self.W1[t].T + self.b1[t]  # (B, N, N, 2C)
            if self.ceiling is not None:
                h = saturated(h, of_round(self.ceiling, t, self.config.channels))
            x = (x + u * (functional.silu(h) @ self.W2[t].T + self.b2[t])) * weights[t + 1]
            yield Round(a, b, h, x)

    def initial_states(self, batch: Batch) -> Tensor:
        """X before the first round, without the envelope, (B, N, N, C)."""
        one_hot = (batch.numbers[..., None] == self.elements).to(self.g.dtype)  # (B, N, elements)
        g, h = one_hot @ self.g, one_hot @ self.h  # (B, N, C)
        e = self.self_states(one_hot, batch)
        functions = self.basis(pair_distances(batch.positions)) @ self.K.T  # (B, N, N, C)
        return torch.where(self_pairs(batch), e[:, :, None], functions * g[:, :, None] * h[:, None])

    def self_states(self, one_hot: Tensor, batch: Batch) -> Tensor:
        """X_ii before the first round (B, N, C), from the elements of atoms (B, N, elements)."""
        found = one_hot @ self.e
        if not self.config.electrons:
            return found
        for k, value in enumerate((batch.charge, batch.spin)):
            if value is not None:
                found = found + value.to(found)[:, None, None] * (one_hot @ self.electrons[:, k])
        return found

    def basis(self, distances: Tensor) -> Tensor:
        """φ of distances (...) as (..., L).

        Values below exp(−40) ≈ 4e−18 are set to zero: they do not matter, and products with numbers that are
        smaller still would be denormal and slow.
        """
        x = torch.exp(-distances / DECAY)
        exponent = self.config.sharpness * (x[..., None] - self.mu) ** 2
        return torch.where(exponent < 40.0, torch.exp(-exponent), 0.0)

    def envelopes(self, batch: Batch) -> Tensor:
        """u, (B, N, N, 1); one for i = j, whose distance is zero."""
        distances = pair_distances(batch.positions)[..., None]
        return envelope(distances, self.config.radius) if self.config.radius else torch.ones_like(distances)

    def scale(self, batch: Batch) -> Tensor:
        """s, the factor on sums over atoms, as (B, 1, 1, 1)."""
        atoms = batch.mask.sum(-1)[:, None, None, None].to(self.g.dtype)
        if self.config.normalisation == "constant":
            atoms = torch.full_like(atoms, self.config.typical_atoms)
        return atoms.clamp(min=1.0) ** -0.5

    def pair_weights(self, batch: Batch, switch: Tensor | None) -> Tensor:
        """The factors of the initial states and of those after each round, (T + 1, B, N, N, 1).

        Zero for padding, else one, or `switch` if it is given and the atoms of the pair are two.
        """
        mask = batch.mask
        real = (mask[:, :, None] & mask[:, None])[..., None].to(self.g.dtype)
        if switch is not None:
            return pair_switch(switch, self.switch_layers, batch)[..., None].to(real) * real
        return real.expand(self.switch_layers, *real.shape)


def self_pairs(batch: Batch) -> Tensor:
    """Where i = j, (N, N, 1)."""
    return torch.eye(batch.numbers.shape[-1], dtype=torch.bool, device=batch.numbers.device)[..., None]
