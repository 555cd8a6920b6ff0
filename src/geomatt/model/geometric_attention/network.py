"""The network of Frank & Chmiela (2021), as the paper writes it.

Symbols of the paper, each named once:

    Φ̂_l(d)    basis          discretised atomic function, exp(−γ (d − μ_l)²)
    F²(i,j)    overlap        (Q Φ̂(0) + q) ∘ (K Φ̂(d_ij) + k), a vector of F_I functions of the distance
    F^(k)      chain          Σ_m F^(k−1)(i,m) ∘ F²(m,j), k − 1 overlap modules in a row
    α^(k)_ij   attention      (Δd / N_S) Σ_f F^(k)(i,j)_f, no softmax; N_S streams
    v_i        features       v_i ← v_i + Σ_j α_ij (W v_j + b)

Shapes: B structures, N atoms (padded), S streams, L basis functions, F overlap features, V atom features.
The sums run over all atoms, the atom itself included. Some details are those of the authors' code: the factor
1 / N_S (the paper prints Δd alone), the grid μ_l = 0, Δd, 2Δd, … (the paper counts l from 1), and, where the
paper is silent, own parameters for each of the k − 1 overlap modules, the width of the readout, and the
initial weights. The engines in the folders beside this file compute the same numbers faster.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from geomatt.data.batch import Batch
from geomatt.model.geometric_attention.config import GeometricAttentionConfig
from geomatt.model.geometric_attention.images import summed_basis
from geomatt.model.geometric_attention.work import GeometricAttentionWork
from geomatt.model.interface import AttentionPaths, AttentionRecord, Engine, Network
from geomatt.model.pairs import pair_distances, pair_switch
from geomatt.model.work import Work

# Φ̂ is zero where its exponent is larger: exp(−40) ≈ 4e−18 is below float64's resolution.
EXPONENT_LIMIT = 40.0

MOST_TERMS = 50_000_000  # numbers in the sum over paths of one pair


class GeometricAttention(Network):
    """Geometric attention of any orders."""

    kind = "geometric-attention"
    Config = GeometricAttentionConfig
    parts: ClassVar = {
        "readout": ("hidden.", "output."),
        "embedding": ("embedding",),
        "overlaps": ("overlaps.",),
        "interactions": ("W", "b"),
    }
    per_element = ("embedding",)
    small: ClassVar = {"features": 8, "overlap_features": 32, "layers": 2}
    periodic_hint = "Train with `bias` False for periodic structures. "
    config: GeometricAttentionConfig

    def __init__(self, config: GeometricAttentionConfig, dtype: torch.dtype = torch.float32) -> None:
        super().__init__(config, dtype)
        streams, layers, width = len(config.orders), config.layers, config.features
        self.mu: Tensor
        self.softplus_shift: Tensor
        self.register_buffer("mu", torch.arange(config.basis_size, dtype=torch.float64) * config.spacing)
        self.register_buffer("softplus_shift", torch.tensor(math.log(2.0), dtype=torch.float64))
        self.embedding = nn.Parameter(torch.empty(len(config.elements), width))
        self.overlaps = nn.ModuleList(
            OverlapFunctions(layers, order - 1, config.width(order), config.basis_size, config.bias)
            for order in config.orders
        )
        self.W = nn.Parameter(torch.empty(streams, layers, width, width))
        self.b = nn.Parameter(torch.empty(streams, layers, width))
        self.hidden = nn.Linear(streams * width, max(1, streams * width // 2))
        self.output = nn.Linear(self.hidden.out_features, 1)
        bound = 1.414 * math.sqrt(3.0 / width)
        nn.init.uniform_(self.embedding, -bound, bound)
        _linear_init(self.W, self.b, fan_in=width)
        self.to(dtype)

    def atomic_energies(self, batch: Batch, switch: Tensor | None = None) -> Tensor:
        """Atomic energies (B, N); zero for padding.

        `switch` multiplies F²(i,j) of pairs i ≠ j in all overlap modules of a layer, so that chains of every
        order lose a pair that is switched off.
        """
        factor = None if switch is None else pair_switch(switch, self.switch_layers, batch)
        return self.energies_with(batch.numbers, self._alpha(batch, factor))

    @property
    def switch_layers(self) -> int:
        return self.config.layers

    def attention(self, batch: Batch) -> list[AttentionRecord[Tensor]]:
        """One record per stream and layer; `head` counts the streams of equal order."""
        orders, alpha = self.config.orders, self._alpha(batch)
        return [
            AttentionRecord(order, layer, orders[:s].count(order), matrix)
            for s, order in enumerate(orders)
            for layer, matrix in enumerate(alpha[s])
        ]

    def _alpha(self, batch: Batch, factor: Tensor | None = None) -> list[list[Tensor]]:
        """α of every stream and layer; in cells summed over the images of j."""
        if batch.cell is not None:
            return self._chains(summed_basis(self, batch), batch.mask, factor)
        return self.coefficients(pair_distances(batch.positions), batch.mask, factor)

    def coefficients(
        self, distances: Tensor, mask: Tensor, factor: Tensor | None = None
    ) -> list[list[Tensor]]:
        """α of every stream and layer from the distances (B, N, N): alpha[stream][layer] is (B, N, N).

        `factor` (layers, B, N, N) multiplies the overlaps F²(i,j).
        """
        phi = self.basis(distances) * pair_mask(mask)[..., None]  # (B, N, N, L)
        return self._chains(phi, mask, factor)

    def _chains(self, phi: Tensor, mask: Tensor, factor: Tensor | None) -> list[list[Tensor]]:
        """α from basis functions of pairs (B, N, N, L)."""
        constant = pair_mask(mask).to(phi.dtype)  # (B, N, N), where the bias k acts
        scale = self.config.spacing / len(self.config.orders)
        return [
            [
                scale
                * self._chain_sum(overlap, layer, phi, constant, None if factor is None else factor[layer])
                for layer in range(self.config.layers)
            ]
            for overlap in self.overlaps
        ]

    def _chain_sum(
        self, overlap: nn.Module, layer: int, phi: Tensor, constant: Tensor, factor: Tensor | None
    ) -> Tensor:
        """Σ_f F^(k)(i,j)_f: the paper's recursion, the last step summed over f at once."""
        pair = self._module_overlaps(overlap, layer, phi, constant)
        if factor is not None:
            pair = [factor[..., None] * overlaps for overlaps in pair]
        chain = pair[0]
        if len(pair) == 1:
            return chain.sum(-1)
        for step in pair[1:-1]:
            chain = torch.einsum("bimf,bmjf->bijf", chain, step)
        return torch.einsum("bimf,bmjf->bij", chain, pair[-1])

    def _module_overlaps(self, overlap: nn.Module, layer: int, phi: Tensor, constant: Tensor) -> list[Tensor]:
        """F² of the k − 1 overlap modules of a stream in one layer, (B, N, N, F) each."""
        assert isinstance(overlap, OverlapFunctions)
        weight, bias = overlap.folded(self.basis_at_zero())
        return [
            phi @ weight[layer, m].T + constant[..., None] * bias[layer, m] for m in range(weight.shape[1])
        ]

    def paths(
        self, batch: Batch, record: AttentionRecord[Tensor], pairs: Sequence[tuple[int, int]], count: int
    ) -> AttentionPaths | None:
        """Terms of the sum over m, … in F^(k)(i,j), which add up to α_ij."""
        stream = [s for s, order in enumerate(self.config.orders) if order == record.order][record.head]
        between, atoms = record.order - 2, batch.numbers.shape[-1]
        if between == 0 or atoms**between * self.config.width(record.order) > MOST_TERMS:
            return None
        cells = batch.cell is not None  # paths are then summed over images
        phi = summed_basis(self, batch) if cells else self.basis(pair_distances(batch.positions))
        modules = self._module_overlaps(
            self.overlaps[stream], record.layer, phi, torch.ones_like(phi[..., 0])
        )
        scale = self.config.spacing / len(self.config.orders)
        found, values = [], []
        for i, j in pairs:
            terms = modules[0][0, i]  # (N, F), over the first atom between
            for step in modules[1:-1]:
                terms = terms[..., None, :] * step[0]  # (…, N, N, F)
            sums = scale * (terms * modules[-1][0, :, j]).sum(-1)  # (N, …), one axis per atom between
            top = sums.flatten().abs().topk(min(count, sums.numel())).indices
            # As torch.unravel_index, which imports sympy: all axes have the length N.
            digits = [top // len(sums) ** power % len(sums) for power in reversed(range(sums.dim()))]
            inner = torch.stack(digits, -1)  # (K, k − 2)
            ends = torch.tensor([i, j], device=top.device).expand(len(top), 2)
            found.append(torch.cat([ends[:, :1], inner, ends[:, 1:]], -1))
            values.append(sums.flatten()[top])
        note = "Each path is a term of the sum that gives the coefficient."
        return AttentionPaths(torch.stack(found), torch.stack(values), note)

    def energies_with(self, numbers: Tensor, attention: list[list[Tensor]]) -> Tensor:
        """Atomic energies (B, N) with given attention coefficients."""
        return self.readout(numbers, [self._stream(numbers, s, alpha) for s, alpha in enumerate(attention)])

    def _stream(self, numbers: Tensor, stream: int, attention: list[Tensor]) -> Tensor:
        v = self.embed(numbers)  # (B, N, V)
        for layer, alpha in enumerate(attention):
            v = v + alpha @ (v @ self.W[stream, layer].T + self.b[stream, layer])
        return v

    def embed(self, numbers: Tensor) -> Tensor:
        """Feature vectors of the elements (B, N, V); zeros for padding."""
        one_hot = numbers[..., None] == self.elements
        return one_hot.to(self.embedding.dtype) @ self.embedding

    def readout(self, numbers: Tensor, features: list[Tensor]) -> Tensor:
        """Atomic energies (B, N) from the features of all streams; zero for padding."""
        hidden = functional.softplus(self.hidden(torch.cat(features, -1))) - self.softplus_shift
        return self.output(hidden).squeeze(-1) * (numbers > 0)

    def basis(self, distances: Tensor) -> Tensor:
        """Φ̂ of the distances (...) as (..., L).

        Values beyond EXPONENT_LIMIT are set to zero: they would decay into denormal numbers, which make
        matrix products on some processors ten times slower.
        """
        exponent = self.config.gamma * (distances[..., None] - self.mu) ** 2
        return torch.where(exponent < EXPONENT_LIMIT, torch.exp(-exponent), 0.0)

    def basis_at_zero(self) -> Tensor:
        """Φ̂(0), (L,)."""
        return self.basis(self.mu.new_zeros(()))

    @property
    def radius(self) -> float | None:
        """Where the last basis function vanishes; None with a bias, which acts at any distance."""
        if self.config.bias:
            return None
        return (self.config.basis_size - 1) * self.config.spacing + math.sqrt(
            EXPONENT_LIMIT / self.config.gamma
        )

    @classmethod
    def engines(cls) -> tuple[str, ...]:
        return ("auto", "autograd", "dense", "pairs", "sparse")

    def engine(self, name: str = "auto") -> Engine:
        if name == "autograd" or name not in self.engines():
            return super().engine(name)  # which refuses unknown names
        from geomatt.model.geometric_attention.engine import GeometricAttentionEngine

        return GeometricAttentionEngine(self.config, name)

    def evaluation_work(self, atoms: int, batch: int = 1, pairs: float | None = None) -> Work | None:
        counts = self._counts()
        if pairs is None:
            return counts.energy_and_forces(atoms, batch)
        return counts.sparse_energy_and_forces(atoms, pairs, len(self.config.elements))

    def training_work(self, atoms: int, batch: int) -> Work | None:
        return self._counts().training_step(atoms, batch)

    def _counts(self) -> GeometricAttentionWork:
        return GeometricAttentionWork(self.config, sum(p.numel() for p in self.parameters()))


class OverlapFunctions(nn.Module):
    """Parameters Q, q, K, k of all overlap modules of one stream: (layers, k − 1, F, ...)."""

    def __init__(self, layers: int, modules: int, width: int, basis_size: int, bias: bool) -> None:
        super().__init__()
        self.Q = nn.Parameter(torch.empty(layers, modules, width, basis_size))
        self.K = nn.Parameter(torch.empty(layers, modules, width, basis_size))
        self.q = nn.Parameter(torch.empty(layers, modules, width)) if bias else None
        self.k = nn.Parameter(torch.empty(layers, modules, width)) if bias else None
        for weight, offset in ((self.Q, self.q), (self.K, self.k)):
            _linear_init(weight, offset, fan_in=basis_size)

    def folded(self, basis_at_zero: Tensor) -> tuple[Tensor, Tensor]:
        """The overlap as one affine map of Φ̂(d): Q Φ̂(0) + q is a constant, so F² = A Φ̂(d) + a."""
        constant = self.Q @ basis_at_zero  # (layers, k − 1, F)
        if self.q is not None and self.k is not None:
            constant = constant + self.q
            return constant[..., None] * self.K, constant * self.k
        return constant[..., None] * self.K, torch.zeros_like(constant)


def pair_mask(mask: Tensor) -> Tensor:
    """True for pairs (B, N, N) of real atoms."""
    return mask[:, :, None] & mask[:, None]


def _linear_init(weight: Tensor, offset: Tensor | None, fan_in: int) -> None:
    """PyTorch's default for a linear layer: uniform in ±1/√fan_in."""
    bound = 1.0 / math.sqrt(fan_in)
    nn.init.uniform_(weight, -bound, bound)
    if offset is not None:
        nn.init.uniform_(offset, -bound, bound)
