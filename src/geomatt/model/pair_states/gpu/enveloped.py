"""Triton kernels for networks with a radius: `activations` with the envelope u, see `dense.envelope`."""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import triton
import triton.language as tl

from geomatt.model.pair_states.gpu.activations import (
    of_pairs,
    saturated,
    saturation_slope,
    silu,
    silu_curvature,
    silu_slope,
)
from geomatt.model.pair_states.gpu.initial import envelope, geometry, rate


@triton.jit
def envelope_kernel(
    positions, species, r_dot, u, slope, u_dot, batch, atoms, columns,
    RADIUS: tl.constexpr, DOT: tl.constexpr, BP: tl.constexpr,
):  # fmt: skip
    """u and du/dd of pairs (M, columns), or if DOT u̇ along ṙ: one for i = j, zero for padding."""
    p = tl.program_id(0) * BP + tl.arange(0, BP)
    m = tl.program_id(1).to(tl.int64)
    d, inverse, _, _, between, itself, at_i, at_j = geometry(positions, species, m, p, batch, atoms)
    value, change = envelope(d, RADIUS)
    change = tl.where(between, change, 0.0)
    at = m * columns + p
    if DOT:
        change *= rate(positions, r_dot, at_i, at_j, inverse, between)
        tl.store(u_dot + at, change, mask=p < columns)
    else:
        tl.store(u + at, tl.where(between, value, tl.where(itself, 1.0, 0.0)), mask=p < columns)
        tl.store(slope + at, change, mask=p < columns)


@triton.jit
def activate_kernel(
    h, h_m, b1, b1_m, to, to_m, x, x_m, b2, b2_m, after, after_m, ceiling, ceiling_m, mask, u, columns, apart,
    C: tl.constexpr, NEXT: tl.constexpr, UNITS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """H ← c(H + b₁), U = u silu(H); if NEXT, after = X + u b₂."""
    p = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    row = tl.program_id(1)
    m = tl.program_id(2).to(tl.int64)
    inside = p < columns
    real = tl.load(mask + m * columns + p, mask=inside, other=0.0)
    factor = tl.load(u + m * columns + p, mask=inside, other=0.0)
    at = h + m * h_m + row * apart + p
    value = tl.load(at, mask=inside, other=0.0) + tl.load(b1 + m * b1_m + row) * real
    if UNITS:
        value = saturated(value, ceiling + m * ceiling_m + row, UNITS, row < 2 * C) * real
    tl.store(at, value, mask=inside)
    tl.store(to + m * to_m + row * apart + p, factor * silu(value), mask=inside)
    if NEXT:
        inside = inside & (row < C)
        state = tl.load(x + m * x_m + row * apart + p, mask=inside, other=0.0)
        state += tl.load(b2 + m * b2_m + row, mask=row < C, other=0.0) * factor
        tl.store(after + m * after_m + row * apart + p, state, mask=inside)


@triton.jit
def activate_dot_kernel(
    h, h_m, h_dot, h_dot_m, to, to_m, x_dot, x_dot_m, b2, b2_m, after, after_m, u, u_dot, columns, apart,
    C: tl.constexpr, NEXT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """U̇ = u silu'(H) Ḣ + u̇ silu(H); if NEXT, after = Ẋ + u̇ b₂."""
    p = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    row = tl.program_id(1)
    m = tl.program_id(2).to(tl.int64)
    inside = p < columns
    factor = tl.load(u + m * columns + p, mask=inside, other=0.0)
    change = tl.load(u_dot + m * columns + p, mask=inside, other=0.0)
    at = row * apart + p
    value = tl.load(h + m * h_m + at, mask=inside, other=0.0)
    dot = tl.load(h_dot + m * h_dot_m + at, mask=inside, other=0.0)
    tl.store(to + m * to_m + at, factor * silu_slope(value) * dot + change * silu(value), mask=inside)
    if NEXT:
        inside = inside & (row < C)
        state = tl.load(x_dot + m * x_dot_m + at, mask=inside, other=0.0)
        state += tl.load(b2 + m * b2_m + row, mask=row < C, other=0.0) * change
        tl.store(after + m * after_m + at, state, mask=inside)


@triton.jit
def activate_adjoint_kernel(
    n_u, n_u_m, h, h_m, before, before_m, n_h, n_h_m, n_x, n_x_m, ceiling, ceiling_m, scale, mask, u,
    batch, atoms, columns, apart,
    C: tl.constexpr, ATOMS: tl.constexpr, CARRY: tl.constexpr, UNITS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """n_H = u silu'(H) c' n_U; if CARRY, n_X = before. If ATOMS, n_U and `before` are values of atoms."""
    p = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    row = tl.program_id(1)
    m = tl.program_id(2).to(tl.int64)
    inside = p < columns
    at = row * apart + p
    value = tl.load(h + m * h_m + at, mask=inside, other=0.0)
    slope = silu_slope(value)
    if UNITS:
        slope *= saturation_slope(value, ceiling + m * ceiling_m + row, UNITS, row < 2 * C)
    slope *= tl.load(u + m * columns + p, mask=inside, other=0.0)
    n = of_pairs(n_u, n_u_m, scale, mask, m, row, p, inside, batch, atoms, columns, apart, 2 * C, ATOMS)
    tl.store(n_h + m * n_h_m + at, slope * n, mask=inside)
    if CARRY:
        inside = inside & (row < C)
        state = of_pairs(
            before, before_m, scale, mask, m, row, p, inside, batch, atoms, columns, apart, C, ATOMS
        )
        tl.store(n_x + m * n_x_m + at, state, mask=inside)


@triton.jit
def by_envelope_kernel(
    n_u, n_u_m, h, h_m, before, before_m, b2, b2_m, n_envelope, scale, mask, batch, atoms, columns, apart,
    C: tl.constexpr, ATOMS: tl.constexpr, ROWS: tl.constexpr, BP: tl.constexpr,
):  # fmt: skip
    """Add to −∂E/∂u of BP pairs (M, columns) what a round contributes: n_U · silu(H) + n_X · b₂."""
    whole = tl.zeros((ROWS, BP), tl.int32)  # loads need indices in the shape of their masks
    p = whole + (tl.program_id(0) * BP + tl.arange(0, BP))[None, :]
    m = tl.program_id(1).to(tl.int64)
    total = tl.zeros((ROWS, BP), tl.float32)
    for start in range(0, 2 * C, ROWS):
        row = whole + (start + tl.arange(0, ROWS))[:, None]
        inside = (p < columns) & (row < 2 * C)
        value = silu(tl.load(h + m * h_m + row * apart + p, mask=inside, other=0.0))
        total += value * of_pairs(
            n_u, n_u_m, scale, mask, m, row, p, inside, batch, atoms, columns, apart, 2 * C, ATOMS
        )
    for start in range(0, C, ROWS):
        row = whole + (start + tl.arange(0, ROWS))[:, None]
        inside = (p < columns) & (row < C)
        bias = tl.load(b2 + m * b2_m + row, mask=row < C, other=0.0)
        total += bias * of_pairs(
            before, before_m, scale, mask, m, row, p, inside, batch, atoms, columns, apart, C, ATOMS
        )
    p = tl.program_id(0) * BP + tl.arange(0, BP)
    at = n_envelope + m * columns + p
    tl.store(at, tl.load(at, mask=p < columns, other=0.0) + tl.sum(total, 0), mask=p < columns)


@triton.jit
def activate_hat_kernel(
    u_hat, u_hat_m, n_u, n_u_m, h, h_m, h_dot, h_dot_m, before, before_m, h_hat, h_hat_m, x_hat, x_hat_m,
    scale, mask, u, u_dot, batch, atoms, columns, apart,
    C: tl.constexpr, ATOMS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Ĥ = silu'(H) (u Û + u̇ n_U) + u silu''(H) Ḣ n_U, X̂ = before. If ATOMS, adjoints are values of atoms."""
    p = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    row = tl.program_id(1)
    m = tl.program_id(2).to(tl.int64)
    inside = p < columns
    at = row * apart + p
    factor = tl.load(u + m * columns + p, mask=inside, other=0.0)
    change = tl.load(u_dot + m * columns + p, mask=inside, other=0.0)
    value = tl.load(h + m * h_m + at, mask=inside, other=0.0)
    dot = tl.load(h_dot + m * h_dot_m + at, mask=inside, other=0.0)
    hat = of_pairs(u_hat, u_hat_m, scale, mask, m, row, p, inside, batch, atoms, columns, apart, 2 * C, ATOMS)
    n = of_pairs(n_u, n_u_m, scale, mask, m, row, p, inside, batch, atoms, columns, apart, 2 * C, ATOMS)
    result = silu_slope(value) * (factor * hat + change * n) + factor * silu_curvature(value) * dot * n
    tl.store(h_hat + m * h_hat_m + at, result, mask=inside)
    inside = inside & (row < C)
    state = of_pairs(before, before_m, scale, mask, m, row, p, inside, batch, atoms, columns, apart, C, ATOMS)
    tl.store(x_hat + m * x_hat_m + at, state, mask=inside)
