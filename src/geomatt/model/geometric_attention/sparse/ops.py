"""The three sums over neighbours that a chain of overlap functions consists of, each with its own gradient.

With Φ̂_l(d) the Gaussians, Σ over the neighbours j of i (i itself included):

    spread     S[i, r, l] = Σ_j Φ̂_l(d_ij) c[j, r]              the rightmost step, before any channel exists
    step       y[i, r, f] = Σ_j (A Φ̂(d_ij))_f t[j, r, f]       a step in between, channel by channel
    gather     o[i, r]    = Σ_j Σ_l Φ̂_l(d_ij) g[j, r, l]       the leftmost step, after the sum over channels

`spread` and `gather` are each other's adjoint, and `step` its own, because d_ij = d_ji. Nothing of the size
pairs × L is ever kept: the Gaussians are evaluated again, block by block, wherever they are needed.
Gradients of the distances follow the convention of `PairDistances`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from geomatt.model.geometric_attention.network import EXPONENT_LIMIT
from geomatt.model.geometric_attention.sparse.layout import Block, PairLayout


@dataclass(frozen=True)
class Gaussians:
    """Φ̂_l(d) = exp(−γ (d − μ_l)²), zero where the exponent is beyond EXPONENT_LIMIT."""

    mu: Tensor  # (L,)
    gamma: float

    def value(self, distance: Tensor, block: Block) -> Tensor:
        """Φ̂ of a block's edges (atoms, width, L), from the distances (P,) of all edges."""
        return self.value_and_offset(distance, block)[0]

    def value_and_offset(self, distance: Tensor, block: Block) -> tuple[Tensor, Tensor]:
        """Φ̂ and d − μ of a block's edges, (atoms, width, L) each; ∂Φ̂/∂d = −2γ (d − μ) Φ̂."""
        offset = distance[block.edges].view(block.size, block.width, 1) - self.mu
        # The clamp comes before the exponential because denormal numbers are slow to make, too.
        exponent = torch.addcmul(offset.new_zeros(()), offset, offset, value=-self.gamma)
        phi = exponent.clamp_(min=-1.5 * EXPONENT_LIMIT).exp_()
        return functional.threshold(phi, math.exp(-EXPONENT_LIMIT), 0.0, inplace=True), offset


class Spread(torch.autograd.Function):
    """S (N, R, L) from distances (P,) and columns c (N, R)."""

    @staticmethod
    def forward(ctx: Any, distance: Tensor, columns: Tensor, layout: PairLayout, basis: Gaussians) -> Tensor:
        ctx.layout, ctx.basis = layout, basis
        ctx.save_for_backward(distance, columns)
        return _spread(distance, columns, layout, basis)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None, None]:
        distance, columns = ctx.saved_tensors
        to_columns, to_distance = _gather(distance, gradient, ctx.layout, ctx.basis, columns)
        return to_distance, to_columns, None, None


class Gather(torch.autograd.Function):
    """o (N, R) from distances (P,) and g (N, R, L)."""

    @staticmethod
    def forward(ctx: Any, distance: Tensor, weights: Tensor, layout: PairLayout, basis: Gaussians) -> Tensor:
        ctx.layout, ctx.basis = layout, basis
        ctx.save_for_backward(distance, weights)
        return _gather(distance, weights, layout, basis)[0]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None, None]:
        distance, weights = ctx.saved_tensors
        to_distance = torch.empty_like(distance)
        to_weights = _spread(distance, gradient, ctx.layout, ctx.basis, (weights, to_distance))
        return to_distance, to_weights, None, None


def _spread(
    distance: Tensor,  # (P,)
    columns: Tensor,  # (N, R)
    layout: PairLayout,
    basis: Gaussians,
    slopes: tuple[Tensor, Tensor] | None = None,
) -> Tensor:
    """Σ_j Φ̂_l(d_ij) c[j, r] as (N, R, L).

    With slopes = (g, out), the same pass puts Σ_rl Φ̂'_l g[i, r, l] c[j, r] of every edge into out (P,).
    """
    result = columns.new_empty(*columns.shape, len(basis.mu))
    for block in layout.blocks:
        phi, offset = basis.value_and_offset(distance, block)
        received = _neighbours(columns, layout, block)  # (atoms, width, R)
        torch.bmm(received.mT, phi, out=result[block.atoms])
        if slopes is not None:
            weights, out = slopes
            _slope(phi, offset, weights[block.atoms], received, basis, out[block.edges])
    return result


def _gather(
    distance: Tensor,  # (P,)
    weights: Tensor,  # (N, R, L)
    layout: PairLayout,
    basis: Gaussians,
    columns: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Σ_j Σ_l Φ̂_l(d_ij) g[j, r, l] as (N, R); with columns c also Σ_rl Φ̂'_l g[i, r, l] c[j, r] as (P,).

    Each atom works out what it sends along its edges from its own g; gathering g itself would be L times
    the traffic.
    """
    weights = weights.contiguous()
    messages = weights.new_empty(len(distance), weights.shape[1])
    slopes = torch.empty_like(distance)
    for block in layout.blocks:
        phi, offset = basis.value_and_offset(distance, block)
        own = weights[block.atoms]
        torch.bmm(phi, own.mT, out=messages[block.edges].view(block.size, block.width, -1))
        if columns is not None:
            _slope(phi, offset, own, _neighbours(columns, layout, block), basis, slopes[block.edges])
    return layout.collect(messages), slopes


def _slope(phi: Tensor, offset: Tensor, own: Tensor, received: Tensor, basis: Gaussians, out: Tensor) -> None:
    """Σ_rl Φ̂'_l(d) own[i, r, l] received[i, n, r] of a block's edges, into out. Overwrites offset."""
    change = torch.bmm(offset.mul_(phi), own.mT)  # (atoms, width, R)
    torch.sum(change.mul_(received), -1, out=out.view(received.shape[:2]))
    out.mul_(-2.0 * basis.gamma)


class Step(torch.autograd.Function):
    """y (N, R, F) from distances (P,), t (N, R, F) and the overlap functions' weights A (F, L)."""

    @staticmethod
    def forward(
        ctx: Any, distance: Tensor, inner: Tensor, overlap: Tensor, layout: PairLayout, basis: Gaussians
    ) -> Tensor:
        ctx.layout, ctx.basis = layout, basis
        inner = inner.contiguous()
        ctx.save_for_backward(distance, inner, overlap)
        result = torch.empty_like(inner)
        for block in layout.blocks:
            pair = basis.value(distance, block) @ overlap.T  # (atoms, width, F)
            received = _neighbours(inner, layout, block)  # (atoms, width, R, F)
            torch.sum(received.mul_(pair[:, :, None]), 1, out=result[block.atoms])
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor | None, None, None]:
        distance, inner, overlap = ctx.saved_tensors
        layout, basis = ctx.layout, ctx.basis
        gradient = gradient.contiguous()
        to_distance, to_inner = torch.empty_like(distance), torch.empty_like(inner)
        to_overlap = torch.zeros_like(overlap) if ctx.needs_input_grad[2] else None
        for block in layout.blocks:
            phi, offset = basis.value_and_offset(distance, block)
            received = _neighbours(gradient, layout, block)  # (atoms, width, R, F)
            # The gradient of the pair function on the reverse edge: it needs nothing else from the neighbour.
            to_pair = (received * inner[block.atoms][:, None]).sum(2)  # (atoms, width, F)
            torch.sum(received.mul_((phi @ overlap.T)[:, :, None]), 1, out=to_inner[block.atoms])
            if to_overlap is not None:
                to_overlap += to_pair.flatten(0, 1).T @ phi.flatten(0, 1)
            change = offset.mul_(phi) @ overlap.T  # (atoms, width, F)
            torch.sum(change.mul_(to_pair), -1, out=to_distance[block.edges].view(block.size, block.width))
        return to_distance.mul_(-2.0 * basis.gamma), to_inner, to_overlap, None, None


def _neighbours(values: Tensor, layout: PairLayout, block: Block) -> Tensor:
    """The neighbours' rows of values (N, ...), as (atoms, width, ...)."""
    rows = values.index_select(0, layout.neighbour[block.edges])
    return rows.view(block.size, block.width, *values.shape[1:])
