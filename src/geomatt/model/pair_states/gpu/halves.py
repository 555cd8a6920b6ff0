"""Products of weights and states as accurate as in float32, on the units of a GPU made for float16.

A float32 number is a sum of two of float16, the second 2⁻¹¹ times as large as the first, so three products of
such parts, summed in float32, leave out what is of the order of float32's own rounding (Ootomo & Yokota 2022,
arXiv 2203.03341). Weights are split once, states on the way. Numbers above 65,504 become nan: far more than
states of a network reach whose ceilings are near the values of its training frames; without ceilings, or with
those from a handful of frames (`ROOM`), a displaced molecule gets there.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional

ROOM = 5.0  # of ceilings at most (`room_of`): states of compressed molecules were then below half of 65,504
ROWS, PAIRS, INNER = 64, 64, 32  # of a program's tile, and of a step of its sum
SHIFT = tl.constexpr(2048.0)  # 2¹¹


def split(w: Tensor) -> Tensor:
    """Both parts of matrices (..., R, K) as (2, ..., R', K'), padded with zeros to whole tiles."""
    rows, inner = w.shape[-2:]
    w = functional.pad(w, (0, -inner % INNER, 0, -rows % ROWS))
    high = w.half()
    return torch.stack([high, ((w - high.float()) * SHIFT.value).half()])


@triton.jit
def weigh_kernel(
    w, w_low, w_m, x, x_m, x_k, x_p, out, out_m, out_r, out_p, rows, columns,
    K: tl.constexpr, WHOLE: tl.constexpr, ADD: tl.constexpr,
    BR: tl.constexpr, BP: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """out = w x, or out + w x if ADD, as a tile (pairs, rows): states are split in registers as they come.

    Programs of the same pairs are next to each other. WHOLE: K is a multiple of BK. `total` is used in every
    step of the sum, so that its products are finished before the registers of the states are written anew:
    with sums of its own for the products with low parts, the compiler let the last one of a step run on, and
    on a busy GPU it could read states of the next step.
    """
    strips = tl.cdiv(rows, BR)
    r = (tl.program_id(0) % strips) * BR + tl.arange(0, BR)
    p = (tl.program_id(0) // strips) * BP + tl.arange(0, BP)
    m = tl.program_id(1).to(tl.int64)
    k = tl.arange(0, BK)
    width = tl.cdiv(K, BK) * BK
    states = x + m * x_m + k[None, :] * x_k + p[:, None] * x_p
    weights = m * w_m + r[None, :] * width + k[:, None]
    there = (p < columns)[:, None]
    total = tl.zeros((BP, BR), tl.float32)
    for start in range(0, K, BK):
        inside = there if WHOLE else there & ((start + k) < K)[None, :]
        state = tl.load(states + start * x_k, mask=inside, other=0.0)
        high = state.to(tl.float16)
        low = ((state - high.to(tl.float32)) * SHIFT).to(tl.float16)
        w_high = tl.load(w + weights + start)
        rest = tl.dot(high, tl.load(w_low + weights + start))
        rest = tl.dot(low, w_high, rest)
        total = tl.dot(high, w_high, total) + rest * (1.0 / SHIFT)
    at = out + m * out_m + r[None, :] * out_r + p[:, None] * out_p
    inside = there & (r < rows)[None, :]
    if ADD:
        total += tl.load(at, mask=inside, other=0.0)
    tl.store(at, total, mask=inside)


def weigh(parts: Tensor, x: Tensor, out: Tensor, add: bool = False) -> None:
    """out = w x, or out + w x, with `split` matrices w (M, R, K), of x (M, K, P) and out (M, R, P)."""
    high, low = parts
    (members, inner, columns), rows = x.shape, out.shape[1]
    grid = (triton.cdiv(rows, ROWS) * triton.cdiv(columns, PAIRS), members)
    weigh_kernel[grid](
        high, low, high.stride(0), x, *x.stride(), out, *out.stride(), rows, columns, K=inner,
        WHOLE=inner % INNER == 0, ADD=add, BR=ROWS, BP=PAIRS, BK=INNER, num_warps=4, num_stages=3,
    )  # fmt: skip
