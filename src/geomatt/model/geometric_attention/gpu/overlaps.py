"""Triton kernels between the distances and the overlaps X: the fold, X = A Φ̂, and the way back to A, Q and K.

Layouts and notation as in `gpu.chain`. A has a row for every row of X and LB columns: L for
Φ̂, then the bias on real pairs, then zeros.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import triton
import triton.language as tl

from geomatt.model.geometric_attention import network
from geomatt.model.geometric_attention.gpu.chain import product, split

EXPONENT_LIMIT = tl.constexpr(network.EXPONENT_LIMIT)


@triton.jit
def pair_geometry(numbers, positions, index, m, count, p, B: tl.constexpr, N: tl.constexpr, NP: tl.constexpr):
    """Of the pair slots p of member m: distance, whether both atoms are real, and its atoms' places."""
    b = p // (N * NP)
    i = (p // NP) % N
    j = p % NP
    inside = (b < B) & (j < N)
    structure = m * count + tl.load(index + m * B + b, mask=b < B, other=0)
    at_i = structure * N + i
    at_j = structure * N + j
    real = inside & (tl.load(numbers + at_i, mask=inside, other=0) > 0)
    real = real & (tl.load(numbers + at_j, mask=inside, other=0) > 0)
    squared = tl.zeros(p.shape, tl.float32)
    for k in tl.static_range(3):
        difference = tl.load(positions + at_i * 3 + k, mask=inside, other=0.0) - tl.load(
            positions + at_j * 3 + k, mask=inside, other=0.0
        )
        squared += difference * difference
    apart = squared > 0
    inverse = tl.where(apart, tl.rsqrt(tl.where(apart, squared, 1.0)), 0.0)
    return squared * inverse, inverse, real, at_i, at_j, b, i, j


@triton.jit
def prepare_kernel(
    theta, stride, mu, gamma, a_high, a_low, constant, table,
    L: tl.constexpr, LB: tl.constexpr, A_ROWS: tl.constexpr, CONSTANTS: tl.constexpr,
    BIAS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """A = c ∘ [K, k] with c = Q Φ̂(0) + q.

    Rows of the table: [kind, at Q, at K, at q, at k, row of A, row of c, count]; kind 0 is a block of rows of
    A, kind 1 one row of A summed over f (k = 2).
    """
    task = table + tl.program_id(0) * COLUMNS
    m = tl.program_id(1).to(tl.int64)
    kind = tl.load(task)
    at_q, at_k = tl.load(task + 1), tl.load(task + 2)
    count = tl.load(task + 7)
    theta += m * stride
    at_q_bias, at_k_bias = tl.load(task + 3), tl.load(task + 4)
    row_a, row_c = tl.load(task + 5), tl.load(task + 6)
    l = tl.arange(0, LB)
    centre = tl.load(mu + m * L + l, mask=l < L, other=1e6)
    exponent = gamma * centre * centre
    at_zero = tl.where(exponent < EXPONENT_LIMIT, tl.exp(-exponent), 0.0)
    total = tl.zeros((LB,), tl.float32)
    for start in range(0, count, ROWS):
        f = start + tl.arange(0, ROWS)
        inside = f < count
        window = inside[:, None] & (l < L)[None, :]
        at = f[:, None] * L + l[None, :]
        c = tl.sum(tl.load(theta + at_q + at, mask=window, other=0.0) * at_zero[None, :], 1)
        weight = tl.load(theta + at_k + at, mask=window, other=0.0)
        if BIAS:
            c += tl.load(theta + at_q_bias + f, mask=inside, other=0.0)
            offset = tl.load(theta + at_k_bias + f, mask=inside, other=0.0)
            weight += tl.where((l == L)[None, :], offset[:, None], 0.0)
        tl.store(constant + m * CONSTANTS + row_c + f, c, mask=inside)
        a = c[:, None] * weight
        if kind == 0:
            high, low = split(a, PRECISION)
            to = (m * A_ROWS + row_a + f[:, None]) * LB + l[None, :]
            tl.store(a_high + to, high, mask=inside[:, None])
            if PRECISION == "bf16x3":
                tl.store(a_low + to, low, mask=inside[:, None])
        else:
            total += tl.sum(a, 0)
    if kind == 1:
        high, low = split(total, PRECISION)
        to = (m * A_ROWS + row_a) * LB + l
        tl.store(a_high + to, high)
        if PRECISION == "bf16x3":
            tl.store(a_low + to, low)


@triton.jit
def overlaps_kernel(
    a_high, a_low, mu, gamma, numbers, positions, index, count, x, slope,
    C: tl.constexpr, A_ROWS: tl.constexpr, B: tl.constexpr, N: tl.constexpr, NP: tl.constexpr,
    L: tl.constexpr, LB: tl.constexpr, BC: tl.constexpr, BP: tl.constexpr, STEPS: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """X = A Φ̂ and dX/dd for BP pairs and STEPS blocks of BC rows: Φ̂ is made once for them, never stored."""
    m = tl.program_id(2).to(tl.int64)
    p = tl.program_id(0) * BP + tl.arange(0, BP)
    d, _, real, _, _, b, _, _ = pair_geometry(numbers, positions, index, m, count, p, B, N, NP)
    l = tl.arange(0, LB)
    centre = tl.load(mu + m * L + l, mask=l < L, other=1e6)
    offset = d[None, :] - centre[:, None]  # (LB, BP)
    exponent = gamma * offset * offset
    phi = tl.where((exponent < EXPONENT_LIMIT) & real[None, :], tl.exp(-exponent), 0.0)
    s_high, s_low = split((-2.0 * gamma) * offset * phi, PRECISION)
    phi_high, phi_low = split(tl.where((l == L)[:, None] & real[None, :], 1.0, phi), PRECISION)
    zero = tl.zeros((BC, BP), tl.float32)
    first = tl.program_id(1) * (STEPS * BC)
    for start in range(first, min(first + STEPS * BC, A_ROWS), BC):
        row = start + tl.arange(0, BC)
        at = (m * A_ROWS + row[:, None]) * LB + l[None, :]
        high = tl.load(a_high + at)
        low = tl.load(a_low + at)
        to = (m * C + row[:, None]) * (B * N * NP) + p[None, :]
        inside = (row < C)[:, None] & (b < B)[None, :]
        tl.store(slope + to, product(high, low, s_high, s_low, zero, PRECISION), mask=inside)
        tl.store(x + to, product(high, low, phi_high, phi_low, zero, PRECISION), mask=inside)


@triton.jit
def basis_kernel(
    mu, gamma, numbers, positions, index, by_forces, count, pair_of, high, low,
    B: tl.constexpr, N: tl.constexpr, NP: tl.constexpr, HALF: tl.constexpr, L: tl.constexpr,
    LB: tl.constexpr, BP: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Φ̂ and −ḋ Φ̂' of the pairs i ≤ j as operands of `product`: (M, 2 · HALF, LB)."""
    m = tl.program_id(1).to(tl.int64)
    p = tl.program_id(0) * BP + tl.arange(0, BP)
    pairs = N * (N + 1) // 2
    slot = (p // pairs) * (N * NP) + tl.load(pair_of + p % pairs)
    d, inverse, real, at_i, at_j, b, i, j = pair_geometry(numbers, positions, index, m, count, slot, B, N, NP)
    rate = tl.zeros((BP,), tl.float32)
    at = (m * B + b) * N
    for k in tl.static_range(3):
        e = tl.load(positions + at_i * 3 + k, mask=real, other=0.0)
        e -= tl.load(positions + at_j * 3 + k, mask=real, other=0.0)
        r_dot = tl.load(by_forces + (at + i) * 3 + k, mask=real, other=0.0)
        r_dot -= tl.load(by_forces + (at + j) * 3 + k, mask=real, other=0.0)
        rate += e * inverse * r_dot
    l = tl.arange(0, LB)
    centre = tl.load(mu + m * L + l, mask=l < L, other=1e6)
    offset = d[:, None] - centre[None, :]  # (BP, LB)
    exponent = gamma * offset * offset
    phi = tl.where((exponent < EXPONENT_LIMIT) & real[:, None], tl.exp(-exponent), 0.0)
    slope_high, slope_low = split((2.0 * gamma) * rate[:, None] * offset * phi, PRECISION)
    phi_high, phi_low = split(tl.where((l == L)[None, :] & real[:, None], 1.0, phi), PRECISION)
    to = (m * (2 * HALF) + p[:, None]) * LB + l[None, :]
    tl.store(high + to, phi_high)
    tl.store(high + HALF * LB + to, slope_high)
    if PRECISION == "bf16x3":
        tl.store(low + to, phi_low)
        tl.store(low + HALF * LB + to, slope_low)


@triton.jit
def by_folded_kernel(
    pair_high, pair_low, phi_high, phi_low, parts,
    A_ROWS: tl.constexpr, HALF: tl.constexpr, LB: tl.constexpr, BC: tl.constexpr, BK: tl.constexpr,
    STEPS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """∂loss/∂A = [X̂, X̄] [Φ̂, −ḋ Φ̂'], partial sums over STEPS · BK pairs: (splits, M, A_ROWS, LB).

    A plain matrix product: nothing between loads and tensor cores, so that the loads can run ahead.
    """
    part, m = tl.program_id(0), tl.program_id(2).to(tl.int64)
    row = tl.program_id(1) * BC + tl.arange(0, BC)
    l = tl.arange(0, LB)
    k = tl.arange(0, BK)
    a_at = (m * A_ROWS + row[:, None]) * (2 * HALF) + k[None, :]
    b_at = (m * (2 * HALF) + k[:, None]) * LB + l[None, :]
    total = tl.zeros((BC, LB), tl.float32)
    for start in range(part * STEPS * BK, min((part + 1) * STEPS * BK, 2 * HALF), BK):
        a_high = tl.load(pair_high + a_at + start)
        b_high = tl.load(phi_high + b_at + start * LB)
        if PRECISION == "bf16x3":
            a_low = tl.load(pair_low + a_at + start)
            b_low = tl.load(phi_low + b_at + start * LB)
        else:
            a_low, b_low = a_high, b_high
        total = product(a_high, a_low, b_high, b_low, total, PRECISION)
    to = ((part * tl.num_programs(2) + m) * A_ROWS + row[:, None]) * LB + l[None, :]
    tl.store(parts + to, total)


@triton.jit
def unfold_kernel(
    theta, stride, mu, gamma, constant, parts, gradient, table,
    L: tl.constexpr, LB: tl.constexpr, A_ROWS: tl.constexpr, CONSTANTS: tl.constexpr, SPLITS: tl.constexpr,
    BIAS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, PARAMETERS: tl.constexpr,
):  # fmt: skip
    """From ∂loss/∂A to Q, q, K and k, straight into the flat gradient; for k = 2 one A serves all f.

    Rows of the table: [at Q, at K, at q, at k, row of A, step of it with f, row of c, count].
    """
    task = table + tl.program_id(0) * COLUMNS
    m = tl.program_id(1).to(tl.int64)
    at_q, at_k = tl.load(task), tl.load(task + 1)
    row_a, step, row_c = tl.load(task + 4), tl.load(task + 5), tl.load(task + 6)
    count = tl.load(task + 7)
    f = tl.arange(0, ROWS)
    l = tl.arange(0, LB)
    inside = f < count
    by_a = tl.zeros((ROWS, LB), tl.float32)
    for part in tl.static_range(SPLITS):
        at = ((part * tl.num_programs(1) + m) * A_ROWS + row_a + f[:, None] * step) * LB + l[None, :]
        by_a += tl.load(parts + at, mask=inside[:, None], other=0.0)
    theta += m * stride
    gradient += m * PARAMETERS
    window = inside[:, None] & (l < L)[None, :]
    at = f[:, None] * L + l[None, :]
    c = tl.load(constant + m * CONSTANTS + row_c + f, mask=inside, other=0.0)
    weight = tl.load(theta + at_k + at, mask=window, other=0.0)
    if BIAS:
        at_q_bias, at_k_bias = tl.load(task + 2), tl.load(task + 3)
        offset = tl.load(theta + at_k_bias + f, mask=inside, other=0.0)
        weight += tl.where((l == L)[None, :], offset[:, None], 0.0)
    by_constant = tl.sum(by_a * weight, 1)
    centre = tl.load(mu + m * L + l, mask=l < L, other=1e6)
    exponent = gamma * centre * centre
    at_zero = tl.where(exponent < EXPONENT_LIMIT, tl.exp(-exponent), 0.0)
    tl.store(gradient + at_k + at, c[:, None] * by_a, mask=window)
    tl.store(gradient + at_q + at, by_constant[:, None] * at_zero[None, :], mask=window)
    if BIAS:
        by_offset = c * tl.sum(tl.where((l == L)[None, :], by_a, 0.0), 1)
        tl.store(gradient + at_k_bias + f, by_offset, mask=inside)
        tl.store(gradient + at_q_bias + f, by_constant, mask=inside)
