"""The sums over triangles as a Triton kernel, for float32 and float64 on a GPU."""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

TERMS = 8  # triangles that a program loads together


@triton.jit
def sums_kernel(
    u, v, start, left, right, left_of, right_of, out,
    C: tl.constexpr, CB: tl.constexpr, TERMS: tl.constexpr, LEFT: tl.constexpr, RIGHT: tl.constexpr,
):  # fmt: skip
    """The sum of one state; if LEFT or RIGHT, of the reversed states on that side."""
    e = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, CB)
    begin, end = tl.load(start + e), tl.load(start + e + 1)
    total = tl.zeros((TERMS, CB), u.dtype.element_ty)
    for k in range(begin, end, TERMS):
        term = k + tl.arange(0, TERMS)
        there = term < end
        a = tl.load(left + term, mask=there, other=0)
        b = tl.load(right + term, mask=there, other=0)
        if LEFT:
            a = tl.load(left_of + a, mask=there, other=0)
        if RIGHT:
            b = tl.load(right_of + b, mask=there, other=0)
        inside = there[:, None] & (c < C)[None, :]
        x = tl.load(u + a.to(tl.int64)[:, None] * C + c[None, :], mask=inside, other=0.0)
        y = tl.load(v + b.to(tl.int64)[:, None] * C + c[None, :], mask=inside, other=0.0)
        total += x * y
    tl.store(out + e * C + c, tl.sum(total, 0), mask=c < C)


def triton_sums(
    u: Tensor, v: Tensor, start: Tensor, left: Tensor, right: Tensor, left_of: Tensor | None,
    right_of: Tensor | None, out: Tensor,
) -> Tensor:  # fmt: skip
    """As `products.torch_sums`."""
    u, v = u.contiguous(), v.contiguous()
    if len(u):
        width = u.shape[1]
        sums_kernel[(len(u),)](
            u, v, start, left, right, left if left_of is None else left_of,
            right if right_of is None else right_of, out, C=width, CB=triton.next_power_of_2(width),
            TERMS=TERMS, LEFT=left_of is not None, RIGHT=right_of is not None, num_warps=2,
        )  # fmt: skip
    return out
