"""Energies, forces and loss gradients written out by hand, for many small structures at once.

Results are those of `GeometricAttention`, with less work:

* Q Φ̂(0) + q is constant, so every overlap function is one row of a matrix product with Φ̂(d) (`_fold`,
  `pair_functions`).
* For k = 2 the sum over f is taken before the product: one function of the distance per layer.
* α never depends on v: α of all layers and streams comes first, then the streams run side by side, on a
  few coefficients per atom (`streams`).
* The overlaps are symmetric matrices, so the first and the last product of a chain are plain matrix
  products over (m, f) at once: rows i, columns (m, f).
* No automatic differentiation. With u = ∂loss/∂F held fixed, the gradient of the loss with respect to a
  parameter θ is

      Σ_b [ w_b ∂E_b/∂θ − d/dt ∂E_b/∂θ ],   w = ∂loss/∂E,  d/dt the derivative along ṙ = u,

  so one sweep with tangents (`dot`) gives it. An adjoint x̄ = ∂E/∂x is therefore carried together with
  the combination x̂ = w x̄ − dx̄/dt (`bar` and `hat` below).

Shapes as in `network`, with M independent networks (members) in front: every parameter has a leading axis M,
and member m has its own B structures.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from geomatt.data.batch import Batch
from geomatt.model.geometric_attention.config import GeometricAttentionConfig
from geomatt.model.geometric_attention.dense import chain, streams
from geomatt.model.geometric_attention.dense.pair_functions import Channels, PairFunctions, Streams
from geomatt.model.geometric_attention.network import EXPONENT_LIMIT
from geomatt.model.interface import Engine, Evaluation, Parameters


@dataclass
class Factors:
    """The factors of the overlap functions of a stream."""

    constant: Tensor  # Q Φ̂(0) + q, (M, layers, k − 1, F)
    weight: Tensor  # K with k as column L, (M, layers, k − 1, F, L')


@dataclass
class Prepared:
    """Quantities that depend on the weights of M networks alone."""

    parameters: Parameters
    factors: list[Factors]  # [stream]
    folded: Tensor  # A (M, C, L'), all overlap functions
    plan: streams.Plan


@dataclass
class Forward:
    """Intermediate results that the force and gradient sweeps reuse. R = layers · M · B."""

    parameters: Parameters
    factors: list[Factors]  # [stream]
    numbers: Tensor  # (M, B, N)
    direction: Tensor  # (M·B, N, N, 3), unit vectors from j to i; zero where atoms coincide
    pairs: PairFunctions
    chains: list[chain.Chain]  # [stream]
    alpha: list[Tensor]  # [layer] (S·M·B, N, N), without the factor Δd / N_S
    segments: list[streams.Segment]
    x: Tensor  # (M, B·N, S·V), the streams side by side
    hidden: Tensor  # (M, B·N, H), before the softplus
    atomic: Tensor  # (M, B, N), atomic energies


@dataclass
class Adjoints:
    """Derivatives of the energy with respect to every intermediate result."""

    hidden: Tensor
    moved: list[list[Tensor]]  # with respect to α c, for each segment of layers
    g: list[Tensor]  # with respect to the features at the end of each segment
    alpha: list[Tensor]  # [stream] (R, N, N)
    overlap: Streams
    suffix: list[list[Tensor]]


class DenseEngine(Engine):
    """The sweeps for one configuration, over all pairs of atoms, in plain torch."""

    def __init__(self, config: GeometricAttentionConfig) -> None:
        self.config = config
        self.streams, self.layers, self.width = len(config.orders), config.layers, config.features
        self.scale = config.spacing / self.streams
        self.channels = Channels(config)

    def prepare(self, parameters: Parameters, *, keep: bool = False) -> Prepared:
        p = parameters
        factors = self._factors(p)
        plan = streams.plan(
            p["embedding"].repeat(self.streams, 1, 1), self._per_layer(p["W"]), self._per_layer(p["b"])
        )
        return Prepared(p, factors, self._fold(factors), plan)

    def compute(
        self, prepared: Prepared, batch: Batch, index: Tensor | None, forces: bool, gradient: bool
    ) -> Evaluation:
        forward = self._forward(prepared, batch.numbers, batch.positions)
        adjoints = self._adjoints(forward) if forces or gradient else None
        found = self._forces(forward, adjoints) if forces and adjoints is not None else None
        return Evaluation(forward.atomic.sum(-1), forward.atomic, found, state=(forward, adjoints))

    def backward(self, state: tuple[Forward, Adjoints], by_energy: Tensor, by_forces: Tensor) -> Tensor:
        return flat(state[0].parameters, self._gradient(*state, by_energy, by_forces))

    # ---- energies -----------------------------------------------------------------------------------

    def _forward(self, prepared: Prepared, numbers: Tensor, positions: Tensor) -> Forward:
        """Atomic energies of atoms (M, B, N) at (M, B, N, 3)."""
        p = prepared.parameters
        direction, pairs = self._pairs(prepared, numbers, positions)
        chains = [chain.attention(x) for x in pairs.overlaps()]
        alpha = self.by_layer([a for a, _ in chains])

        one_hot = (numbers[..., None] == p["elements"][:, None, None]).to(positions.dtype)
        v, segments = streams.forward(one_hot.flatten(0, 1).repeat(self.streams, 1, 1), alpha, prepared.plan)
        x = self._side_by_side(v)
        hidden = torch.baddbmm(p["hidden.bias"][:, None], x, p["hidden.weight"].mT)
        active = functional.softplus(hidden) - p["softplus_shift"][:, None, None]
        energy = torch.baddbmm(p["output.bias"][:, None], active, p["output.weight"].mT)
        atomic = energy.view(numbers.shape) * (numbers > 0)
        return Forward(
            p, prepared.factors, numbers, direction, pairs,
            [c for _, c in chains], alpha, segments, x, hidden, atomic,
        )  # fmt: skip

    def _pairs(self, prepared: Prepared, numbers: Tensor, positions: Tensor) -> tuple[Tensor, PairFunctions]:
        """Directions between atoms, and the functions of their distances."""
        atoms = numbers.shape[2]
        r = positions.reshape(-1, atoms, 3)
        difference = r[:, :, None] - r[:, None]  # (M·B, N, N, 3)
        squared = difference.square().sum(-1)
        apart = squared > 0
        inverse = torch.where(apart, torch.rsqrt(torch.where(apart, squared, 1.0)), 0.0)
        mask = (numbers > 0).view(-1, atoms)
        real = mask[:, :, None] & mask[:, None]
        mu = prepared.parameters["mu"]
        functions = PairFunctions(self.config, self.channels, mu, prepared.folded, squared * inverse, real)
        return difference * inverse[..., None], functions

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

    def _fold(self, factors: list[Factors]) -> Tensor:
        """The overlap functions of all streams as one matrix A with F²(d) = A Φ̂(d): (M, C, L')."""
        parts = []
        for order, f in zip(self.config.orders, factors, strict=True):
            a = f.constant[..., None] * f.weight
            a = a.sum(3).transpose(1, 2) if order == 2 else a.transpose(1, 2)  # (M, k − 1, layers, ...)
            parts.append(a.reshape(len(a), -1, a.shape[-1]))
        return torch.cat(parts, 1)

    # ---- forces -------------------------------------------------------------------------------------

    def _adjoints(self, f: Forward) -> Adjoints:
        """Derivatives of the energy with respect to the hidden layer, the features, α and every overlap."""
        hidden = torch.sigmoid(f.hidden) * f.parameters["output.weight"] * _mask(f)
        g = self._by_stream(hidden @ f.parameters["hidden.weight"])
        alphas, moved, ends = streams.adjoints(f.segments, g)
        alpha = self._stream_first(alphas)
        pairs = [chain.adjoints(c, a) for c, a in zip(f.chains, alpha, strict=True)]
        return Adjoints(
            hidden, moved, ends, alpha, [bars for bars, _ in pairs], [suffix for _, suffix in pairs]
        )

    def _forces(self, f: Forward, a: Adjoints) -> Tensor:
        """−∂E/∂r, (M, B, N, 3)."""
        both = f.pairs.by_distance(a.overlap)  # (M·B, N, N)
        return -(both[..., None] * f.direction).sum(2).view(*f.numbers.shape, 3)

    # ---- gradient of a loss -------------------------------------------------------------------------

    def _gradient(self, f: Forward, a: Adjoints, by_energy: Tensor, by_forces: Tensor) -> dict[str, Tensor]:
        """Gradient of the loss by parameter name, from ∂loss/∂E (M, B) and ∂loss/∂F (M, B, N, 3)."""
        atoms = f.numbers.shape[2]
        r_dot = by_forces.reshape(-1, atoms, 3)
        d_dot = ((r_dot[:, :, None] - r_dot[:, None]) * f.direction).sum(-1)  # (M·B, N, N)
        tangents = f.pairs.tangents(d_dot)
        dots = [chain.attention_dot(c, x_dot) for c, x_dot in zip(f.chains, tangents, strict=True)]
        grads: dict[str, Tensor] = {}
        alpha_hat = self._stream_gradients(f, a, by_energy, self.by_layer([d for d, _ in dots]), grads)
        hats = (
            chain.hats(c, dots[s][1], a.suffix[s], a.alpha[s], alpha_hat[s]) for s, c in enumerate(f.chains)
        )
        return grads | self.unfold(f.parameters, f.factors, f.pairs.gradient(hats, a.overlap, d_dot))

    def _stream_gradients(
        self, f: Forward, a: Adjoints, by_energy: Tensor, alpha_dot: list[Tensor], grads: dict[str, Tensor]
    ) -> list[Tensor]:
        """Tangents through streams and readout, hats back: fills `grads`, returns α̂ by stream."""
        p = f.parameters
        v_dot, c_dot = streams.tangents(f.segments, alpha_dot)
        x_dot = self._side_by_side(v_dot)
        hidden_dot = x_dot @ p["hidden.weight"].mT

        mask = _mask(f)
        w = by_energy.repeat_interleave(f.numbers.shape[2], 1)[..., None] * mask  # (M, B·N, 1)
        sigmoid = torch.sigmoid(f.hidden)
        active = functional.softplus(f.hidden) - p["softplus_shift"][:, None, None]
        active_dot = sigmoid * hidden_dot * mask
        hidden_hat = (w * sigmoid - active_dot * (1.0 - sigmoid)) * p["output.weight"]
        grads["output.weight"] = (w * active - active_dot).sum(1, keepdim=True)
        grads["output.bias"] = w.sum(1)
        grads["hidden.weight"] = torch.baddbmm(hidden_hat.mT @ f.x, a.hidden.mT, x_dot, alpha=-1.0)
        grads["hidden.bias"] = hidden_hat.sum(1)

        g_hat = self._by_stream(hidden_hat @ p["hidden.weight"])
        found = streams.gradients(f.segments, g_hat, a.g, a.moved, alpha_dot, c_dot)
        grads |= self.by_vectors(found.weight, found.bias, found.embedding)
        return self._stream_first(found.alpha_hat)

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

    # ---- layouts ------------------------------------------------------------------------------------

    def _per_layer(self, x: Tensor) -> list[Tensor]:
        """From W or b (M, S, layers, ...) to [layer] (S·M, ...), with the factor Δd / N_S of α."""
        return list((self.scale * x).movedim(2, 0).transpose(1, 2).flatten(1, 2))

    def by_layer(self, alpha: list[Tensor]) -> list[Tensor]:
        """From [stream] (R, N, N) to [layer] (S·M·B, N, N)."""
        atoms = alpha[0].shape[-1]
        stacked = torch.stack([a.view(self.layers, -1, atoms, atoms) for a in alpha], 1)
        return list(stacked.flatten(1, 2))

    def _stream_first(self, alpha: list[Tensor]) -> list[Tensor]:
        """From [layer] (S·M·B, N, N) to [stream] (R, N, N)."""
        atoms = alpha[0].shape[-1]
        stacked = torch.stack([a.view(self.streams, -1, atoms, atoms) for a in alpha], 1)
        return list(stacked.flatten(1, 2))

    def _side_by_side(self, v: Tensor) -> Tensor:
        """From (S·M, B·N, V) to (M, B·N, S·V)."""
        return v.view(self.streams, -1, *v.shape[1:]).permute(1, 2, 0, 3).flatten(2)

    def _by_stream(self, x: Tensor) -> Tensor:
        """From (M, B·N, S·V) to (S·M, B·N, V)."""
        return x.view(*x.shape[:2], self.streams, -1).permute(2, 0, 1, 3).flatten(0, 1).contiguous()

    def _member_first(self, by_layer: list[Tensor]) -> Tensor:
        """From [layer] (S·M, ...) to (M, S, layers, ...), with the factor of `_per_layer`."""
        stacked = torch.stack(by_layer, 1) * self.scale
        return stacked.view(self.streams, -1, *stacked.shape[1:]).transpose(0, 1)


def flat(parameters: Parameters, gradients: dict[str, Tensor]) -> Tensor:
    """Gradients with respect to all parameters side by side, (M, n), in the order of the parameters."""
    return torch.cat([gradients[name].flatten(1) for name in parameters if name in gradients], 1)


def _mask(f: Forward) -> Tensor:
    """True for real atoms, (M, B·N, 1)."""
    return (f.numbers > 0).flatten(1)[..., None]
