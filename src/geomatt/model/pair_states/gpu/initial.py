"""Triton kernels between positions and the initial states X = (K φ) ∘ g ∘ h, X_ii = e.

Distances and their functions are made anew wherever they are needed, and never stored.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import triton
import triton.language as tl

EXPONENT_LIMIT = tl.constexpr(40.0)  # beyond it φ is zero, as in `PairStates.basis`
TAIL = tl.constexpr(64)  # columns of states are a multiple of it, so fewer than these have no pair


@triton.jit
def batch_kernel(
    all_numbers, all_positions, index, count, elements, positions, species, scale, others, mask,
    constant, batch, atoms, columns,
    NT: tl.constexpr, E: tl.constexpr, INDEX: tl.constexpr, CONSTANT: tl.constexpr,
):  # fmt: skip
    """Of one structure: positions, the row of each atom in g, h and e (−1 for padding), s,
    s times the atoms but one, and which pairs are of real atoms.

    If INDEX, structures are those of `index` (M, B) among `count` of each member. The last structure clears
    the columns without a pair.
    """
    b = tl.program_id(0)
    m = tl.program_id(1).to(tl.int64)
    i = tl.arange(0, NT)
    there = i < atoms
    to = (m * batch + b) * atoms + i
    source = to
    if INDEX:
        source = (m * count + tl.load(index + m * batch + b)) * atoms + i
    number = tl.load(all_numbers + source, mask=there, other=0)
    if INDEX:
        for k in tl.static_range(3):
            coordinate = tl.load(all_positions + source * 3 + k, mask=there, other=0.0)
            tl.store(positions + to * 3 + k, coordinate, mask=there)
    row = tl.full((NT,), -1, tl.int32)
    for e in tl.static_range(E):
        row = tl.where(number == tl.load(elements + m * E + e), e, row)
    real = number > 0
    tl.store(species + to, tl.where(real, row, -1), mask=there)
    size = tl.sum(real.to(tl.float32), 0)
    s = 1.0 / tl.sqrt(tl.maximum(size, 1.0))
    if CONSTANT:
        s = constant
    tl.store(scale + m * batch + b, s)
    tl.store(others + m * batch + b, s * (size - 1.0))
    at = b * (atoms * atoms) + i[:, None] * atoms + i[None, :]
    both = (real[:, None] & real[None, :]).to(tl.float32)
    tl.store(mask + m * columns + at, both, mask=there[:, None] & there[None, :])
    tail = batch * atoms * atoms + tl.arange(0, TAIL)
    last = (tail < columns) & (b == batch - 1)
    tl.store(mask + m * columns + tail, tl.zeros((TAIL,), tl.float32), mask=last)


@triton.jit
def geometry(positions, species, m, p, batch, atoms):
    """Of pairs p: distance and its inverse, rows of the elements, whether two real atoms, whether one."""
    atom = p // atoms
    at_i = m * (batch * atoms) + atom
    at_j = m * (batch * atoms) + (atom // atoms) * atoms + p % atoms
    inside = p < batch * atoms * atoms
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
def envelope(d, RADIUS: tl.constexpr):
    """u and du/dd, see `pair_states.envelope`."""
    x = tl.minimum(d / RADIUS, 1.0)
    rest = 1.0 - x
    value = rest * rest * rest * (1.0 + x * (3.0 + x * (6.0 + x * (10.0 + x * (15.0 + x * 21.0)))))
    square = x * x
    return value, (-168.0 / RADIUS) * square * square * x * rest * rest


@triton.jit
def functions(d, between, mu, m, sharpness, decay, L: tl.constexpr, LB: tl.constexpr, RADIUS: tl.constexpr):
    """φ and dφ/dd, (LB, pairs), times the envelope if there is a RADIUS; functions beyond L are zero."""
    l = tl.arange(0, LB)
    centre = tl.load(mu + m * L + l, mask=l < L, other=1e3)
    x = tl.exp(-d / decay)
    offset = x[None, :] - centre[:, None]
    exponent = sharpness * offset * offset
    phi = tl.where((exponent < EXPONENT_LIMIT) & between[None, :], tl.exp(-exponent), 0.0)
    slope = (2.0 * sharpness / decay) * offset * x[None, :] * phi
    if RADIUS > 0:
        u, change = envelope(d, RADIUS)
        slope = slope * u[None, :] + phi * change[None, :]
        phi = phi * u[None, :]
    return phi, slope


@triton.jit
def rows_of(table, table_m, m, z, c, there, C: tl.constexpr):
    """Entries c of the rows z of a table (M, elements, C), as (channels, pairs)."""
    at = table + m * table_m + z[None, :] * C + c[:, None]
    return tl.load(at, mask=there[None, :] & (c < C)[:, None], other=0.0)


@triton.jit
def initial_kernel(
    positions, species, mu, sharpness, decay, weights, k_m, g, h, e, g_m, h_m, e_m, r_dot, x, x_m,
    batch, atoms, columns, apart, C: tl.constexpr, L: tl.constexpr, LB: tl.constexpr, RADIUS: tl.constexpr,
    DOT: tl.constexpr, BC: tl.constexpr, BP: tl.constexpr,
):  # fmt: skip
    """X of BC channels and BP pairs; if DOT, its tangent along ṙ."""
    p = tl.program_id(0) * BP + tl.arange(0, BP)
    c = tl.program_id(1) * BC + tl.arange(0, BC)
    m = tl.program_id(2).to(tl.int64)
    d, inverse, z_i, z_j, between, itself, at_i, at_j = geometry(positions, species, m, p, batch, atoms)
    phi, slope = functions(d, between, mu, m, sharpness, decay, L, LB, RADIUS)
    if DOT:
        phi = slope * rate(positions, r_dot, at_i, at_j, inverse, between)[None, :]
    l = tl.arange(0, LB)
    at = weights + m * k_m + c[:, None] * L + l[None, :]
    k = tl.load(at, mask=(c < C)[:, None] & (l < L)[None, :], other=0.0)
    value = tl.dot(k, phi, input_precision="ieee")
    value *= rows_of(g, g_m, m, z_i, c, between, C) * rows_of(h, h_m, m, z_j, c, between, C)
    if not DOT:
        value += rows_of(e, e_m, m, z_i, c, itself, C)
    inside = (c < C)[:, None] & (p < columns)[None, :]
    tl.store(x + m * x_m + c[:, None] * apart + p[None, :], value, mask=inside)


@triton.jit
def by_distance_kernel(
    positions, species, mu, sharpness, decay, weights, k_m, g, h, g_m, h_m, n_x, n_x_m, n_d,
    batch, atoms, columns, apart, C: tl.constexpr, L: tl.constexpr, LB: tl.constexpr, RADIUS: tl.constexpr,
    BC: tl.constexpr, BP: tl.constexpr,
):  # fmt: skip
    """−∂E/∂d of BP pairs, (M, columns)."""
    p = tl.program_id(0) * BP + tl.arange(0, BP)
    m = tl.program_id(1).to(tl.int64)
    d, _, z_i, z_j, between, _, _, _ = geometry(positions, species, m, p, batch, atoms)
    _, slope = functions(d, between, mu, m, sharpness, decay, L, LB, RADIUS)
    l = tl.arange(0, LB)
    by_phi = tl.zeros((LB, BP), tl.float32)
    for start in range(0, C, BC):
        c = start + tl.arange(0, BC)
        at = n_x + m * n_x_m + c[:, None] * apart + p[None, :]
        n = tl.load(at, mask=(c < C)[:, None] & between[None, :], other=0.0)
        n *= rows_of(g, g_m, m, z_i, c, between, C) * rows_of(h, h_m, m, z_j, c, between, C)
        at = weights + m * k_m + c[None, :] * L + l[:, None]
        k = tl.load(at, mask=(c < C)[None, :] & (l < L)[:, None], other=0.0)  # (LB, BC)
        by_phi = tl.dot(k, n, by_phi, input_precision="ieee")
    tl.store(n_d + m * columns + p, tl.sum(by_phi * slope, 0), mask=p < columns)


@triton.jit
def forces_kernel(positions, n_d, forces, batch, atoms, columns, NT: tl.constexpr):
    """F of one atom, from both directions of its pairs."""
    atom = tl.program_id(0)
    m = tl.program_id(1).to(tl.int64)
    b, i = atom // atoms, atom % atoms
    j = tl.arange(0, NT)
    inside = (j < atoms) & (j != i)
    of = n_d + m * columns + b * (atoms * atoms)
    both = tl.load(of + i * atoms + j, mask=inside, other=0.0) + tl.load(
        of + j * atoms + i, mask=inside, other=0.0
    )
    at_i = m * (batch * atoms) + atom
    at_j = m * (batch * atoms) + b * atoms + j
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
    by_atom, by_k, batch, atoms, columns, apart, chunks, C: tl.constexpr, L: tl.constexpr, LB: tl.constexpr,
    RADIUS: tl.constexpr, NT: tl.constexpr, CHUNK: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Sums of ∂L/∂ over CHUNK rows i of a structure: by g and e of each i, by h of all j, by K.

    `by_atom` is (M, 2 + chunks, B·N, C): g, e, and the parts of h; `by_k` is (M, B·chunks, C, LB).
    """
    b, chunk = tl.program_id(0) // chunks, tl.program_id(0) % chunks
    c = tl.program_id(1) * BC + tl.arange(0, BC)
    m = tl.program_id(2).to(tl.int64)
    j = tl.arange(0, NT)
    l = tl.arange(0, LB)
    at = weights + m * k_m + c[:, None] * L + l[None, :]
    k = tl.load(at, mask=(c < C)[:, None] & (l < L)[None, :], other=0.0)  # (BC, LB)
    total_k = tl.zeros((BC, LB), tl.float32)
    total_h = tl.zeros((BC, NT), tl.float32)
    channels = c < C
    slots = m * ((2 + chunks) * batch * atoms)
    for i in range(chunk * CHUNK, tl.minimum((chunk + 1) * CHUNK, atoms)):
        p = tl.where(j < atoms, b * (atoms * atoms) + i * atoms + j, batch * atoms * atoms)
        d, inverse, z_i, z_j, between, itself, at_i, at_j = geometry(positions, species, m, p, batch, atoms)
        phi, slope = functions(d, between, mu, m, sharpness, decay, L, LB, RADIUS)
        phi_dot = slope * rate(positions, r_dot, at_i, at_j, inverse, between)[None, :]
        there = channels[:, None] & (between | itself)[None, :]
        hat = tl.load(x_hat + m * hat_m + c[:, None] * apart + p[None, :], mask=there, other=0.0)
        n = tl.load(n_x + m * n_m + c[:, None] * apart + p[None, :], mask=there, other=0.0)
        own = tl.sum(tl.where(itself[None, :], hat, 0.0), 1)
        y = hat * tl.dot(k, phi, input_precision="ieee")
        y += n * tl.dot(k, phi_dot, input_precision="ieee")
        g_i = rows_of(g, g_m, m, z_i, c, between, C)
        h_j = rows_of(h, h_m, m, z_j, c, between, C)
        total_h += y * g_i
        both = g_i * h_j
        total_k = tl.dot(hat * both, tl.trans(phi), total_k, input_precision="ieee")
        total_k = tl.dot(n * both, tl.trans(phi_dot), total_k, input_precision="ieee")
        to = by_atom + (slots + b * atoms + i) * C + c
        tl.store(to, tl.sum(y * h_j, 1), mask=channels)
        tl.store(to + (batch * atoms) * C, own, mask=channels)
    to = by_atom + (slots + (2 + chunk) * (batch * atoms) + b * atoms + j)[None, :] * C + c[:, None]
    tl.store(to, total_h, mask=channels[:, None] & (j < atoms)[None, :])
    to = by_k + ((m * batch + b) * chunks + chunk) * (C * LB) + c[:, None] * LB + l[None, :]
    tl.store(to, total_k, mask=channels[:, None])


@triton.jit
def by_element_kernel(
    by_atom, species, result, count, chunks, C: tl.constexpr, E: tl.constexpr, BA: tl.constexpr,
    BC: tl.constexpr,
):  # fmt: skip
    """Sums of `by_atom` over the atoms of an element, (M, 3, E, C): g, e, h."""
    kind, element = tl.program_id(0) // E, tl.program_id(0) % E
    c = tl.program_id(1) * BC + tl.arange(0, BC)
    m = tl.program_id(2).to(tl.int64)
    end = tl.where(kind == 2, 2 + chunks, kind + 1) * count
    total = tl.zeros((BC,), tl.float32)
    for start in range(kind * count, end, BA):
        a = start + tl.arange(0, BA)
        z = tl.load(species + m * count + a % count, mask=a < end, other=-1)
        mine = (z == element) & (a < end)
        at = by_atom + (m * ((2 + chunks) * count) + a[:, None]) * C + c[None, :]
        total += tl.sum(tl.load(at, mask=mine[:, None] & (c < C)[None, :], other=0.0), 0)
    tl.store(result + (m * (3 * E) + tl.program_id(0)) * C + c, total, mask=c < C)
