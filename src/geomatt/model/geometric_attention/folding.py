"""Weights of geometric attention in the form the engines use, with less work for the same results.

* Q Φ̂(0) + q is constant, so all overlap functions are rows of one matrix A (M, C, L'): F²(d) = A Φ̂(d). The
  channels C run over the streams; within a stream over its modules, the layers, and f. For k = 2 the sum over
  f is taken first: one function of the distance per layer. Column L of A holds the biases, further columns
  are zero.
* Until the readout the features are linear in the elements' embeddings. So they are carried as v = c T, with
  few coefficients c (N, R) per atom over R vectors T (R, V) that all atoms share. A layer appends α c to the
  coefficients and W T + b to the vectors: α works on R columns instead of V, and W on R rows instead of one
  row per atom. The first column of c is one for every atom; its vector carries the biases. R doubles with
  every layer, and once it would pass `WIDEST` the features are formed and the next layers start afresh from
  them. α never depends on v, so T follows from the weights alone.

Shapes as in `network`, with M independent networks (members) in front. Z = S · M networks of one stream each,
streams outermost.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from geomatt.model.geometric_attention.config import GeometricAttentionConfig
from geomatt.model.geometric_attention.network import EXPONENT_LIMIT
from geomatt.model.interface import Parameters

WIDEST = 256


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


@dataclass
class Factors:
    """The factors of the overlap functions of a stream."""

    constant: Tensor  # Q Φ̂(0) + q, (M, layers, k − 1, F)
    weight: Tensor  # K with k as column L, (M, layers, k − 1, F, L')


@dataclass
class Plan:
    """The vectors T, by segment."""

    vectors: list[list[Tensor]]  # [segment][layer] (Z, R, V), before the layer
    weight: list[Tensor]  # [layer] (Z, V, V)
    ends: list[Tensor]  # [segment], after its last layer


@dataclass
class Folded:
    """Quantities that depend on the weights of M networks alone."""

    parameters: Parameters
    factors: list[Factors]  # [stream]
    functions: Tensor  # A (M, C, L'), all overlap functions
    plan: Plan


class Folding:
    """Folds the weights of networks of one configuration."""

    def __init__(self, config: GeometricAttentionConfig) -> None:
        self.config, self.streams, self.layers = config, len(config.orders), config.layers
        self.scale = config.spacing / self.streams
        self.channels = Channels(config)

    def fold(self, p: Parameters) -> Folded:
        factors = self._factors(p)
        embedding = p["embedding"].repeat(self.streams, 1, 1)
        vectors = plan(embedding, self._per_layer(p["W"]), self._per_layer(p["b"]))
        return Folded(p, factors, self._functions(factors), vectors)

    def _at_zero(self, p: Parameters) -> Tensor:
        """Φ̂(0), (M, L)."""
        exponent = self.config.gamma * p["mu"].square()
        return torch.where(exponent < EXPONENT_LIMIT, torch.exp(-exponent), 0.0)

    def _factors(self, p: Parameters) -> list[Factors]:
        at_zero, pad, result = self._at_zero(p), self.channels.columns - self.config.basis_size, []
        for s in range(self.streams):
            q, k = p[f"overlaps.{s}.Q"], p[f"overlaps.{s}.K"]
            constant = torch.bmm(q.flatten(1, 3), at_zero[..., None]).view(q.shape[:-1])
            weight = functional.pad(k, (0, pad))
            if self.config.bias:
                constant += p[f"overlaps.{s}.q"]
                weight[..., self.config.basis_size] = p[f"overlaps.{s}.k"]
            result.append(Factors(constant, weight))
        return result

    def _functions(self, factors: list[Factors]) -> Tensor:
        """The overlap functions of all streams as one matrix A with F²(d) = A Φ̂(d): (M, C, L')."""
        parts = []
        for order, f in zip(self.config.orders, factors, strict=True):
            a = f.constant[..., None] * f.weight
            a = a.sum(3).transpose(1, 2) if order == 2 else a.transpose(1, 2)  # (M, k − 1, layers, ...)
            parts.append(a.reshape(len(a), -1, a.shape[-1]))
        return torch.cat(parts, 1)

    def by_vectors(self, weight: list[Tensor], bias: list[Tensor], embedding: Tensor) -> dict[str, Tensor]:
        """Gradients of the stream weights, [layer] (S·M, ...), in the shapes of the network's parameters."""
        return {
            "W": self._member_first(weight),
            "b": self._member_first(bias),
            "embedding": embedding.unflatten(0, (self.streams, -1)).sum(0),
        }

    def unfold(self, p: Parameters, factors: list[Factors], by_a: Tensor) -> dict[str, Tensor]:
        """From ∂loss/∂A (M, C, L') to Q, q, K and k; for k = 2 one A serves all f."""
        at_zero, size, grads = self._at_zero(p), self.config.basis_size, {}
        for s, (start, modules, width) in enumerate(self.channels.streams):
            part = by_a[:, start : start + modules * self.layers * width]
            by_folded = part.unflatten(1, (modules, self.layers, width)).transpose(1, 2)
            by_weight = factors[s].constant[..., None] * by_folded  # (M, layers, k − 1, F, L')
            by_constant = (by_folded * factors[s].weight).sum(-1)
            grads[f"overlaps.{s}.K"] = by_weight[..., :size]
            grads[f"overlaps.{s}.Q"] = by_constant[..., None] * at_zero[:, None, None, None]
            if self.config.bias:
                grads[f"overlaps.{s}.k"] = by_weight[..., size]
                grads[f"overlaps.{s}.q"] = by_constant
        return grads

    def _per_layer(self, x: Tensor) -> list[Tensor]:
        """From W or b (M, S, layers, ...) to [layer] (S·M, ...), with the factor Δd / N_S of α."""
        return list((self.scale * x).movedim(2, 0).transpose(1, 2).flatten(1, 2))

    def _member_first(self, by_layer: list[Tensor]) -> Tensor:
        """From [layer] (S·M, ...) to (M, S, layers, ...), with the factor of `_per_layer`."""
        stacked = torch.stack(by_layer, 1) * self.scale
        return stacked.view(self.streams, -1, *stacked.shape[1:]).transpose(0, 1)


def plan(
    embedding: Tensor,  # (Z, elements, V)
    weight: list[Tensor],  # [layer] (Z, V, V), with the factor Δd / N_S
    bias: list[Tensor],  # [layer] (Z, V), with that factor
) -> Plan:
    """The vectors T before every layer and at the end of every segment, from the weights alone."""
    found = Plan([[]], weight, [])
    vectors = functional.pad(embedding, (0, 0, 1, 0))
    for w, b in zip(weight, bias, strict=True):
        if found.vectors[-1] and 2 * vectors.shape[1] > WIDEST:
            found.ends.append(vectors)
            found.vectors.append([])
            same = torch.eye(w.shape[-1], dtype=w.dtype, device=w.device)
            vectors = functional.pad(same, (0, 0, 1, 0)).expand(len(w), -1, -1)
        found.vectors[-1].append(vectors)
        image = torch.baddbmm(functional.pad(b[:, None], (0, 0, 0, vectors.shape[1] - 1)), vectors, w.mT)
        vectors = torch.cat([vectors, image], 1)
    found.ends.append(vectors)
    return found


def vectors_back(t_hat: Tensor, vectors: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """From the gradient by the vectors after a layer to that by those before it, by W and by b."""
    kept, image = t_hat.chunk(2, 1)
    return torch.baddbmm(kept, image, weight), torch.bmm(image.mT, vectors), image[:, 0]
