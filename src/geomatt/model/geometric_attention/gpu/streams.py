"""Triton kernels for everything behind α: streams, readout, forces and their derivatives.

As in `dense.streams`, features are c T, with R = (E + 1) 2^layers coefficients per atom over vectors
T that all atoms share. The readout's hidden layer is linear in them too, so it is c (T Hᵀ), and no kernel
here ever sees a feature or a weight W: `gpu.vectors` made T Hᵀ before, and makes the
weights' gradients from what these kernels leave. Buffers:

    c, c_dot, c_bar (S, M·B, N, R)       hidden_part (S, M·B, N, H)       hidden (M·B, N, H)
    read = T Hᵀ (S, M, R, H)             q_parts (S, M·B, R, H)           output_parts (M·B, H + 1)

Columns size … 2 size − 1 of c are α c of a layer that `size` columns enter. So one tile (N, R) holds the
coefficients of all layers, and c_bar, once complete, the adjoints of all α c. One program runs one stream of
one structure through all layers and adds a partial sum of the hidden layer; the sweep that comes next adds
these up.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import triton
import triton.language as tl

from geomatt.model.geometric_attention.gpu.chain import load_tile, product, split, store_tile, sum_tiles


@triton.jit
def load_rows(pointer, rows, columns, width, R: tl.constexpr, K: tl.constexpr):
    """A block of a matrix as a tile (R, K), rows `width` apart."""
    i = tl.arange(0, R)[:, None]
    j = tl.arange(0, K)[None, :]
    return tl.load(pointer + i * width + j, mask=(i < rows) & (j < columns), other=0.0)


@triton.jit
def store_rows(pointer, tile, rows, columns, width, R: tl.constexpr, K: tl.constexpr):
    i = tl.arange(0, R)[:, None]
    j = tl.arange(0, K)[None, :]
    tl.store(pointer + i * width + j, tile, mask=(i < rows) & (j < columns))


@triton.jit
def moved(high, low, size, BACK: tl.constexpr, RT: tl.constexpr, PRECISION: tl.constexpr):
    """The first `size` columns moved to behind themselves, or (BACK) back from there; others are zero.

    A product with a matrix of zeros and ones, since registers cannot be indexed; it changes no digit.
    """
    k = tl.arange(0, RT)
    if BACK:
        here = (k[:, None] == k[None, :] + size) & (k < size)[None, :]
    else:
        here = (k[:, None] + size == k[None, :]) & (k < size)[:, None]
    matrix = tl.where(here, 1.0, 0.0).to(high.dtype)
    if PRECISION == "bf16x3":
        to_high = tl.dot(high, matrix).to(tl.bfloat16)
        to_low = tl.dot(low, matrix).to(tl.bfloat16)
    else:
        to_high = tl.dot(high, matrix, input_precision=PRECISION)
        to_low = to_high
    return to_high, to_low


@triton.jit
def add_hidden(
    c, read_high, read_low, hidden_part,
    N: tl.constexpr, NT: tl.constexpr, R: tl.constexpr, RT: tl.constexpr, H: tl.constexpr,
    BH: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """This stream's share of the hidden layer, without bias."""
    high, low = split(c, PRECISION)
    for start in range(0, H, BH):
        t_high = load_rows(read_high + start, R, H - start, H, RT, BH)
        t_low = load_rows(read_low + start, R, H - start, H, RT, BH)
        part = product(high, low, t_high, t_low, tl.zeros((NT, BH), tl.float32), PRECISION)
        store_rows(hidden_part + start, part, N, H - start, H, NT, BH)


@triton.jit
def forward_kernel(
    numbers, index, elements, count, read_high, read_low, parts, chunks, ranges, alpha, c_buffer, hidden_part,
    ROWS,
    E: tl.constexpr, R: tl.constexpr, RT: tl.constexpr, LAYERS: tl.constexpr, G: tl.constexpr,
    B: tl.constexpr, N: tl.constexpr, NP: tl.constexpr, NT: tl.constexpr, H: tl.constexpr,
    BH: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Coefficients c ← [c, α c] of all layers; keeps α and c."""
    s, mb = tl.program_id(0), tl.program_id(1)
    m = (mb // B).to(tl.int64)
    member = s * (tl.num_programs(1) // B) + m
    one = s * tl.num_programs(1) + mb.to(tl.int64)
    i, k = tl.arange(0, NT), tl.arange(0, RT)
    structure = m * count + tl.load(index + mb)
    number = tl.load(numbers + structure * N + i, mask=i < N, other=0)
    z = tl.load(elements + m * E + k - 1, mask=(k > 0) & (k <= E), other=-1)
    # The first column is one for every atom; its vector carries the biases.
    start = (k[None, :] == 0) | (number[:, None] == z[None, :])
    c = tl.where(start & (i < N)[:, None], 1.0, 0.0)
    first, last = tl.load(ranges + 2 * s), tl.load(ranges + 2 * s + 1)
    for layer in range(LAYERS):
        r = mb.to(tl.int64) * LAYERS + layer
        a = sum_tiles(parts + r * chunks * (N * NP), first, last, N, NP, NT, G)
        store_tile(alpha + (s * ROWS + r) * (N * NP), a, N, NP, NT)
        a_high, a_low = split(a, PRECISION)
        c_high, c_low = split(c, PRECISION)
        c_high, c_low = moved(c_high, c_low, (E + 1) << layer, False, RT, PRECISION)
        c = product(a_high, a_low, c_high, c_low, c, PRECISION)
    store_rows(c_buffer + one * (N * R), c, N, R, R, NT, RT)
    at = member * (R * H)
    add_hidden(c, read_high + at, read_low + at, hidden_part + one * (N * H), N, NT, R, RT, H, BH, PRECISION)


@triton.jit
def adjoint_kernel(
    numbers, index, shift, count, theta, stride_theta, read_high, read_low, alpha, c_buffer, c_bar,
    hidden_part, hidden_buffer, alpha_bar, energy, atomic_energies, ROWS,
    AT_HIDDEN_BIAS: tl.constexpr, AT_OUTPUT: tl.constexpr, AT_OUTPUT_BIAS: tl.constexpr, S: tl.constexpr,
    E: tl.constexpr, R: tl.constexpr, RT: tl.constexpr, LAYERS: tl.constexpr, B: tl.constexpr,
    N: tl.constexpr, NP: tl.constexpr, NT: tl.constexpr, H: tl.constexpr, BH: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """The energy, and ∂E/∂ of the coefficients and of α."""
    s, mb = tl.program_id(0), tl.program_id(1)
    m = (mb // B).to(tl.int64)
    one = s * tl.num_programs(1) + mb.to(tl.int64)
    at_read = (s * (tl.num_programs(1) // B) + m) * (R * H)
    i = tl.arange(0, NT)
    theta += m * stride_theta
    structure = m * count + tl.load(index + mb)
    real = tl.load(numbers + structure * N + i, mask=i < N, other=0) > 0
    softplus_shift = tl.load(shift + m)
    bar = tl.zeros((NT, RT), tl.float32)
    atomic = tl.zeros((NT,), tl.float32)
    for start in range(0, H, BH):
        h = start + tl.arange(0, BH)
        hidden = tl.zeros((NT, BH), tl.float32)
        for stream in tl.static_range(S):
            at = (stream * tl.num_programs(1) + mb.to(tl.int64)) * (N * H) + start
            hidden += load_rows(hidden_part + at, N, H - start, H, NT, BH)
        hidden += tl.load(theta + AT_HIDDEN_BIAS + h, mask=h < H, other=0.0)[None, :]
        output = tl.load(theta + AT_OUTPUT + h, mask=h < H, other=0.0)[None, :]
        decay = tl.exp(-tl.abs(hidden))
        sigmoid = tl.where(hidden >= 0, 1.0, decay) / (1.0 + decay)
        active = tl.maximum(hidden, 0.0) + tl.log(1.0 + decay) - softplus_shift
        atomic += tl.sum(active * output, 1)
        if s == 0:
            store_rows(hidden_buffer + mb * (N * H) + start, hidden, N, H - start, H, NT, BH)
        high, low = split(tl.where(real[:, None], sigmoid * output, 0.0), PRECISION)
        t_high = load_rows(read_high + at_read + start, R, H - start, H, RT, BH)
        t_low = load_rows(read_low + at_read + start, R, H - start, H, RT, BH)
        bar = product(high, low, tl.trans(t_high), tl.trans(t_low), bar, PRECISION)
    if s == 0:
        atomic = tl.where(real, atomic + tl.load(theta + AT_OUTPUT_BIAS), 0.0)
        tl.store(atomic_energies + mb * N + i, atomic, mask=i < N)
        tl.store(energy + mb, tl.sum(atomic, 0))
    c_high, c_low = split(load_rows(c_buffer + one * (N * R), N, R, R, NT, RT), PRECISION)
    for back in range(LAYERS):
        layer = LAYERS - 1 - back
        to = (s * ROWS + mb.to(tl.int64) * LAYERS + layer) * (N * NP)
        high, low = split(bar, PRECISION)
        high, low = moved(high, low, (E + 1) << layer, True, RT, PRECISION)
        zero = tl.zeros((NT, NT), tl.float32)
        by_alpha = product(high, low, tl.trans(c_high), tl.trans(c_low), zero, PRECISION)
        store_tile(alpha_bar + to, by_alpha, N, NP, NT)
        if layer > 0:  # what enters the first layer is constant
            a_high, a_low = split(load_tile(alpha + to, N, NP, NT), PRECISION)
            bar = product(tl.trans(a_high), tl.trans(a_low), high, low, bar, PRECISION)
    store_rows(c_bar + one * (N * R), bar, N, R, R, NT, RT)


@triton.jit
def forces_kernel(
    parts, positions, index, forces, count,
    PARTS: tl.constexpr, G: tl.constexpr, ROWS: tl.constexpr,
    B: tl.constexpr, N: tl.constexpr, NP: tl.constexpr, NT: tl.constexpr,
):  # fmt: skip
    """Forces on ROWS atoms of a structure from the partial sums of ∂E/∂d."""
    mb = tl.program_id(0)
    m = (mb // B).to(tl.int64)
    i = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    j = tl.arange(0, NT)
    structure = m * count + tl.load(index + mb)
    part = tl.arange(0, G)[:, None, None]
    window = ((i < N)[:, None] & (j < N)[None, :])[None]
    at = (i[:, None] * NP + j[None, :])[None]
    transposed = (j[None, :] * NP + i[:, None])[None]
    parts += mb.to(tl.int64) * PARTS * (N * NP)
    slope = tl.zeros((ROWS, NT), tl.float32)  # ∂E/∂d_ij, of both directions of the pair
    for start in range(0, PARTS, G):
        inside = window & (start + part < PARTS)
        source = parts + (start + part) * (N * NP)
        both = tl.load(source + at, mask=inside, other=0.0) + tl.load(
            source + transposed, mask=inside, other=0.0
        )
        slope += tl.sum(both, 0)
    squared = tl.zeros((ROWS, NT), tl.float32)
    for k in tl.static_range(3):
        r_i = tl.load(positions + (structure * N + i) * 3 + k, mask=i < N, other=0.0)
        r_j = tl.load(positions + (structure * N + j) * 3 + k, mask=j < N, other=0.0)
        squared += (r_i[:, None] - r_j[None, :]) * (r_i[:, None] - r_j[None, :])
    slope = tl.where(squared > 0, slope * tl.rsqrt(tl.where(squared > 0, squared, 1.0)), 0.0)
    for k in tl.static_range(3):
        r_i = tl.load(positions + (structure * N + i) * 3 + k, mask=i < N, other=0.0)
        r_j = tl.load(positions + (structure * N + j) * 3 + k, mask=j < N, other=0.0)
        force = -tl.sum(slope * (r_i[:, None] - r_j[None, :]), 1)
        tl.store(forces + (mb * N + i) * 3 + k, force, mask=i < N)


@triton.jit
def tangent_kernel(
    read_high, read_low, parts, chunks, ranges, alpha, alpha_dot, c_buffer, c_dot, hidden_part, ROWS,
    E: tl.constexpr, R: tl.constexpr, RT: tl.constexpr, LAYERS: tl.constexpr, G: tl.constexpr,
    B: tl.constexpr, N: tl.constexpr, NP: tl.constexpr, NT: tl.constexpr, H: tl.constexpr,
    BH: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """dc/dt of all layers, and of the hidden layer."""
    s, mb = tl.program_id(0), tl.program_id(1)
    m = (mb // B).to(tl.int64)
    one = s * tl.num_programs(1) + mb.to(tl.int64)
    c_high, c_low = split(load_rows(c_buffer + one * (N * R), N, R, R, NT, RT), PRECISION)
    c = tl.zeros((NT, RT), tl.float32)
    first, last = tl.load(ranges + 2 * s), tl.load(ranges + 2 * s + 1)
    for layer in range(LAYERS):
        r = mb.to(tl.int64) * LAYERS + layer
        dot = sum_tiles(parts + r * chunks * (N * NP), first, last, N, NP, NT, G)
        store_tile(alpha_dot + (s * ROWS + r) * (N * NP), dot, N, NP, NT)
        dot_high, dot_low = split(c, PRECISION)
        dot_high, dot_low = moved(dot_high, dot_low, (E + 1) << layer, False, RT, PRECISION)
        a_high, a_low = split(load_tile(alpha + (s * ROWS + r) * (N * NP), N, NP, NT), PRECISION)
        c = product(a_high, a_low, dot_high, dot_low, c, PRECISION)
        high, low = moved(c_high, c_low, (E + 1) << layer, False, RT, PRECISION)
        a_high, a_low = split(dot, PRECISION)
        c = product(a_high, a_low, high, low, c, PRECISION)
    store_rows(c_dot + one * (N * R), c, N, R, R, NT, RT)
    at = (s * (tl.num_programs(1) // B) + m) * (R * H)
    add_hidden(c, read_high + at, read_low + at, hidden_part + one * (N * H), N, NT, R, RT, H, BH, PRECISION)


@triton.jit
def stream_hats_kernel(
    numbers, index, shift, count, theta, stride_theta, read_high, read_low, alpha, alpha_dot, c_buffer, c_dot,
    c_bar, hidden_part, hidden_buffer, alpha_hat, q_parts, output_parts, by_energy, ROWS,
    AT_OUTPUT: tl.constexpr, S: tl.constexpr, E: tl.constexpr, R: tl.constexpr, RT: tl.constexpr,
    LAYERS: tl.constexpr, B: tl.constexpr, N: tl.constexpr, NP: tl.constexpr, NT: tl.constexpr,
    H: tl.constexpr, BH: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """w bar − d/dt bar of the readout, c and α; w is `by_energy`.

    Also this structure's share of ∂loss/∂(T Hᵀ) = Σ_atoms cᵀ ĥ − ċᵀ h̄, and of the output's gradient.
    """
    s, mb = tl.program_id(0), tl.program_id(1)
    m = (mb // B).to(tl.int64)
    one = s * tl.num_programs(1) + mb.to(tl.int64)
    at_read = (s * (tl.num_programs(1) // B) + m) * (R * H)
    i = tl.arange(0, NT)
    theta += m * stride_theta
    structure = m * count + tl.load(index + mb)
    real = tl.load(numbers + structure * N + i, mask=i < N, other=0) > 0
    w = tl.where(real, tl.load(by_energy + mb), 0.0)[:, None]
    softplus_shift = tl.load(shift + m)
    c_high, c_low = split(load_rows(c_buffer + one * (N * R), N, R, R, NT, RT), PRECISION)
    dot_high, dot_low = split(load_rows(c_dot + one * (N * R), N, R, R, NT, RT), PRECISION)
    c_hat = tl.zeros((NT, RT), tl.float32)
    for start in range(0, H, BH):
        h = start + tl.arange(0, BH)
        dot = tl.zeros((NT, BH), tl.float32)
        for stream in tl.static_range(S):
            at = (stream * tl.num_programs(1) + mb.to(tl.int64)) * (N * H) + start
            dot += load_rows(hidden_part + at, N, H - start, H, NT, BH)
        hidden = load_rows(hidden_buffer + mb * (N * H) + start, N, H - start, H, NT, BH)
        output = tl.load(theta + AT_OUTPUT + h, mask=h < H, other=0.0)[None, :]
        decay = tl.exp(-tl.abs(hidden))
        sigmoid = tl.where(hidden >= 0, 1.0, decay) / (1.0 + decay)
        active = tl.maximum(hidden, 0.0) + tl.log(1.0 + decay) - softplus_shift
        active_dot = tl.where(real[:, None], sigmoid * dot, 0.0)
        if s == 0:
            total = tl.sum(w * active - active_dot, 0)
            tl.store(output_parts + mb * (H + 1) + h, total, mask=h < H)
        high, low = split((w * sigmoid - active_dot * (1.0 - sigmoid)) * output, PRECISION)
        t_high = load_rows(read_high + at_read + start, R, H - start, H, RT, BH)
        t_low = load_rows(read_low + at_read + start, R, H - start, H, RT, BH)
        c_hat = product(high, low, tl.trans(t_high), tl.trans(t_low), c_hat, PRECISION)
        zero = tl.zeros((RT, BH), tl.float32)
        q = product(tl.trans(c_high), tl.trans(c_low), high, low, zero, PRECISION)
        high, low = split(tl.where(real[:, None], -sigmoid * output, 0.0), PRECISION)
        q = product(tl.trans(dot_high), tl.trans(dot_low), high, low, q, PRECISION)
        store_rows(q_parts + one * (R * H) + start, q, R, H - start, H, RT, BH)
    if s == 0:
        tl.store(output_parts + mb * (H + 1) + H, tl.sum(tl.sum(w, 1), 0))
    bar_high, bar_low = split(-load_rows(c_bar + one * (N * R), N, R, R, NT, RT), PRECISION)
    for back in range(LAYERS):
        layer = LAYERS - 1 - back
        to = (s * ROWS + mb.to(tl.int64) * LAYERS + layer) * (N * NP)
        high, low = split(c_hat, PRECISION)
        high, low = moved(high, low, (E + 1) << layer, True, RT, PRECISION)
        minus_high, minus_low = moved(bar_high, bar_low, (E + 1) << layer, True, RT, PRECISION)
        hat = tl.zeros((NT, NT), tl.float32)
        hat = product(high, low, tl.trans(c_high), tl.trans(c_low), hat, PRECISION)
        hat = product(minus_high, minus_low, tl.trans(dot_high), tl.trans(dot_low), hat, PRECISION)
        store_tile(alpha_hat + to, hat, N, NP, NT)
        if layer > 0:
            a_high, a_low = split(load_tile(alpha + to, N, NP, NT), PRECISION)
            c_hat = product(tl.trans(a_high), tl.trans(a_low), high, low, c_hat, PRECISION)
            a_high, a_low = split(load_tile(alpha_dot + to, N, NP, NT), PRECISION)
            c_hat = product(tl.trans(a_high), tl.trans(a_low), minus_high, minus_low, c_hat, PRECISION)
