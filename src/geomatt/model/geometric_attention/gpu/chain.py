"""Triton kernels for everything between the overlaps X and α, and their derivatives.

The formulas are those of `dense.chain` and `dense.engine`; the names match. With the J = k − 1 symmetric
matrices X_1 … X_J of a channel, and adjoints up to transposition, since only X̄ + X̄ᵀ is used:

    α   = X_1 X_2 … X_J
    X̄_j = (ᾱ X_J … X_{j+1})ᵀ X_1 … X_{j−1}

Products are taken from left to right, so that the left factor is always the last result, and X is loaded
again for every product: caches hold it, registers could not. Every order is an unrolled copy of the same
loops (`ORDERS` is known at compile time). Layouts:

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
def multiply(a, b, total, PRECISION: tl.constexpr):
    """total + a b of two operands as `split` gives them."""
    return product(a[0], a[1], b[0], b[1], total, PRECISION)


@triton.jit
def operand(pointer, N: tl.constexpr, NP: tl.constexpr, NT: tl.constexpr, PRECISION: tl.constexpr):
    """A pair matrix as an operand of `multiply`."""
    return split(load_tile(pointer, N, NP, NT), PRECISION)


@triton.jit
def dot_operand(slope, rate, N: tl.constexpr, NP: tl.constexpr, NT: tl.constexpr, PRECISION: tl.constexpr):
    """Ẋ = ḋ X' as an operand of `multiply`."""
    return split(rate * load_tile(slope, N, NP, NT), PRECISION)


@triton.jit
def transposed(a):
    """The transpose of an operand."""
    return tl.trans(a[0]), tl.trans(a[1])


@triton.jit
def task(table, C: tl.constexpr, B: tl.constexpr, N: tl.constexpr, NP: tl.constexpr, LAYERS: tl.constexpr):
    """What a program works on.

    r = (member, structure, layer), the chunk and its order, the first row of X and its place, F, and the
    range of channels.
    """
    r, chunk = tl.program_id(0), tl.num_programs(1) - 1 - tl.program_id(1)  # high orders first
    mb = r // LAYERS
    at = table + chunk * 5
    order, row, width = tl.load(at), tl.load(at + 1), tl.load(at + 2)
    row += (r % LAYERS) * (order - 1) * width
    place = ((mb // B).to(tl.int64) * C + row) * (B * N * NP) + (mb % B) * (N * NP)
    return r, chunk, order, row, place, width, tl.load(at + 3), tl.load(at + 4)


@triton.jit
def alpha_kernel(
    x, table, parts,
    C: tl.constexpr, B: tl.constexpr, N: tl.constexpr, NP: tl.constexpr, NT: tl.constexpr,
    LAYERS: tl.constexpr, CHUNKS: tl.constexpr, ORDERS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Partial sums of α = Σ_f X_1 … X_J over the channels of a chunk."""
    r, chunk, order, _, place, width, first, last = task(table, C, B, N, NP, LAYERS)
    for k in tl.static_range(len(ORDERS)):
        if order == ORDERS[k]:
            total = tl.zeros((NT, NT), tl.float32)
            for f in range(first, last):
                at = x + place + f * (B * N * NP)
                total = add_product(at, width * (B * N * NP), total, ORDERS[k], N, NP, NT, PRECISION)
            store_tile(parts + (r.to(tl.int64) * CHUNKS + chunk) * (N * NP), total, N, NP, NT)


@triton.jit
def add_product(
    x, module, total, ORDER: tl.constexpr, N: tl.constexpr, NP: tl.constexpr, NT: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """total + X_1 … X_J of one channel; `module`: distance from X_1 to X_2."""
    if ORDER == 2:
        return total + load_tile(x, N, NP, NT)
    prefix = operand(x, N, NP, NT, PRECISION)
    for m in tl.static_range(1, ORDER - 2):
        b = operand(x + m * module, N, NP, NT, PRECISION)
        prefix = split(multiply(prefix, b, tl.zeros((NT, NT), tl.float32), PRECISION), PRECISION)
    return multiply(prefix, operand(x + (ORDER - 2) * module, N, NP, NT, PRECISION), total, PRECISION)


@triton.jit
def alpha_dot_kernel(
    x, slope, positions, index, by_forces, count, table, parts,
    C: tl.constexpr, B: tl.constexpr, N: tl.constexpr, NP: tl.constexpr, NT: tl.constexpr,
    LAYERS: tl.constexpr, CHUNKS: tl.constexpr, ORDERS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Partial sums of dα/dt over the channels of a chunk."""
    r, chunk, order, _, place, width, first, last = task(table, C, B, N, NP, LAYERS)
    mb = r // LAYERS
    structure = (mb // B).to(tl.int64) * count + tl.load(index + mb)
    rate = distance_rate(positions + structure * (N * 3), by_forces + mb * (N * 3), N, NT)
    for k in tl.static_range(len(ORDERS)):
        if order == ORDERS[k]:
            total = tl.zeros((NT, NT), tl.float32)
            for f in range(first, last):
                at, module = place + f * (B * N * NP), width * (B * N * NP)
                total = add_product_dot(
                    x + at, slope + at, module, rate, total, ORDERS[k], N, NP, NT, PRECISION
                )
            store_tile(parts + (r.to(tl.int64) * CHUNKS + chunk) * (N * NP), total, N, NP, NT)


@triton.jit
def add_product_dot(
    x, slope, module, rate, total, ORDER: tl.constexpr, N: tl.constexpr, NP: tl.constexpr, NT: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """total + d/dt (X_1 … X_J) of one channel."""
    if ORDER == 2:
        return total + rate * load_tile(slope, N, NP, NT)
    zero = tl.zeros((NT, NT), tl.float32)
    prefix = operand(x, N, NP, NT, PRECISION)
    dot = dot_operand(slope, rate, N, NP, NT, PRECISION)
    for m in tl.static_range(1, ORDER - 2):
        b = operand(x + m * module, N, NP, NT, PRECISION)
        tile = multiply(dot, b, zero, PRECISION)
        b_dot = dot_operand(slope + m * module, rate, N, NP, NT, PRECISION)
        dot = split(multiply(prefix, b_dot, tile, PRECISION), PRECISION)
        prefix = split(multiply(prefix, b, zero, PRECISION), PRECISION)
    total = multiply(dot, operand(x + (ORDER - 2) * module, N, NP, NT, PRECISION), total, PRECISION)
    b_dot = dot_operand(slope + (ORDER - 2) * module, rate, N, NP, NT, PRECISION)
    return multiply(prefix, b_dot, total, PRECISION)


@triton.jit
def bars_kernel(
    x, slope, alpha_bar, table, stream_of, high, low, parts, R,
    C: tl.constexpr, B: tl.constexpr, N: tl.constexpr, NP: tl.constexpr, NT: tl.constexpr,
    LAYERS: tl.constexpr, CHUNKS: tl.constexpr, ORDERS: tl.constexpr, A_ROWS: tl.constexpr,
    HALF: tl.constexpr, KEEP: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """X̄ of a chunk's channels, stored for `by_folded_kernel` if KEEP; partial sums of ∂E/∂d = Σ X̄ ∘ X'."""
    r, chunk, order, row, place, width, first, last = task(table, C, B, N, NP, LAYERS)
    mb = r // LAYERS
    to = ((mb // B).to(tl.int64) * A_ROWS + row) * (2 * HALF) + HALF + (mb % B) * (N * (N + 1) // 2)
    bar = load_tile(alpha_bar + (tl.load(stream_of + chunk).to(tl.int64) * R + r) * (N * NP), N, NP, NT)
    a = split(bar, PRECISION)
    a_t = transposed(a)
    for k in tl.static_range(len(ORDERS)):
        if order == ORDERS[k]:
            total = tl.zeros((NT, NT), tl.float32)
            for f in range(first, last):
                at = place + f * (B * N * NP)
                total = add_bars(
                    x + at, slope + at, width * (B * N * NP), bar, a, a_t, total, high, low,
                    to + f * (2 * HALF), width * (2 * HALF), ORDERS[k], KEEP, N, NP, NT, PRECISION,
                )  # fmt: skip
            store_tile(parts + (r.to(tl.int64) * CHUNKS + chunk) * (N * NP), total, N, NP, NT)


@triton.jit
def add_bars(
    x, slope, module, bar, a, a_t, total, high, low, to, to_module, ORDER: tl.constexpr, KEEP: tl.constexpr,
    N: tl.constexpr, NP: tl.constexpr, NT: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """total + Σ_j X̄_j ∘ X'_j of one channel."""
    zero = tl.zeros((NT, NT), tl.float32)
    for j in tl.static_range(ORDER - 2, -1, -1):
        # Here bar, a and a_t are ᾱ X_J … X_{j+1}, the same as operand, and transposed.
        x_bar, left = bar, a_t
        for m in tl.static_range(j):
            x_bar = multiply(left, operand(x + m * module, N, NP, NT, PRECISION), zero, PRECISION)
            left = split(x_bar, PRECISION)
        total += x_bar * load_tile(slope + j * module, N, NP, NT)
        if KEEP:
            store_half(high, low, to + j * to_module, x_bar, N, NT, PRECISION)
        if j > 0:
            bar = multiply(a, operand(x + j * module, N, NP, NT, PRECISION), zero, PRECISION)
            a = split(bar, PRECISION)
            a_t = transposed(a)
    return total


@triton.jit
def hats_kernel(
    x, slope, alpha_bar, alpha_hat, positions, index, by_forces, count, table, stream_of,
    high, low, R,
    C: tl.constexpr, B: tl.constexpr, N: tl.constexpr, NP: tl.constexpr, NT: tl.constexpr,
    LAYERS: tl.constexpr, ORDERS: tl.constexpr, A_ROWS: tl.constexpr, HALF: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """X̂ = w X̄ − dX̄/dt of a chunk's channels: the product rule applied to `bars_kernel`."""
    r, chunk, order, row, place, width, first, last = task(table, C, B, N, NP, LAYERS)
    mb = r // LAYERS
    member = (mb // B).to(tl.int64)
    to = (member * A_ROWS + row) * (2 * HALF) + (mb % B) * (N * (N + 1) // 2)
    structure = member * count + tl.load(index + mb)
    rate = distance_rate(positions + structure * (N * 3), by_forces + mb * (N * 3), N, NT)
    at_alpha = (tl.load(stream_of + chunk).to(tl.int64) * R + r) * (N * NP)
    hat = load_tile(alpha_hat + at_alpha, N, NP, NT)
    h = split(hat, PRECISION)
    h_t = transposed(h)
    a = split(-load_tile(alpha_bar + at_alpha, N, NP, NT), PRECISION)  # −ᾱ: all terms add up
    a_t = transposed(a)
    for k in tl.static_range(len(ORDERS)):
        if order == ORDERS[k]:
            for f in range(first, last):
                at = place + f * (B * N * NP)
                store_hats(
                    x + at, slope + at, width * (B * N * NP), rate, hat, h, h_t, a, a_t, high, low,
                    to + f * (2 * HALF), width * (2 * HALF), ORDERS[k], N, NP, NT, PRECISION,
                )  # fmt: skip


@triton.jit
def store_hats(
    x, slope, module, rate, hat, h, h_t, a, a_t, high, low, to, to_module, ORDER: tl.constexpr,
    N: tl.constexpr, NP: tl.constexpr, NT: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """X̂_j of one channel."""
    zero = tl.zeros((NT, NT), tl.float32)
    for j in tl.static_range(ORDER - 2, -1, -1):
        # Here a is −ᾱ X_J … X_{j+1}, hat and h are w and d/dt of it combined, a_t and h_t their transposes.
        x_hat, left, left_hat = hat, a_t, h_t
        for m in tl.static_range(j):
            b = operand(x + m * module, N, NP, NT, PRECISION)
            x_hat = multiply(left_hat, b, zero, PRECISION)
            b_dot = dot_operand(slope + m * module, rate, N, NP, NT, PRECISION)
            x_hat = multiply(left, b_dot, x_hat, PRECISION)
            if m < j - 1:
                left_hat = split(x_hat, PRECISION)
                left = split(multiply(left, b, zero, PRECISION), PRECISION)
        store_half(high, low, to + j * to_module, x_hat, N, NT, PRECISION)
        if j > 0:
            b = operand(x + j * module, N, NP, NT, PRECISION)
            hat = multiply(h, b, zero, PRECISION)
            b_dot = dot_operand(slope + j * module, rate, N, NP, NT, PRECISION)
            hat = multiply(a, b_dot, hat, PRECISION)
            if j > 1:
                h = split(hat, PRECISION)
                h_t = transposed(h)
                a = split(multiply(a, b, zero, PRECISION), PRECISION)
                a_t = transposed(a)
