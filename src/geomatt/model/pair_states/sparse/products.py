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


PLAIN, LEFT, RIGHT = (False, False), (True, False), (False, True)  # which of the two states is reversed


def product(a: Tensor, b: Tensor, triangles: Triangles) -> Tensor:
    """P (S, C) of factors (S, C)."""
    found: Tensor = _Sums.apply(a, b, triangles, PLAIN)
    return found


class _Sums(torch.autograd.Function):
    """`sums`, with derivatives that are such sums."""

    @staticmethod
    def forward(ctx: Any, u: Tensor, v: Tensor, triangles: Triangles, flips: tuple[bool, bool]) -> Tensor:
        ctx.triangles, ctx.flips = triangles, flips
        ctx.save_for_backward(u, v)
        return sums(u, v, triangles, left_reversed=flips[0], right_reversed=flips[1])

    @staticmethod
    def backward(ctx: Any, n: Tensor) -> tuple[Tensor, Tensor, None, None]:
        u, v = ctx.saved_tensors
        by_u, by_v = {
            PLAIN: ((n, v, RIGHT), (u, n, LEFT)),
            RIGHT: ((n, v, PLAIN), (n, u, LEFT)),
            LEFT: ((v, n, RIGHT), (u, n, PLAIN)),
        }[ctx.flips]
        found = [_Sums.apply(x, y, ctx.triangles, flips) for x, y, flips in (by_u, by_v)]
        return found[0], found[1], None, None


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
