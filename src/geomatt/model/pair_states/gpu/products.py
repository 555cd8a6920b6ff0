"""Triton kernels for P = s A B over atoms with its derivatives, and for gradients of weights.

A program of the first four does one matrix of N × N atoms: a channel of a structure. A and B are rows c and
C + c of a tensor (M, 2C, COLUMNS), and so are their tangents and adjoints.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def place(N: tl.constexpr, NT: tl.constexpr, B: tl.constexpr, COLUMNS: tl.constexpr):
    """Where a program's matrix is: member, structure, its entries (NT, NT) and which of them exist."""
    matrix = tl.program_id(0)  # structures of a channel are next to each other
    c, b = matrix // B, matrix % B
    i = tl.arange(0, NT)
    inside = (i < N)[:, None] & (i < N)[None, :]
    at = c * COLUMNS + b * (N * N) + i[:, None] * N + i[None, :]
    return tl.program_id(1).to(tl.int64), b, at, inside


@triton.jit
def product_kernel(
    ab, ab_m, p, p_m, scale, C: tl.constexpr, B: tl.constexpr, N: tl.constexpr, NT: tl.constexpr,
    COLUMNS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    m, b, at, inside = place(N, NT, B, COLUMNS)
    ab += m * ab_m
    x = tl.load(ab + at, mask=inside, other=0.0)
    y = tl.load(ab + C * COLUMNS + at, mask=inside, other=0.0)
    result = tl.dot(x, y, input_precision=PRECISION) * tl.load(scale + m * B + b)
    tl.store(p + m * p_m + at, result, mask=inside)


@triton.jit
def product_dot_kernel(
    ab, ab_m, ab_dot, ab_dot_m, p_dot, p_dot_m, scale,
    C: tl.constexpr, B: tl.constexpr, N: tl.constexpr, NT: tl.constexpr, COLUMNS: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    m, b, at, inside = place(N, NT, B, COLUMNS)
    ab += m * ab_m
    ab_dot += m * ab_dot_m
    x_dot = tl.load(ab_dot + at, mask=inside, other=0.0)
    y = tl.load(ab + C * COLUMNS + at, mask=inside, other=0.0)
    result = tl.dot(x_dot, y, input_precision=PRECISION)
    x = tl.load(ab + at, mask=inside, other=0.0)
    y_dot = tl.load(ab_dot + C * COLUMNS + at, mask=inside, other=0.0)
    result = tl.dot(x, y_dot, result, input_precision=PRECISION) * tl.load(scale + m * B + b)
    tl.store(p_dot + m * p_dot_m + at, result, mask=inside)


@triton.jit
def product_adjoint_kernel(
    n_p, n_p_m, ab, ab_m, n_ab, n_ab_m, scale,
    C: tl.constexpr, B: tl.constexpr, N: tl.constexpr, NT: tl.constexpr, COLUMNS: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    m, b, at, inside = place(N, NT, B, COLUMNS)
    ab += m * ab_m
    n_ab += m * n_ab_m
    n = tl.load(n_p + m * n_p_m + at, mask=inside, other=0.0) * tl.load(scale + m * B + b)
    y = tl.load(ab + C * COLUMNS + at, mask=inside, other=0.0)
    tl.store(n_ab + at, tl.dot(n, tl.trans(y), input_precision=PRECISION), mask=inside)
    x = tl.load(ab + at, mask=inside, other=0.0)
    tl.store(n_ab + C * COLUMNS + at, tl.dot(tl.trans(x), n, input_precision=PRECISION), mask=inside)


@triton.jit
def product_hat_kernel(
    p_hat, p_hat_m, n_p, n_p_m, ab, ab_m, ab_dot, ab_dot_m, ab_hat, ab_hat_m, scale,
    C: tl.constexpr, B: tl.constexpr, N: tl.constexpr, NT: tl.constexpr, COLUMNS: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Â = s (P̂ Bᵀ + n_P Ḃᵀ), B̂ = s (Aᵀ P̂ + Ȧᵀ n_P)."""
    m, b, at, inside = place(N, NT, B, COLUMNS)
    ab += m * ab_m
    ab_dot += m * ab_dot_m
    ab_hat += m * ab_hat_m
    s = tl.load(scale + m * B + b)
    hat = tl.load(p_hat + m * p_hat_m + at, mask=inside, other=0.0) * s
    n = tl.load(n_p + m * n_p_m + at, mask=inside, other=0.0) * s
    y = tl.load(ab + C * COLUMNS + at, mask=inside, other=0.0)
    result = tl.dot(hat, tl.trans(y), input_precision=PRECISION)
    y_dot = tl.load(ab_dot + C * COLUMNS + at, mask=inside, other=0.0)
    result = tl.dot(n, tl.trans(y_dot), result, input_precision=PRECISION)
    tl.store(ab_hat + at, result, mask=inside)
    x = tl.load(ab + at, mask=inside, other=0.0)
    result = tl.dot(tl.trans(x), hat, input_precision=PRECISION)
    x_dot = tl.load(ab_dot + at, mask=inside, other=0.0)
    result = tl.dot(tl.trans(x_dot), n, result, input_precision=PRECISION)
    tl.store(ab_hat + C * COLUMNS + at, result, mask=inside)


@triton.jit
def weights_kernel(
    adjoint, adjoint_t, adjoint_s, adjoint_m, state, state_t, state_s, state_m, parts, rounds, pairs, steps,
    R: tl.constexpr, Q: tl.constexpr, COLUMNS: tl.constexpr, BR: tl.constexpr, BQ: tl.constexpr,
    BK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Σ_pairs x̂ yᵀ + n ẏᵀ of a tile of rows of adjoints and of states, over `steps` · BK pairs.

    Strides lead from round to round, slot to slot, member to member. Parts are (splits, M, T, R, Q).
    """
    tiles = tl.cdiv(Q, BQ)
    r = (tl.program_id(0) // tiles) * BR + tl.arange(0, BR)
    q = (tl.program_id(0) % tiles) * BQ + tl.arange(0, BQ)
    split = tl.program_id(1)
    of = tl.program_id(2)  # member and round
    m, t = (of // rounds).to(tl.int64), (of % rounds).to(tl.int64)
    adjoint += t * adjoint_t + m * adjoint_m
    state += t * state_t + m * state_m
    k = tl.arange(0, BK)
    a_at = r[:, None] * COLUMNS + k[None, :]
    b_at = q[:, None] * COLUMNS + k[None, :]
    total = tl.zeros((BR, BQ), tl.float32)
    first = split * steps * BK
    for slot in range(2):
        for start in range(first, tl.minimum(first + steps * BK, pairs), BK):
            there = (start + k < pairs)[None, :]
            a = tl.load(adjoint + slot * adjoint_s + a_at + start, mask=there & (r < R)[:, None], other=0.0)
            b = tl.load(state + slot * state_s + b_at + start, mask=there & (q < Q)[:, None], other=0.0)
            total = tl.dot(a, tl.trans(b), total, input_precision=PRECISION)
    to = ((split * tl.num_programs(2) + of).to(tl.int64) * R + r[:, None]) * Q + q[None, :]
    tl.store(parts + to, total, mask=(r < R)[:, None] & (q < Q)[None, :])
