"""Triton kernels for silu with its derivatives, and between pairs and atoms.

States are (M, rows, columns), a round and slot of a tape, passed with the stride between members; the stride
between rows, `apart`, is the same for all. Pairs p = (b, i, j) come first among the columns, then zeros.
`dot`, `n` and `hat` as in `dense.program`.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def silu(x):
    return x * tl.sigmoid(x)


@triton.jit
def silu_slope(x):
    s = tl.sigmoid(x)
    return s * (1.0 + x * (1.0 - s))


@triton.jit
def silu_curvature(x):
    s = tl.sigmoid(x)
    return s * (1.0 - s) * (2.0 + x * (1.0 - 2.0 * s))


@triton.jit
def saturated(h, ceiling, units, inside):
    """c(h) of units whose t are at `ceiling` and their w `units` further; see `pair_states.ceiling`."""
    top = tl.load(ceiling, mask=inside, other=0.0)
    room = tl.load(ceiling + units, mask=inside, other=1.0)
    above = tl.maximum(h - top, 0.0) / room
    return tl.where(h > top, top + room * (2.0 * tl.sigmoid(2.0 * above) - 1.0), h)


@triton.jit
def saturation_slope(h, ceiling, units, inside):
    """c' where c has the value h."""
    top = tl.load(ceiling, mask=inside, other=0.0)
    part = tl.maximum(h - top, 0.0) / tl.load(ceiling + units, mask=inside, other=1.0)
    return 1.0 - part * part


@triton.jit
def of_pairs(
    source, stride, scale, mask, m, row, p, inside, batch, atoms, columns, apart,
    ROWS: tl.constexpr, ATOMS: tl.constexpr,
):  # fmt: skip
    """A row of states; if ATOMS, from values of atoms (M, B·N, 2, ROWS), as `TorchKernels._of_pairs`."""
    if ATOMS:
        atom = p // atoms
        b = atom // atoms
        own = (atom % atoms) == (p % atoms)
        real = inside & (b < batch)
        value = tl.load(
            source + m * stride + (atom * 2 + tl.where(own, 0, 1)) * ROWS + row, mask=real, other=0.0
        )
        factor = tl.where(own, 1.0, tl.load(scale + m * batch + b, mask=real, other=0.0))
        return value * factor * tl.load(mask + m * columns + p, mask=inside, other=0.0)
    else:
        return tl.load(source + m * stride + row * apart + p, mask=inside, other=0.0)


@triton.jit
def activate_kernel(
    h, h_m, b1, b1_m, to, to_m, x, x_m, b2, b2_m, after, after_m, ceiling, ceiling_m, mask, u, columns, apart,
    C: tl.constexpr, NEXT: tl.constexpr, UNITS: tl.constexpr, ENVELOPE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """H ← c(H + b₁), U = u silu(H); if NEXT, after = X + u b₂.

    A program does a row of H, and of X if it has it. UNITS: of the ceiling, 0 for none. No ENVELOPE: u = 1.
    """
    p = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    row = tl.program_id(1)
    m = tl.program_id(2).to(tl.int64)
    inside = p < columns
    real = tl.load(mask + m * columns + p, mask=inside, other=0.0)
    factor = real
    if ENVELOPE:
        factor = tl.load(u + m * columns + p, mask=inside, other=0.0)
    at = h + m * h_m + row * apart + p
    value = tl.load(at, mask=inside, other=0.0) + tl.load(b1 + m * b1_m + row) * real
    if UNITS:
        value = saturated(value, ceiling + m * ceiling_m + row, UNITS, row < 2 * C) * real
    tl.store(at, value, mask=inside)
    active = silu(value)
    if ENVELOPE:
        active *= factor
    tl.store(to + m * to_m + row * apart + p, active, mask=inside)
    if NEXT:
        inside = inside & (row < C)
        state = tl.load(x + m * x_m + row * apart + p, mask=inside, other=0.0)
        state += tl.load(b2 + m * b2_m + row, mask=row < C, other=0.0) * factor
        tl.store(after + m * after_m + row * apart + p, state, mask=inside)


@triton.jit
def activate_dot_kernel(
    h, h_m, h_dot, h_dot_m, to, to_m, x_dot, x_dot_m, b2, b2_m, after, after_m, u, u_dot, columns, apart,
    C: tl.constexpr, NEXT: tl.constexpr, ENVELOPE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """U̇ = u silu'(H) Ḣ + u̇ silu(H); if NEXT, after = Ẋ + u̇ b₂."""
    p = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    row = tl.program_id(1)
    m = tl.program_id(2).to(tl.int64)
    inside = p < columns
    at = row * apart + p
    value = tl.load(h + m * h_m + at, mask=inside, other=0.0)
    result = silu_slope(value) * tl.load(h_dot + m * h_dot_m + at, mask=inside, other=0.0)
    if ENVELOPE:
        change = tl.load(u_dot + m * columns + p, mask=inside, other=0.0)
        result *= tl.load(u + m * columns + p, mask=inside, other=0.0)
        result += change * silu(value)
    tl.store(to + m * to_m + at, result, mask=inside)
    if NEXT:
        inside = inside & (row < C)
        state = tl.load(x_dot + m * x_dot_m + at, mask=inside, other=0.0)
        if ENVELOPE:
            state += tl.load(b2 + m * b2_m + row, mask=row < C, other=0.0) * change
        tl.store(after + m * after_m + at, state, mask=inside)


@triton.jit
def activate_adjoint_kernel(
    n_u, n_u_m, h, h_m, before, before_m, n_h, n_h_m, n_x, n_x_m, ceiling, ceiling_m, scale, mask, u,
    batch, atoms, columns, apart,
    C: tl.constexpr, ATOMS: tl.constexpr, CARRY: tl.constexpr, UNITS: tl.constexpr, ENVELOPE: tl.constexpr,
    BLOCK: tl.constexpr,
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
    if ENVELOPE:
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
def activate_hat_kernel(
    u_hat, u_hat_m, n_u, n_u_m, h, h_m, h_dot, h_dot_m, before, before_m, h_hat, h_hat_m, x_hat, x_hat_m,
    scale, mask, u, u_dot, batch, atoms, columns, apart,
    C: tl.constexpr, ATOMS: tl.constexpr, ENVELOPE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Ĥ = silu'(H) (u Û + u̇ n_U) + u silu''(H) Ḣ n_U, X̂ = before. If ATOMS, adjoints are values of atoms."""
    p = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    row = tl.program_id(1)
    m = tl.program_id(2).to(tl.int64)
    inside = p < columns
    at = row * apart + p
    value = tl.load(h + m * h_m + at, mask=inside, other=0.0)
    dot = tl.load(h_dot + m * h_dot_m + at, mask=inside, other=0.0)
    hat = of_pairs(u_hat, u_hat_m, scale, mask, m, row, p, inside, batch, atoms, columns, apart, 2 * C, ATOMS)
    n = of_pairs(n_u, n_u_m, scale, mask, m, row, p, inside, batch, atoms, columns, apart, 2 * C, ATOMS)
    if ENVELOPE:
        factor = tl.load(u + m * columns + p, mask=inside, other=0.0)
        hat = factor * hat + tl.load(u_dot + m * columns + p, mask=inside, other=0.0) * n
        n = factor * n
    result = silu_slope(value) * hat + silu_curvature(value) * dot * n
    tl.store(h_hat + m * h_hat_m + at, result, mask=inside)
    inside = inside & (row < C)
    state = of_pairs(before, before_m, scale, mask, m, row, p, inside, batch, atoms, columns, apart, C, ATOMS)
    tl.store(x_hat + m * x_hat_m + at, state, mask=inside)


@triton.jit
def gather_kernel(
    x, x_m, u, u_m, b2, b2_m, x_sums, x_sums_m, u_sums, u_sums_m, species, scale, others,
    batch, atoms, columns, apart, C: tl.constexpr, NT: tl.constexpr,
    BIAS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Own pair and scaled sum over the others of an atom, of ROWS rows of X + b₂ and U: (M, B·N, 2, rows)."""
    atom = tl.program_id(0)
    r = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    m = tl.program_id(2).to(tl.int64)
    b = atom // atoms
    j = tl.arange(0, NT)
    of_x = r < C
    of_u = (r >= C) & (r < 3 * C)
    column = atom * atoms + j
    inside = (j < atoms)[None, :]
    value = tl.load(
        x + m * x_m + r[:, None] * apart + column[None, :], mask=of_x[:, None] & inside, other=0.0
    )
    value += tl.load(
        u + m * u_m + (r - C)[:, None] * apart + column[None, :], mask=of_u[:, None] & inside, other=0.0
    )
    itself = (j == atom % atoms)[None, :]
    own = tl.sum(tl.where(itself, value, 0.0), 1)
    rest = tl.sum(tl.where(itself, 0.0, value), 1) * tl.load(scale + m * batch + b)
    if BIAS:
        real = tl.where(tl.load(species + m * (batch * atoms) + atom) >= 0, 1.0, 0.0)
        bias = tl.load(b2 + m * b2_m + r, mask=of_x, other=0.0) * real
        own += bias
        rest += bias * tl.load(others + m * batch + b)
    at = m * x_sums_m + atom * (2 * C) + r
    tl.store(x_sums + at, own, mask=of_x)
    tl.store(x_sums + at + C, rest, mask=of_x)
    at = m * u_sums_m + atom * (4 * C) + r - C
    tl.store(u_sums + at, own, mask=of_u)
    tl.store(u_sums + at + 2 * C, rest, mask=of_u)
