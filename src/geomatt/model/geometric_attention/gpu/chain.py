"""Triton kernels for everything between the overlaps X and α, and their derivatives.

The formulas are those of `dense.chain` and `dense.program`; the names match. Layouts:

    X, X'          (M, C, B, N, NP)      C rows: every (stream, layer, module, f); k = 2 has a row per layer
    [X̂, X̄]        (M, A_ROWS, 2 · HALF)   both directions of a pair added up, i ≤ j only, B · N(N + 1)/2 each
    α parts        (M, B, layers, chunks, N, NP)   partial sums, added up by whoever reads them
    α, ᾱ, α̂, α̇   (S, M, B, layers, N, NP)

NP is N rounded up so that rows start at 16 bytes; columns N … NP − 1 always hold zeros. Inside a kernel a
pair matrix is a tile (NT, NT), NT the next power of two. A chunk is a range of channels of one stream: the
unit of parallel work, and the row of a table [order, first row of the stream, F, first f, last f + 1].

All products are sums over bfloat16 halves (`split`, `product`): a = high + low keeps 16 bits, and three
tensor-core products give 1e-5 where one in TF32 would give 5e-4. Other precisions of `tl.dot` work too.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def split(x, PRECISION: tl.constexpr):
    """x as operand of `product`: the parts high and low."""
    if PRECISION == "bf16x3":
        high = x.to(tl.bfloat16)
        low = (x - high.to(tl.float32)).to(tl.bfloat16)
    else:
        high = x
        low = x
    return high, low


@triton.jit
def product(a_high, a_low, b_high, b_low, total, PRECISION: tl.constexpr):
    """total + a b, small terms first."""
    if PRECISION == "bf16x3":
        total = tl.dot(a_low, b_high, total)
        total = tl.dot(a_high, b_low, total)
        total = tl.dot(a_high, b_high, total)
    else:
        total = tl.dot(a_high, b_high, total, input_precision=PRECISION)
    return total


@triton.jit
def load_tile(pointer, N: tl.constexpr, NP: tl.constexpr, NT: tl.constexpr):
    """A pair matrix (N, NP) as a tile (NT, NT)."""
    i = tl.arange(0, NT)[:, None]
    j = tl.arange(0, NT)[None, :]
    return tl.load(pointer + i * NP + j, mask=(i < N) & (j < NP), other=0.0)


@triton.jit
def store_tile(pointer, tile, N: tl.constexpr, NP: tl.constexpr, NT: tl.constexpr):
    i = tl.arange(0, NT)[:, None]
    j = tl.arange(0, NT)[None, :]
    tl.store(pointer + i * NP + j, tile, mask=(i < N) & (j < NP))


@triton.jit
def store_half(high, low, at, tile, N: tl.constexpr, NT: tl.constexpr, PRECISION: tl.constexpr):
    """tile + its transpose for the pairs i ≤ j, packed, as operands of `product`; the diagonal once."""
    i = tl.arange(0, NT)[:, None]
    j = tl.arange(0, NT)[None, :]
    both_high, both_low = split(tl.where(i == j, tile, tile + tl.trans(tile)), PRECISION)
    place = at + (i * (2 * N - 1 - i)) // 2 + j
    tl.store(high + place, both_high, mask=(i <= j) & (j < N))
    if PRECISION == "bf16x3":
        tl.store(low + place, both_low, mask=(i <= j) & (j < N))


@triton.jit
def sum_tiles(pointer, first, last, N: tl.constexpr, NP: tl.constexpr, NT: tl.constexpr, G: tl.constexpr):
    """Σ of the pair matrices first … last − 1 behind `pointer`, G at a time so that loads overlap."""
    part = tl.arange(0, G)[:, None, None]
    i = tl.arange(0, NT)[None, :, None]
    j = tl.arange(0, NT)[None, None, :]
    total = tl.zeros((NT, NT), tl.float32)
    for start in range(first, last, G):
        row = start + part
        inside = (row < last) & (i < N) & (j < NP)
        total += tl.sum(tl.load(pointer + row * (N * NP) + i * NP + j, mask=inside, other=0.0), 0)
    return total


@triton.jit
def distance_rate(positions, by_forces, N: tl.constexpr, NT: tl.constexpr):
    """ḋ_ij along ṙ = ∂loss/∂F of one structure, (NT, NT)."""
    a = tl.arange(0, NT)
    rate = tl.zeros((NT, NT), tl.float32)
    squared = tl.zeros((NT, NT), tl.float32)
    for k in tl.static_range(3):
        r = tl.load(positions + a * 3 + k, mask=a < N, other=0.0)
        r_dot = tl.load(by_forces + a * 3 + k, mask=a < N, other=0.0)
        difference = r[:, None] - r[None, :]
        squared += difference * difference
        rate += difference * (r_dot[:, None] - r_dot[None, :])
    return tl.where(squared > 0, rate * tl.rsqrt(tl.where(squared > 0, squared, 1.0)), 0.0)


@triton.jit
def alpha_kernel(
    x, table, parts,
    C: tl.constexpr, B: tl.constexpr, N: tl.constexpr, NP: tl.constexpr, NT: tl.constexpr,
    LAYERS: tl.constexpr, CHUNKS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Partial sums of α = Σ_f X_1 … X_J over the channels of a chunk."""
    r, chunk = tl.program_id(0), tl.num_programs(1) - 1 - tl.program_id(1)  # high orders first
    layer, mb = r % LAYERS, r // LAYERS
    order, row, width = (
        tl.load(table + chunk * 5),
        tl.load(table + chunk * 5 + 1),
        tl.load(table + chunk * 5 + 2),
    )
    first, last = tl.load(table + chunk * 5 + 3), tl.load(table + chunk * 5 + 4)
    row += layer * (order - 1) * width
    channel = B * N * NP  # between rows
    x += ((mb // B).to(tl.int64) * C + row) * channel + (mb % B) * (N * NP)
    module = width * channel
    total = tl.zeros((NT, NT), tl.float32)
    if order == 2:
        total = load_tile(x, N, NP, NT)
    elif order == 3:
        for f in range(first, last):
            high1, low1 = split(load_tile(x + f * channel, N, NP, NT), PRECISION)
            high2, low2 = split(load_tile(x + module + f * channel, N, NP, NT), PRECISION)
            total = product(high1, low1, high2, low2, total, PRECISION)
    else:
        for f in range(first, last):
            high1, low1 = split(load_tile(x + f * channel, N, NP, NT), PRECISION)
            high2, low2 = split(load_tile(x + module + f * channel, N, NP, NT), PRECISION)
            high3, low3 = split(load_tile(x + 2 * module + f * channel, N, NP, NT), PRECISION)
            prefix = product(high1, low1, high2, low2, tl.zeros((NT, NT), tl.float32), PRECISION)
            high, low = split(prefix, PRECISION)
            total = product(high, low, high3, low3, total, PRECISION)
    store_tile(parts + (r.to(tl.int64) * CHUNKS + chunk) * (N * NP), total, N, NP, NT)


@triton.jit
def bars_kernel(
    x, slope, alpha_bar, table, stream_of, high, low, parts, R,
    C: tl.constexpr, B: tl.constexpr, N: tl.constexpr, NP: tl.constexpr, NT: tl.constexpr,
    LAYERS: tl.constexpr, CHUNKS: tl.constexpr, A_ROWS: tl.constexpr, HALF: tl.constexpr,
    KEEP: tl.constexpr, KEPT: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """X̄ of a chunk's channels, stored for KEPT products if KEEP, and partial sums of ∂E/∂d = Σ X̄ ∘ X'."""
    r, chunk = tl.program_id(0), tl.num_programs(1) - 1 - tl.program_id(1)  # high orders first
    layer, mb = r % LAYERS, r // LAYERS
    order, row, width = (
        tl.load(table + chunk * 5),
        tl.load(table + chunk * 5 + 1),
        tl.load(table + chunk * 5 + 2),
    )
    first, last = tl.load(table + chunk * 5 + 3), tl.load(table + chunk * 5 + 4)
    row += layer * (order - 1) * width
    channel = B * N * NP
    base = ((mb // B).to(tl.int64) * C + row) * channel + (mb % B) * (N * NP)
    module = width * channel
    to = ((mb // B).to(tl.int64) * A_ROWS + row) * (2 * HALF) + HALF + (mb % B) * (N * (N + 1) // 2)
    to_module = width * (2 * HALF)
    zero = tl.zeros((NT, NT), tl.float32)
    total = tl.zeros((NT, NT), tl.float32)
    a = load_tile(alpha_bar + (tl.load(stream_of + chunk).to(tl.int64) * R + r) * (N * NP), N, NP, NT)
    a_high, a_low = split(a, PRECISION)
    at_high, at_low = tl.trans(a_high), tl.trans(a_low)
    if order == 2:
        total = a * load_tile(slope + base, N, NP, NT)
        if KEEP:
            store_half(high, low, to, a, N, NT, KEPT)
    elif order == 3:
        for f in range(first, last):
            at1 = base + f * channel
            at2 = at1 + module
            x_high, x_low = split(load_tile(x + at2, N, NP, NT), PRECISION)
            bar1 = product(a_high, a_low, x_high, x_low, zero, PRECISION)
            x_high, x_low = split(load_tile(x + at1, N, NP, NT), PRECISION)
            bar2 = product(at_high, at_low, x_high, x_low, zero, PRECISION)
            total += bar1 * load_tile(slope + at1, N, NP, NT) + bar2 * load_tile(slope + at2, N, NP, NT)
            if KEEP:
                to1 = to + f * (2 * HALF)
                store_half(high, low, to1, bar1, N, NT, KEPT)
                store_half(high, low, to1 + to_module, bar2, N, NT, KEPT)
    else:
        for f in range(first, last):
            at1 = base + f * channel
            at2 = at1 + module
            at3 = at2 + module
            high1, low1 = split(load_tile(x + at1, N, NP, NT), PRECISION)
            high2, low2 = split(load_tile(x + at2, N, NP, NT), PRECISION)
            high3, low3 = split(load_tile(x + at3, N, NP, NT), PRECISION)
            x_high, x_low = split(product(high1, low1, high2, low2, zero, PRECISION), PRECISION)
            bar3 = product(at_high, at_low, x_high, x_low, zero, PRECISION)
            x_high, x_low = split(product(a_high, a_low, high3, low3, zero, PRECISION), PRECISION)  # suffix
            bar2 = product(high1, low1, x_high, x_low, zero, PRECISION)  # transposed, since X_1 is symmetric
            bar1 = product(x_high, x_low, high2, low2, zero, PRECISION)
            total += bar1 * load_tile(slope + at1, N, NP, NT) + bar2 * load_tile(slope + at2, N, NP, NT)
            total += bar3 * load_tile(slope + at3, N, NP, NT)
            if KEEP:
                to1 = to + f * (2 * HALF)
                store_half(high, low, to1, bar1, N, NT, KEPT)
                store_half(high, low, to1 + to_module, bar2, N, NT, KEPT)
                store_half(high, low, to1 + 2 * to_module, bar3, N, NT, KEPT)
    store_tile(parts + (r.to(tl.int64) * CHUNKS + chunk) * (N * NP), total, N, NP, NT)


@triton.jit
def alpha_dot_kernel(
    x, slope, positions, index, by_forces, count, table, parts,
    C: tl.constexpr, B: tl.constexpr, N: tl.constexpr, NP: tl.constexpr, NT: tl.constexpr,
    LAYERS: tl.constexpr, CHUNKS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Partial sums of dα/dt over the channels of a chunk, with Ẋ = ḋ X'."""
    r, chunk = tl.program_id(0), tl.num_programs(1) - 1 - tl.program_id(1)  # high orders first
    layer, mb = r % LAYERS, r // LAYERS
    m = (mb // B).to(tl.int64)
    order, row, width = (
        tl.load(table + chunk * 5),
        tl.load(table + chunk * 5 + 1),
        tl.load(table + chunk * 5 + 2),
    )
    first, last = tl.load(table + chunk * 5 + 3), tl.load(table + chunk * 5 + 4)
    row += layer * (order - 1) * width
    channel = B * N * NP
    base = (m * C + row) * channel + (mb % B) * (N * NP)
    module = width * channel
    structure = m * count + tl.load(index + mb)
    rate = distance_rate(positions + structure * (N * 3), by_forces + mb * (N * 3), N, NT)
    total = tl.zeros((NT, NT), tl.float32)
    if order == 2:
        total = rate * load_tile(slope + base, N, NP, NT)
    elif order == 3:
        for f in range(first, last):
            at1 = base + f * channel
            at2 = at1 + module
            high, low = split(rate * load_tile(slope + at1, N, NP, NT), PRECISION)
            high2, low2 = split(load_tile(x + at2, N, NP, NT), PRECISION)
            total = product(high, low, high2, low2, total, PRECISION)
            high, low = split(load_tile(x + at1, N, NP, NT), PRECISION)
            high2, low2 = split(rate * load_tile(slope + at2, N, NP, NT), PRECISION)
            total = product(high, low, high2, low2, total, PRECISION)
    else:
        for f in range(first, last):
            at1 = base + f * channel
            at2 = at1 + module
            at3 = at2 + module
            zero = tl.zeros((NT, NT), tl.float32)
            high1, low1 = split(load_tile(x + at1, N, NP, NT), PRECISION)
            high2, low2 = split(load_tile(x + at2, N, NP, NT), PRECISION)
            high, low = split(rate * load_tile(slope + at1, N, NP, NT), PRECISION)
            prefix_dot = product(high, low, high2, low2, zero, PRECISION)
            high, low = split(rate * load_tile(slope + at2, N, NP, NT), PRECISION)
            prefix_dot = product(high1, low1, high, low, prefix_dot, PRECISION)
            prefix = product(high1, low1, high2, low2, zero, PRECISION)
            high, low = split(prefix_dot, PRECISION)
            high2, low2 = split(load_tile(x + at3, N, NP, NT), PRECISION)
            total = product(high, low, high2, low2, total, PRECISION)
            high, low = split(prefix, PRECISION)
            high2, low2 = split(rate * load_tile(slope + at3, N, NP, NT), PRECISION)
            total = product(high, low, high2, low2, total, PRECISION)
    store_tile(parts + (r.to(tl.int64) * CHUNKS + chunk) * (N * NP), total, N, NP, NT)


@triton.jit
def hats_kernel(
    x, slope, alpha_bar, alpha_hat, positions, index, by_forces, count, table, stream_of,
    high, low, R,
    C: tl.constexpr, B: tl.constexpr, N: tl.constexpr, NP: tl.constexpr, NT: tl.constexpr,
    LAYERS: tl.constexpr, A_ROWS: tl.constexpr, HALF: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """X̂ = w X̄ − dX̄/dt of a chunk's channels: the product rule applied to `bars_kernel`."""
    r, chunk = tl.program_id(0), tl.num_programs(1) - 1 - tl.program_id(1)  # high orders first
    layer, mb = r % LAYERS, r // LAYERS
    m = (mb // B).to(tl.int64)
    order, row, width = (
        tl.load(table + chunk * 5),
        tl.load(table + chunk * 5 + 1),
        tl.load(table + chunk * 5 + 2),
    )
    first, last = tl.load(table + chunk * 5 + 3), tl.load(table + chunk * 5 + 4)
    row += layer * (order - 1) * width
    channel = B * N * NP
    base = (m * C + row) * channel + (mb % B) * (N * NP)
    module = width * channel
    to = (m * A_ROWS + row) * (2 * HALF) + (mb % B) * (N * (N + 1) // 2)
    to_module = width * (2 * HALF)
    structure = m * count + tl.load(index + mb)
    rate = distance_rate(positions + structure * (N * 3), by_forces + mb * (N * 3), N, NT)
    at_alpha = (tl.load(stream_of + chunk).to(tl.int64) * R + r) * (N * NP)
    h = load_tile(alpha_hat + at_alpha, N, NP, NT)
    h_high, h_low = split(h, PRECISION)
    a_high, a_low = split(-load_tile(alpha_bar + at_alpha, N, NP, NT), PRECISION)  # −ᾱ: all terms add up
    zero = tl.zeros((NT, NT), tl.float32)
    if order == 2:
        store_half(high, low, to, h, N, NT, PRECISION)
    elif order == 3:
        ht_high, ht_low, at_high, at_low = (
            tl.trans(h_high),
            tl.trans(h_low),
            tl.trans(a_high),
            tl.trans(a_low),
        )
        for f in range(first, last):
            at1 = base + f * channel
            to1 = to + f * (2 * HALF)
            at2 = at1 + module
            x_high, x_low = split(load_tile(x + at2, N, NP, NT), PRECISION)
            hat1 = product(h_high, h_low, x_high, x_low, zero, PRECISION)
            x_high, x_low = split(rate * load_tile(slope + at2, N, NP, NT), PRECISION)
            hat1 = product(a_high, a_low, x_high, x_low, hat1, PRECISION)
            store_half(high, low, to1, hat1, N, NT, PRECISION)
            x_high, x_low = split(load_tile(x + at1, N, NP, NT), PRECISION)
            hat2 = product(ht_high, ht_low, x_high, x_low, zero, PRECISION)
            x_high, x_low = split(rate * load_tile(slope + at1, N, NP, NT), PRECISION)
            hat2 = product(at_high, at_low, x_high, x_low, hat2, PRECISION)
            store_half(high, low, to1 + to_module, hat2, N, NT, PRECISION)
    else:
        ht_high, ht_low, at_high, at_low = (
            tl.trans(h_high),
            tl.trans(h_low),
            tl.trans(a_high),
            tl.trans(a_low),
        )
        for f in range(first, last):
            at1 = base + f * channel
            to1 = to + f * (2 * HALF)
            at2 = at1 + module
            at3 = at2 + module
            high1, low1 = split(load_tile(x + at1, N, NP, NT), PRECISION)
            high2, low2 = split(load_tile(x + at2, N, NP, NT), PRECISION)
            dot_high1, dot_low1 = split(rate * load_tile(slope + at1, N, NP, NT), PRECISION)
            dot_high2, dot_low2 = split(rate * load_tile(slope + at2, N, NP, NT), PRECISION)
            prefix = product(high1, low1, high2, low2, zero, PRECISION)
            prefix_dot = product(dot_high1, dot_low1, high2, low2, zero, PRECISION)
            prefix_dot = product(high1, low1, dot_high2, dot_low2, prefix_dot, PRECISION)
            x_high, x_low = split(prefix, PRECISION)
            hat3 = product(ht_high, ht_low, x_high, x_low, zero, PRECISION)
            x_high, x_low = split(prefix_dot, PRECISION)
            hat3 = product(at_high, at_low, x_high, x_low, hat3, PRECISION)
            store_half(high, low, to1 + 2 * to_module, hat3, N, NT, PRECISION)
            x_high, x_low = split(load_tile(x + at3, N, NP, NT), PRECISION)
            suffix = product(a_high, a_low, x_high, x_low, zero, PRECISION)  # with −ᾱ, so negative
            suffix_hat = product(h_high, h_low, x_high, x_low, zero, PRECISION)
            x_high, x_low = split(rate * load_tile(slope + at3, N, NP, NT), PRECISION)
            suffix_hat = product(a_high, a_low, x_high, x_low, suffix_hat, PRECISION)
            hat_high, hat_low = split(suffix_hat, PRECISION)
            x_high, x_low = split(suffix, PRECISION)
            hat2 = product(high1, low1, hat_high, hat_low, zero, PRECISION)
            hat2 = product(dot_high1, dot_low1, x_high, x_low, hat2, PRECISION)
            store_half(high, low, to1 + to_module, hat2, N, NT, PRECISION)
            hat1 = product(hat_high, hat_low, high2, low2, zero, PRECISION)
            hat1 = product(x_high, x_low, dot_high2, dot_low2, hat1, PRECISION)
            store_half(high, low, to1, hat1, N, NT, PRECISION)
