"""Triton kernels of the envelope u of networks with a radius, see `dense.envelope`."""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import triton
import triton.language as tl

from geomatt.model.pair_states.gpu.activations import of_pairs, silu
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
