"""Triton kernels between positions and the initial states X = (K φ) ∘ g ∘ h, X_ii = e.

Distances and their functions are made anew wherever they are needed, and never stored.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import triton
import triton.language as tl

EXPONENT_LIMIT = tl.constexpr(40.0)  # beyond it φ is zero, as in `PairStates.basis`


@triton.jit
def batch_kernel(
    numbers, elements, species, scale, others, mask, constant,
    B: tl.constexpr, N: tl.constexpr, NT: tl.constexpr, E: tl.constexpr, COLUMNS: tl.constexpr,
    CONSTANT: tl.constexpr,
):  # fmt: skip
    """Of one structure: the row of each atom in g, h and e (−1 for padding), s, s times the atoms but one,
    and which pairs are of real atoms. The last structure also clears the columns that mean nothing."""
    b = tl.program_id(0)
    m = tl.program_id(1).to(tl.int64)
    i = tl.arange(0, NT)
    number = tl.load(numbers + (m * B + b) * N + i, mask=i < N, other=0)
    row = tl.full((NT,), -1, tl.int32)
    for e in tl.static_range(E):
        row = tl.where(number == tl.load(elements + m * E + e), e, row)
    real = number > 0
    tl.store(species + (m * B + b) * N + i, tl.where(real, row, -1), mask=i < N)
    atoms = tl.sum(real.to(tl.float32), 0)
    s = 1.0 / tl.sqrt(tl.maximum(atoms, 1.0))
    if CONSTANT:
        s = constant
    tl.store(scale + m * B + b, s)
    tl.store(others + m * B + b, s * (atoms - 1.0))
    at = b * (N * N) + i[:, None] * N + i[None, :]
    both = (real[:, None] & real[None, :]).to(tl.float32)
    tl.store(mask + m * COLUMNS + at, both, mask=(i < N)[:, None] & (i < N)[None, :])
    if b == B - 1:
        tail = B * N * N + tl.arange(0, 64)
        tl.store(mask + m * COLUMNS + tail, tl.zeros((64,), tl.float32), mask=tail < COLUMNS)


@triton.jit
def geometry(positions, species, m, p, B: tl.constexpr, N: tl.constexpr):
    """Of pairs p: distance and its inverse, rows of the elements, whether two real atoms, whether one."""
    atom = p // N
    at_i = m * (B * N) + atom
    at_j = m * (B * N) + (p // (N * N)) * N + p % N
    inside = p < B * N * N
    z_i = tl.load(species + at_i, mask=inside, other=-1)
    z_j = tl.load(species + at_j, mask=inside, other=-1)
    squared = tl.zeros(p.shape, tl.float32)
    for k in tl.static_range(3):
        difference = tl.load(positions + at_i * 3 + k, mask=inside, other=0.0)
        difference -= tl.load(positions + at_j * 3 + k, mask=inside, other=0.0)
        squared += difference * difference
    apart = squared > 0
    inverse = tl.where(apart, 1.0 / tl.sqrt(tl.where(apart, squared, 1.0)), 0.0)
    real = (z_i >= 0) & (z_j >= 0)
    itself = at_i == at_j
    return squared * inverse, inverse, z_i, z_j, real & (at_i != at_j), real & itself, at_i, at_j


@triton.jit
def rate(positions, r_dot, at_i, at_j, inverse, between):
    """ḋ of pairs along ṙ."""
    result = tl.zeros(inverse.shape, tl.float32)
    for k in tl.static_range(3):
        e = tl.load(positions + at_i * 3 + k, mask=between, other=0.0)
        e -= tl.load(positions + at_j * 3 + k, mask=between, other=0.0)
        v = tl.load(r_dot + at_i * 3 + k, mask=between, other=0.0)
        v -= tl.load(r_dot + at_j * 3 + k, mask=between, other=0.0)
        result += e * inverse * v
    return result


@triton.jit
def functions(d, between, mu, m, sharpness, decay, L: tl.constexpr, LB: tl.constexpr):
    """φ and dφ/dd, (LB, pairs); functions beyond L are zero."""
    l = tl.arange(0, LB)
    centre = tl.load(mu + m * L + l, mask=l < L, other=1e3)
    x = tl.exp(-d / decay)
    offset = x[None, :] - centre[:, None]
    exponent = sharpness * offset * offset
    phi = tl.where((exponent < EXPONENT_LIMIT) & between[None, :], tl.exp(-exponent), 0.0)
    return phi, (2.0 * sharpness / decay) * offset * x[None, :] * phi


@triton.jit
def rows_of(table, table_m, m, z, c, there, C: tl.constexpr):
    """Entries c of the rows z of a table (M, elements, C), as (channels, pairs)."""
    at = table + m * table_m + z[None, :] * C + c[:, None]
    return tl.load(at, mask=there[None, :] & (c < C)[:, None], other=0.0)


@triton.jit
def initial_kernel(
    positions, species, mu, sharpness, decay, weights, k_m, g, h, e, g_m, h_m, e_m, r_dot, x, x_m,
    C: tl.constexpr, L: tl.constexpr, LB: tl.constexpr, B: tl.constexpr, N: tl.constexpr,
    COLUMNS: tl.constexpr, DOT: tl.constexpr, BC: tl.constexpr, BP: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """X of BC channels and BP pairs; if DOT, its tangent along ṙ."""
    p = tl.program_id(0) * BP + tl.arange(0, BP)
    c = tl.program_id(1) * BC + tl.arange(0, BC)
    m = tl.program_id(2).to(tl.int64)
    d, inverse, z_i, z_j, between, itself, at_i, at_j = geometry(positions, species, m, p, B, N)
    phi, slope = functions(d, between, mu, m, sharpness, decay, L, LB)
    if DOT:
        phi = slope * rate(positions, r_dot, at_i, at_j, inverse, between)[None, :]
    l = tl.arange(0, LB)
    at = weights + m * k_m + c[:, None] * L + l[None, :]
    k = tl.load(at, mask=(c < C)[:, None] & (l < L)[None, :], other=0.0)
    value = tl.dot(k, phi, input_precision=PRECISION)
    value *= rows_of(g, g_m, m, z_i, c, between, C) * rows_of(h, h_m, m, z_j, c, between, C)
    if not DOT:
        value += rows_of(e, e_m, m, z_i, c, itself, C)
    inside = (c < C)[:, None] & (p < COLUMNS)[None, :]
    tl.store(x + m * x_m + c[:, None] * COLUMNS + p[None, :], value, mask=inside)


@triton.jit
def by_distance_kernel(
    positions, species, mu, sharpness, decay, weights, k_m, g, h, g_m, h_m, n_x, n_x_m, n_d,
    C: tl.constexpr, L: tl.constexpr, LB: tl.constexpr, B: tl.constexpr, N: tl.constexpr,
    COLUMNS: tl.constexpr, BC: tl.constexpr, BP: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """−∂E/∂d of BP pairs, (M, COLUMNS)."""
    p = tl.program_id(0) * BP + tl.arange(0, BP)
    m = tl.program_id(1).to(tl.int64)
    d, _, z_i, z_j, between, _, _, _ = geometry(positions, species, m, p, B, N)
    _, slope = functions(d, between, mu, m, sharpness, decay, L, LB)
    l = tl.arange(0, LB)
    by_phi = tl.zeros((LB, BP), tl.float32)
    for start in range(0, C, BC):
        c = start + tl.arange(0, BC)
        at = n_x + m * n_x_m + c[:, None] * COLUMNS + p[None, :]
        n = tl.load(at, mask=(c < C)[:, None] & between[None, :], other=0.0)
        n *= rows_of(g, g_m, m, z_i, c, between, C) * rows_of(h, h_m, m, z_j, c, between, C)
        at = weights + m * k_m + c[None, :] * L + l[:, None]
        k = tl.load(at, mask=(c < C)[None, :] & (l < L)[:, None], other=0.0)  # (LB, BC)
        by_phi = tl.dot(k, n, by_phi, input_precision=PRECISION)
    tl.store(n_d + m * COLUMNS + p, tl.sum(by_phi * slope, 0), mask=p < COLUMNS)


@triton.jit
def forces_kernel(
    positions, n_d, forces, B: tl.constexpr, N: tl.constexpr, NT: tl.constexpr, COLUMNS: tl.constexpr
):
    """F of one atom, from both directions of its pairs."""
    atom = tl.program_id(0)
    m = tl.program_id(1).to(tl.int64)
    b, i = atom // N, atom % N
    j = tl.arange(0, NT)
    inside = (j < N) & (j != i)
    of = n_d + m * COLUMNS + b * (N * N)
    both = tl.load(of + i * N + j, mask=inside, other=0.0) + tl.load(of + j * N + i, mask=inside, other=0.0)
    at_i = m * (B * N) + atom
    at_j = m * (B * N) + b * N + j
    squared = tl.zeros((NT,), tl.float32)
    for k in tl.static_range(3):
        difference = tl.load(positions + at_i * 3 + k) - tl.load(
            positions + at_j * 3 + k, mask=inside, other=0.0
        )
        squared += difference * difference
    apart = inside & (squared > 0)
    both *= tl.where(apart, 1.0 / tl.sqrt(tl.where(apart, squared, 1.0)), 0.0)
    for k in tl.static_range(3):
        difference = tl.load(positions + at_i * 3 + k) - tl.load(
            positions + at_j * 3 + k, mask=inside, other=0.0
        )
        tl.store(forces + at_i * 3 + k, tl.sum(both * difference, 0))


@triton.jit
def initial_gradient_kernel(
    positions, species, mu, sharpness, decay, weights, k_m, g, h, g_m, h_m, r_dot, x_hat, hat_m, n_x, n_m,
    by_atom, by_k, C: tl.constexpr, L: tl.constexpr, LB: tl.constexpr, B: tl.constexpr, N: tl.constexpr,
    NT: tl.constexpr, COLUMNS: tl.constexpr, CHUNK: tl.constexpr, CHUNKS: tl.constexpr, BC: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Sums of ∂L/∂ over CHUNK rows i of a structure: by g and e of each i, by h of all j, by K.

    `by_atom` is (M, 2 + CHUNKS, B·N, C): g, e, and the parts of h; `by_k` is (M, B·CHUNKS, C, LB).
    """
    b, chunk = tl.program_id(0) // CHUNKS, tl.program_id(0) % CHUNKS
    c = tl.program_id(1) * BC + tl.arange(0, BC)
    m = tl.program_id(2).to(tl.int64)
    j = tl.arange(0, NT)
    l = tl.arange(0, LB)
    at = weights + m * k_m + c[:, None] * L + l[None, :]
    k = tl.load(at, mask=(c < C)[:, None] & (l < L)[None, :], other=0.0)  # (BC, LB)
    total_k = tl.zeros((BC, LB), tl.float32)
    total_h = tl.zeros((BC, NT), tl.float32)
    channels = c < C
    slots = m * ((2 + CHUNKS) * B * N)
    for i in range(chunk * CHUNK, tl.minimum((chunk + 1) * CHUNK, N)):
        p = tl.where(j < N, b * (N * N) + i * N + j, B * N * N)
        d, inverse, z_i, z_j, between, itself, at_i, at_j = geometry(positions, species, m, p, B, N)
        phi, slope = functions(d, between, mu, m, sharpness, decay, L, LB)
        phi_dot = slope * rate(positions, r_dot, at_i, at_j, inverse, between)[None, :]
        there = channels[:, None] & (between | itself)[None, :]
        hat = tl.load(x_hat + m * hat_m + c[:, None] * COLUMNS + p[None, :], mask=there, other=0.0)
        n = tl.load(n_x + m * n_m + c[:, None] * COLUMNS + p[None, :], mask=there, other=0.0)
        own = tl.sum(tl.where(itself[None, :], hat, 0.0), 1)
        y = hat * tl.dot(k, phi, input_precision=PRECISION)
        y += n * tl.dot(k, phi_dot, input_precision=PRECISION)
        g_i = rows_of(g, g_m, m, z_i, c, between, C)
        h_j = rows_of(h, h_m, m, z_j, c, between, C)
        total_h += y * g_i
        both = g_i * h_j
        total_k = tl.dot(hat * both, tl.trans(phi), total_k, input_precision=PRECISION)
        total_k = tl.dot(n * both, tl.trans(phi_dot), total_k, input_precision=PRECISION)
        to = by_atom + (slots + b * N + i) * C + c
        tl.store(to, tl.sum(y * h_j, 1), mask=channels)
        tl.store(to + (B * N) * C, own, mask=channels)
    to = by_atom + (slots + (2 + chunk) * (B * N) + b * N + j)[None, :] * C + c[:, None]
    tl.store(to, total_h, mask=channels[:, None] & (j < N)[None, :])
    to = by_k + ((m * B + b) * CHUNKS + chunk) * (C * LB) + c[:, None] * LB + l[None, :]
    tl.store(to, total_k, mask=channels[:, None])


@triton.jit
def by_element_kernel(
    by_atom, species, result, C: tl.constexpr, E: tl.constexpr, ATOMS: tl.constexpr, CHUNKS: tl.constexpr,
    BA: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Sums of `by_atom` over the atoms of an element, (M, 3, E, C): g, e, h."""
    kind, element = tl.program_id(0) // E, tl.program_id(0) % E
    c = tl.program_id(1) * BC + tl.arange(0, BC)
    m = tl.program_id(2).to(tl.int64)
    end = tl.where(kind == 2, 2 + CHUNKS, kind + 1) * ATOMS
    total = tl.zeros((BC,), tl.float32)
    for start in range(kind * ATOMS, end, BA):
        a = start + tl.arange(0, BA)
        z = tl.load(species + m * ATOMS + a % ATOMS, mask=a < end, other=-1)
        mine = (z == element) & (a < end)
        at = by_atom + (m * ((2 + CHUNKS) * ATOMS) + a[:, None]) * C + c[None, :]
        total += tl.sum(tl.load(at, mask=mine[:, None] & (c < C)[None, :], other=0.0), 0)
    tl.store(result + (m * (3 * E) + tl.program_id(0)) * C + c, total, mask=c < C)
