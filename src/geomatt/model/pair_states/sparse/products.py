"""The product P_ij = Σ_m A_im ∘ B_mj over triangles, differentiable any number of times.

Its derivatives are sums over the same triangles. With (i, j) a state and m a third atom near both, the three
sums are, each by the states that a triangle lists:

    P   Σ_m u(i,m) ∘ v(m,j)        A's adjoint   Σ_m u(i,m) ∘ v(j,m)        B's adjoint   Σ_m u(m,i) ∘ v(m,j)

so they differ in which of the two states is reversed, and the derivatives of each are the two others.
"""

from __future__ import annotations

import importlib.util
from typing import Any

import torch
from torch import Tensor

from geomatt.model.pair_states.sparse.graph import Triangles
from geomatt.model.pair_states.sparse.native import native_sums

CHUNK_BYTES = 2**25  # of the terms that plain torch makes at once


def product(a: Tensor, b: Tensor, triangles: Triangles) -> Tensor:
    """P (S, C) of factors (S, C)."""
    found: Tensor = _Product.apply(a, b, triangles)
    return found


class _Product(torch.autograd.Function):
    """Σ_m u(i,m) ∘ v(m,j)."""

    @staticmethod
    def forward(ctx: Any, u: Tensor, v: Tensor, triangles: Triangles) -> Tensor:
        ctx.triangles = triangles
        ctx.save_for_backward(u, v)
        return sums(u, v, triangles)

    @staticmethod
    def backward(ctx: Any, n: Tensor) -> tuple[Tensor, Tensor, None]:
        u, v = ctx.saved_tensors
        return _ByLeft.apply(n, v, ctx.triangles), _ByRight.apply(u, n, ctx.triangles), None


class _ByLeft(torch.autograd.Function):
    """Σ_m u(i,m) ∘ v(j,m)."""

    @staticmethod
    def forward(ctx: Any, u: Tensor, v: Tensor, triangles: Triangles) -> Tensor:
        ctx.triangles = triangles
        ctx.save_for_backward(u, v)
        return sums(u, v, triangles, right_reversed=True)

    @staticmethod
    def backward(ctx: Any, n: Tensor) -> tuple[Tensor, Tensor, None]:
        u, v = ctx.saved_tensors
        return _Product.apply(n, v, ctx.triangles), _ByRight.apply(n, u, ctx.triangles), None


class _ByRight(torch.autograd.Function):
    """Σ_m u(m,i) ∘ v(m,j)."""

    @staticmethod
    def forward(ctx: Any, u: Tensor, v: Tensor, triangles: Triangles) -> Tensor:
        ctx.triangles = triangles
        ctx.save_for_backward(u, v)
        return sums(u, v, triangles, left_reversed=True)

    @staticmethod
    def backward(ctx: Any, n: Tensor) -> tuple[Tensor, Tensor, None]:
        u, v = ctx.saved_tensors
        return _ByLeft.apply(v, n, ctx.triangles), _Product.apply(u, n, ctx.triangles), None


def sums(
    u: Tensor,
    v: Tensor,
    triangles: Triangles,
    *,
    left_reversed: bool = False,
    right_reversed: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """Σ u[left] ∘ v[right] over the triangles of every state, in C++, Triton or plain torch."""
    out = torch.empty_like(u, memory_format=torch.contiguous_format) if out is None else out
    left_of = triangles.reverse if left_reversed else None
    right_of = triangles.reverse if right_reversed else None
    arguments = (u, v, triangles.start, triangles.left, triangles.right, left_of, right_of, out)
    if u.is_cuda and importlib.util.find_spec("triton"):
        from geomatt.model.pair_states.sparse.triton_sums import triton_sums

        return triton_sums(*arguments)
    return out if native_sums(*arguments) else torch_sums(*arguments)


def torch_sums(
    u: Tensor, v: Tensor, start: Tensor, left: Tensor, right: Tensor, left_of: Tensor | None,
    right_of: Tensor | None, out: Tensor,
) -> Tensor:  # fmt: skip
    """In plain torch, a part of the triangles at a time."""
    found = out.zero_()
    state = torch.repeat_interleave(torch.arange(len(u), device=u.device), start.diff())
    step = max(1, CHUNK_BYTES // (u.shape[1] * u.element_size()))
    for begin in range(0, len(left), step):
        part = slice(begin, begin + step)
        l, r = left[part].long(), right[part].long()
        l = l if left_of is None else left_of[l].long()
        r = r if right_of is None else right_of[r].long()
        found.index_add_(0, state[part], u.index_select(0, l) * v.index_select(0, r))
    return found
