"""Triton kernels for everything behind α: streams, readout, forces and their derivatives.

One program runs one stream of one structure through all layers, its features in registers. The hidden
layer is linear in the streams, so each program adds a partial sum of it (`hidden_part`), and the sweep that
comes next adds these up. Buffers of features, one row of all of them per member (`stride_work`):

    v, v_dot (S, layers + 1, B·N, V)    u, u_dot, g_bar, u_bar, u_hat (S, layers, B·N, V)    g_hat (S, B·N, V)
    hidden_part (S, B·N, H)             hidden, hidden_bar, hidden_hat, output_hat (B·N, H)
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import triton
import triton.language as tl

from geomatt.model.fused_chain import load_tile, product, split, store_tile, sum_tiles


@triton.jit
def load_rows(pointer, width, N: tl.constexpr, NT: tl.constexpr, V: tl.constexpr, VP: tl.constexpr):
    """N rows of V columns, `width` apart, as a tile (NT, VP)."""
    i = tl.arange(0, NT)[:, None]
    f = tl.arange(0, VP)[None, :]
    return tl.load(pointer + i * width + f, mask=(i < N) & (f < V), other=0.0)


@triton.jit
def store_rows(pointer, tile, width, N: tl.constexpr, NT: tl.constexpr, V: tl.constexpr, VP: tl.constexpr):
    i = tl.arange(0, NT)[:, None]
    f = tl.arange(0, VP)[None, :]
    tl.store(pointer + i * width + f, tile, mask=(i < N) & (f < V))


@triton.jit
def load_matrix(pointer, rows, columns, width, R: tl.constexpr, K: tl.constexpr):
    """A block of a weight matrix as a tile (R, K), rows `width` apart."""
    i = tl.arange(0, R)[:, None]
    j = tl.arange(0, K)[None, :]
    return tl.load(pointer + i * width + j, mask=(i < rows) & (j < columns), other=0.0)


@triton.jit
def add_hidden(
    v, w_high, w_low, hidden_part,
    S: tl.constexpr, N: tl.constexpr, NT: tl.constexpr, V: tl.constexpr, VP: tl.constexpr,
    H: tl.constexpr, BH: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """This stream's share of the hidden layer, without bias."""
    high, low = split(v, PRECISION)
    for start in range(0, H, BH):
        at = start * (S * V)
        h_high = load_matrix(w_high + at, H - start, V, S * V, BH, VP)
        h_low = load_matrix(w_low + at, H - start, V, S * V, BH, VP)
        zero = tl.zeros((NT, BH), tl.float32)
        part = product(high, low, tl.trans(h_high), tl.trans(h_low), zero, PRECISION)
        store_rows(hidden_part + start, part, H, N, NT, H - start, BH)


@triton.jit
def forward_kernel(
    numbers, index, elements, count, theta, stride_theta, w_high, w_low, stride_w, parts, chunks, ranges,
    alpha, v_buffer, u_buffer, hidden_part, stride_work, scale, R,
    AT_EMBEDDING: tl.constexpr, AT_B: tl.constexpr, AT_HIDDEN: tl.constexpr, ELEMENTS: tl.constexpr,
    S: tl.constexpr, LAYERS: tl.constexpr, G: tl.constexpr, B: tl.constexpr,
    N: tl.constexpr, NP: tl.constexpr, NT: tl.constexpr, V: tl.constexpr, VP: tl.constexpr,
    H: tl.constexpr, BH: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """v ← v + α u with u = (Δd / N_S)(W v + b), all layers; keeps α, u and v."""
    s, mb = tl.program_id(0), tl.program_id(1)
    m, b = (mb // B).to(tl.int64), mb % B
    i, f = tl.arange(0, NT), tl.arange(0, VP)
    theta += m * stride_theta
    w_high += m * stride_w
    w_low += m * stride_w
    at_w = s * (LAYERS * V * V)
    at_row = m * stride_work + b * (N * V)
    structure = m * count + tl.load(index + mb)
    number = tl.load(numbers + structure * N + i, mask=i < N, other=0)
    v = tl.zeros((NT, VP), tl.float32)
    for e in range(ELEMENTS):
        row = tl.load(theta + AT_EMBEDDING + e * V + f, mask=f < V, other=0.0)
        v += tl.where((number == tl.load(elements + m * ELEMENTS + e))[:, None], row[None, :], 0.0)
    first, last = tl.load(ranges + 2 * s), tl.load(ranges + 2 * s + 1)
    # The next layer's W is asked for before this layer's products, so that it is there in time.
    high = load_matrix(w_high + at_w, V, V, V, VP, VP)
    low = load_matrix(w_low + at_w, V, V, V, VP, VP)
    for layer in range(LAYERS):
        store_rows(v_buffer + at_row + (s * (LAYERS + 1) + layer) * (B * N * V), v, V, N, NT, V, VP)
        r = mb.to(tl.int64) * LAYERS + layer
        a = sum_tiles(parts + r * chunks * (N * NP), first, last, N, NP, NT, G)
        store_tile(alpha + (s * R + r) * (N * NP), a, N, NP, NT)
        offset = tl.load(theta + AT_B + (s * LAYERS + layer) * V + f, mask=f < V, other=0.0)
        v_high, v_low = split(v, PRECISION)
        zero = tl.zeros((NT, VP), tl.float32)
        u = product(v_high, v_low, tl.trans(high), tl.trans(low), zero, PRECISION)
        if layer + 1 < LAYERS:
            at_w += V * V
        high = load_matrix(w_high + at_w, V, V, V, VP, VP)
        low = load_matrix(w_low + at_w, V, V, V, VP, VP)
        u = scale * (u + offset[None, :])
        store_rows(u_buffer + at_row + (s * LAYERS + layer) * (B * N * V), u, V, N, NT, V, VP)
        a_high, a_low = split(a, PRECISION)
        u_high, u_low = split(u, PRECISION)
        v = product(a_high, a_low, u_high, u_low, v, PRECISION)
    store_rows(v_buffer + at_row + (s * (LAYERS + 1) + LAYERS) * (B * N * V), v, V, N, NT, V, VP)
    at_hidden = AT_HIDDEN + s * V
    to = hidden_part + m * stride_work + (s * B + b) * (N * H)
    add_hidden(v, w_high + at_hidden, w_low + at_hidden, to, S, N, NT, V, VP, H, BH, PRECISION)


@triton.jit
def adjoint_kernel(
    numbers, index, shift, count, theta, stride_theta, w_high, w_low, stride_w, alpha, u_buffer,
    hidden_part, hidden_buffer, hidden_bar, g_bar, u_bar, alpha_bar, energy, stride_work, scale, R,
    AT_HIDDEN: tl.constexpr, AT_HIDDEN_BIAS: tl.constexpr, AT_OUTPUT: tl.constexpr,
    AT_OUTPUT_BIAS: tl.constexpr, S: tl.constexpr, LAYERS: tl.constexpr, B: tl.constexpr,
    N: tl.constexpr, NP: tl.constexpr, NT: tl.constexpr, V: tl.constexpr, VP: tl.constexpr,
    H: tl.constexpr, BH: tl.constexpr, FORCES: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The energy, and ∂E/∂ of the hidden layer, v, u and α."""
    s, mb = tl.program_id(0), tl.program_id(1)
    m, b = (mb // B).to(tl.int64), mb % B
    i = tl.arange(0, NT)
    theta += m * stride_theta
    w_high += m * stride_w
    w_low += m * stride_w
    structure = m * count + tl.load(index + mb)
    real = tl.load(numbers + structure * N + i, mask=i < N, other=0) > 0
    at_hidden = m * stride_work + b * (N * H)
    softplus_shift = tl.load(shift + m)
    g = tl.zeros((NT, VP), tl.float32)
    atomic = tl.zeros((NT,), tl.float32)
    for start in range(0, H, BH):
        h = start + tl.arange(0, BH)
        hidden = tl.zeros((NT, BH), tl.float32)
        for stream in tl.static_range(S):
            at = at_hidden + stream * (B * N * H) + start
            hidden += load_rows(hidden_part + at, H, N, NT, H - start, BH)
        hidden += tl.load(theta + AT_HIDDEN_BIAS + h, mask=h < H, other=0.0)[None, :]
        output = tl.load(theta + AT_OUTPUT + h, mask=h < H, other=0.0)[None, :]
        decay = tl.exp(-tl.abs(hidden))
        sigmoid = tl.where(hidden >= 0, 1.0, decay) / (1.0 + decay)
        active = tl.maximum(hidden, 0.0) + tl.log(1.0 + decay) - softplus_shift
        atomic += tl.sum(active * output, 1)
        bar = tl.where(real[:, None], sigmoid * output, 0.0)
        if s == 0:
            store_rows(hidden_buffer + at_hidden + start, hidden, H, N, NT, H - start, BH)
            store_rows(hidden_bar + at_hidden + start, bar, H, N, NT, H - start, BH)
        if FORCES:
            at_w = AT_HIDDEN + start * (S * V) + s * V
            high = load_matrix(w_high + at_w, H - start, V, S * V, BH, VP)
            low = load_matrix(w_low + at_w, H - start, V, S * V, BH, VP)
            bar_high, bar_low = split(bar, PRECISION)
            g = product(bar_high, bar_low, high, low, g, PRECISION)
    if s == 0:
        atomic = tl.where(real, atomic + tl.load(theta + AT_OUTPUT_BIAS), 0.0)
        tl.store(energy + mb, tl.sum(atomic, 0))
    if FORCES:
        for back in range(LAYERS):
            layer = LAYERS - 1 - back
            at = m * stride_work + (s * LAYERS + layer) * (B * N * V) + b * (N * V)
            at_w = (s * LAYERS + layer) * (V * V)
            high = load_matrix(w_high + at_w, V, V, V, VP, VP)
            low = load_matrix(w_low + at_w, V, V, V, VP, VP)
            u_high, u_low = split(load_rows(u_buffer + at, V, N, NT, V, VP), PRECISION)
            to = (s * R + mb.to(tl.int64) * LAYERS + layer) * (N * NP)
            a_high, a_low = split(load_tile(alpha + to, N, NP, NT), PRECISION)
            store_rows(g_bar + at, g, V, N, NT, V, VP)
            g_high, g_low = split(g, PRECISION)
            bar = product(
                g_high, g_low, tl.trans(u_high), tl.trans(u_low), tl.zeros((NT, NT), tl.float32), PRECISION
            )
            store_tile(alpha_bar + to, bar, N, NP, NT)
            zero = tl.zeros((NT, VP), tl.float32)
            u = product(tl.trans(a_high), tl.trans(a_low), g_high, g_low, zero, PRECISION)
            store_rows(u_bar + at, u, V, N, NT, V, VP)
            if layer > 0:
                u_high, u_low = split(scale * u, PRECISION)
                g = product(u_high, u_low, high, low, g, PRECISION)


@triton.jit
def forces_kernel(
    parts, numbers, positions, index, energy, energy_target, force_target, energy_error, force_error,
    by_forces, count, weight,
    PARTS: tl.constexpr, G: tl.constexpr, ROWS: tl.constexpr, AUTHORS: tl.constexpr,
    TARGETS: tl.constexpr, B: tl.constexpr, N: tl.constexpr, NP: tl.constexpr, NT: tl.constexpr,
):  # fmt: skip
    """Errors of energy and forces of ROWS atoms, and ∂loss/∂F; `weight` is 2 / B.

    TARGETS: 2 for energies and forces, 1 for energies alone, 0 for none (the errors are then the values).
    """
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
    slope = tl.zeros((ROWS, NT), tl.float32)  # of the energy by d_ij, once for ij and once for ji
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
    atoms = tl.sum((tl.load(numbers + structure * N + j, mask=j < N, other=0) > 0).to(tl.float32), 0)
    weight = weight / (3.0 * atoms * atoms) if AUTHORS else weight / atoms
    for k in tl.static_range(3):
        r_i = tl.load(positions + (structure * N + i) * 3 + k, mask=i < N, other=0.0)
        r_j = tl.load(positions + (structure * N + j) * 3 + k, mask=j < N, other=0.0)
        error = -tl.sum(slope * (r_i[:, None] - r_j[None, :]), 1)
        to = (mb * N + i) * 3 + k
        if TARGETS == 2:
            error -= tl.load(force_target + (structure * N + i) * 3 + k, mask=i < N, other=0.0)
            tl.store(by_forces + to, weight * error, mask=i < N)
        if TARGETS == 1:
            tl.store(by_forces + to, tl.zeros((ROWS,), tl.float32), mask=i < N)
        tl.store(force_error + to, error, mask=i < N)
    if tl.program_id(1) == 0:
        by_structure = tl.load(energy + mb)
        if TARGETS > 0:
            by_structure -= tl.load(energy_target + structure)
        tl.store(energy_error + mb, by_structure)


@triton.jit
def tangent_kernel(
    w_high, w_low, stride_w, parts, chunks, ranges, alpha, alpha_dot, u_buffer, v_dot, u_dot, hidden_part,
    stride_work, scale, R,
    AT_HIDDEN: tl.constexpr, S: tl.constexpr, LAYERS: tl.constexpr, 
    G: tl.constexpr, B: tl.constexpr, N: tl.constexpr, NP: tl.constexpr, NT: tl.constexpr,
    V: tl.constexpr, VP: tl.constexpr, H: tl.constexpr, BH: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Tangents of v, u and the hidden layer; keeps α̇. The rows of layer 0 are zero and never written."""
    s, mb = tl.program_id(0), tl.program_id(1)
    m, b = (mb // B).to(tl.int64), mb % B
    w_high += m * stride_w
    w_low += m * stride_w
    at_row = m * stride_work + b * (N * V)
    first, last = tl.load(ranges + 2 * s), tl.load(ranges + 2 * s + 1)
    v = tl.zeros((NT, VP), tl.float32)
    for layer in range(LAYERS):
        at_w = (s * LAYERS + layer) * (V * V)
        high = load_matrix(w_high + at_w, V, V, V, VP, VP)
        low = load_matrix(w_low + at_w, V, V, V, VP, VP)
        at = at_row + (s * LAYERS + layer) * (B * N * V)
        u_high, u_low = split(load_rows(u_buffer + at, V, N, NT, V, VP), PRECISION)
        r = mb.to(tl.int64) * LAYERS + layer
        dot = sum_tiles(parts + r * chunks * (N * NP), first, last, N, NP, NT, G)
        store_tile(alpha_dot + (s * R + r) * (N * NP), dot, N, NP, NT)
        a_high, a_low = split(dot, PRECISION)
        step = product(a_high, a_low, u_high, u_low, v, PRECISION)
        if layer > 0:
            v_high, v_low = split(v, PRECISION)
            zero = tl.zeros((NT, VP), tl.float32)
            u = scale * product(v_high, v_low, tl.trans(high), tl.trans(low), zero, PRECISION)
            store_rows(u_dot + at, u, V, N, NT, V, VP)
            u_high, u_low = split(u, PRECISION)
            a_high, a_low = split(load_tile(alpha + (s * R + r) * (N * NP), N, NP, NT), PRECISION)
            step = product(a_high, a_low, u_high, u_low, step, PRECISION)
        v = step
        store_rows(v_dot + at_row + (s * (LAYERS + 1) + layer + 1) * (B * N * V), v, V, N, NT, V, VP)
    at_hidden = AT_HIDDEN + s * V
    to = hidden_part + m * stride_work + (s * B + b) * (N * H)
    add_hidden(v, w_high + at_hidden, w_low + at_hidden, to, S, N, NT, V, VP, H, BH, PRECISION)


@triton.jit
def stream_hats_kernel(
    numbers, index, shift, count, theta, stride_theta, w_high, w_low, stride_w, alpha, alpha_dot, u_buffer,
    u_dot, g_bar, hidden_part, hidden_buffer, hidden_hat, output_hat, u_hat, g_hat, alpha_hat, energy_error,
    by_energy, stride_work, scale, R,
    AT_HIDDEN: tl.constexpr, AT_OUTPUT: tl.constexpr, S: tl.constexpr, LAYERS: tl.constexpr,
    B: tl.constexpr, N: tl.constexpr, NP: tl.constexpr, NT: tl.constexpr, V: tl.constexpr,
    VP: tl.constexpr, H: tl.constexpr, BH: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """w bar − d/dt bar of the readout, v, u and α; `by_energy` times the energy's error is w."""
    s, mb = tl.program_id(0), tl.program_id(1)
    m, b = (mb // B).to(tl.int64), mb % B
    i = tl.arange(0, NT)
    theta += m * stride_theta
    w_high += m * stride_w
    w_low += m * stride_w
    structure = m * count + tl.load(index + mb)
    real = tl.load(numbers + structure * N + i, mask=i < N, other=0) > 0
    w = tl.where(real, by_energy * tl.load(energy_error + mb), 0.0)[:, None]
    at_hidden = m * stride_work + b * (N * H)
    softplus_shift = tl.load(shift + m)
    g = tl.zeros((NT, VP), tl.float32)
    for start in range(0, H, BH):
        h = start + tl.arange(0, BH)
        dot = tl.zeros((NT, BH), tl.float32)
        for stream in tl.static_range(S):
            at = at_hidden + stream * (B * N * H) + start
            dot += load_rows(hidden_part + at, H, N, NT, H - start, BH)
        hidden = load_rows(hidden_buffer + at_hidden + start, H, N, NT, H - start, BH)
        output = tl.load(theta + AT_OUTPUT + h, mask=h < H, other=0.0)[None, :]
        decay = tl.exp(-tl.abs(hidden))
        sigmoid = tl.where(hidden >= 0, 1.0, decay) / (1.0 + decay)
        active = tl.maximum(hidden, 0.0) + tl.log(1.0 + decay) - softplus_shift
        active_dot = tl.where(real[:, None], sigmoid * dot, 0.0)
        hat = (w * sigmoid - active_dot * (1.0 - sigmoid)) * output
        if s == 0:
            store_rows(hidden_hat + at_hidden + start, hat, H, N, NT, H - start, BH)
            store_rows(output_hat + at_hidden + start, w * active - active_dot, H, N, NT, H - start, BH)
        at_w = AT_HIDDEN + start * (S * V) + s * V
        high = load_matrix(w_high + at_w, H - start, V, S * V, BH, VP)
        low = load_matrix(w_low + at_w, H - start, V, S * V, BH, VP)
        hat_high, hat_low = split(hat, PRECISION)
        g = product(hat_high, hat_low, high, low, g, PRECISION)
    for back in range(LAYERS):
        layer = LAYERS - 1 - back
        at = m * stride_work + (s * LAYERS + layer) * (B * N * V) + b * (N * V)
        at_w = (s * LAYERS + layer) * (V * V)
        to = (s * R + mb.to(tl.int64) * LAYERS + layer) * (N * NP)
        g_high, g_low = split(g, PRECISION)
        bar_high, bar_low = split(-load_rows(g_bar + at, V, N, NT, V, VP), PRECISION)
        u_high, u_low = split(load_rows(u_buffer + at, V, N, NT, V, VP), PRECISION)
        hat = product(
            g_high, g_low, tl.trans(u_high), tl.trans(u_low), tl.zeros((NT, NT), tl.float32), PRECISION
        )
        u_high, u_low = split(load_rows(u_dot + at, V, N, NT, V, VP), PRECISION)
        hat = product(bar_high, bar_low, tl.trans(u_high), tl.trans(u_low), hat, PRECISION)
        store_tile(alpha_hat + to, hat, N, NP, NT)
        a_high, a_low = split(load_tile(alpha + to, N, NP, NT), PRECISION)
        zero = tl.zeros((NT, VP), tl.float32)
        u = product(tl.trans(a_high), tl.trans(a_low), g_high, g_low, zero, PRECISION)
        a_high, a_low = split(load_tile(alpha_dot + to, N, NP, NT), PRECISION)
        u = product(tl.trans(a_high), tl.trans(a_low), bar_high, bar_low, u, PRECISION)
        store_rows(u_hat + at, u, V, N, NT, V, VP)
        high = load_matrix(w_high + at_w, V, V, V, VP, VP)
        low = load_matrix(w_low + at_w, V, V, V, VP, VP)
        u_high, u_low = split(scale * u, PRECISION)
        g = product(u_high, u_low, high, low, g, PRECISION)
    store_rows(g_hat + m * stride_work + (s * B + b) * (N * V), g, V, N, NT, V, VP)
