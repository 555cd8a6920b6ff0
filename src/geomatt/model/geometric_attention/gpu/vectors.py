"""Triton kernels for the vectors T of `gpu.streams`, and for the gradients behind them.

T holds R vectors of V features for each stream and member: zero (it collects the biases), the embeddings, and
with every layer the images W T + b of all so far. One program works on one stream of one member.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import triton
import triton.language as tl

from geomatt.model.geometric_attention.gpu.chain import product, split
from geomatt.model.geometric_attention.gpu.streams import load_rows, store_rows


@triton.jit
def vectors_kernel(
    theta, stride, vectors, read_high, read_low, scale,
    AT_EMBEDDING: tl.constexpr, AT_W: tl.constexpr, AT_B: tl.constexpr, AT_HIDDEN: tl.constexpr,
    S: tl.constexpr, E: tl.constexpr, R: tl.constexpr, RT: tl.constexpr, LAYERS: tl.constexpr,
    V: tl.constexpr, VP: tl.constexpr, BV: tl.constexpr, H: tl.constexpr, BH: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """T and, as operand of `product`, T Hᵀ; W and b with the factor Δd / N_S."""
    s, m = tl.program_id(0), tl.program_id(1).to(tl.int64)
    member = s * tl.num_programs(1) + m
    theta += m * stride
    vectors += member * (R * V)
    k = tl.arange(0, RT)[:, None]
    f = tl.arange(0, VP)[None, :]
    known = (k > 0) & (k <= E) & (f < V)
    start_rows = tl.load(theta + AT_EMBEDDING + (k - 1) * V + f, mask=known, other=0.0)
    tl.store(vectors + k * V + f, start_rows, mask=(k <= E) & (f < V))
    for layer in range(LAYERS):
        tl.debug_barrier()  # all of this program's vectors so far are written
        size = (E + 1) << layer
        high, low = split(load_rows(vectors, size, V, V, RT, VP), PRECISION)
        for start in range(0, V, BV):
            o = start + tl.arange(0, BV)
            at = AT_W + ((s * LAYERS + layer) * V + start) * V
            w_high, w_low = split(load_rows(theta + at, V - start, V, V, BV, VP), PRECISION)
            zero = tl.zeros((RT, BV), tl.float32)
            image = product(high, low, tl.trans(w_high), tl.trans(w_low), zero, PRECISION)
            offset = tl.load(theta + AT_B + (s * LAYERS + layer) * V + o, mask=o < V, other=0.0)
            image = scale * (image + tl.where(k == 0, offset[None, :], 0.0))
            store_rows(vectors + size * V + start, image, size, V - start, V, RT, BV)
    tl.debug_barrier()
    high, low = split(load_rows(vectors, R, V, V, RT, VP), PRECISION)
    for start in range(0, H, BH):
        at = AT_HIDDEN + start * (S * V) + s * V
        w_high, w_low = split(load_rows(theta + at, H - start, V, S * V, BH, VP), PRECISION)
        zero = tl.zeros((RT, BH), tl.float32)
        read = product(high, low, tl.trans(w_high), tl.trans(w_low), zero, PRECISION)
        t_high, t_low = split(read, PRECISION)
        store_rows(read_high + member * (R * H) + start, t_high, R, H - start, H, RT, BH)
        if PRECISION == "bf16x3":
            store_rows(read_low + member * (R * H) + start, t_low, R, H - start, H, RT, BH)


@triton.jit
def weights_kernel(
    theta, stride, vectors, hats, q_parts, gradient, scale,
    AT_W: tl.constexpr, AT_B: tl.constexpr, AT_HIDDEN: tl.constexpr, AT_HIDDEN_BIAS: tl.constexpr,
    PARAMETERS: tl.constexpr, S: tl.constexpr, E: tl.constexpr, R: tl.constexpr, RT: tl.constexpr,
    LAYERS: tl.constexpr, B: tl.constexpr, V: tl.constexpr, VP: tl.constexpr, BV: tl.constexpr,
    H: tl.constexpr, BH: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """From Q = ∂loss/∂(T Hᵀ) to the gradients of H, W, b, and of T: `hats`, where the embeddings' remains."""
    s, m = tl.program_id(0), tl.program_id(1).to(tl.int64)
    member = s * tl.num_programs(1) + m
    theta += m * stride
    gradient += m * PARAMETERS
    vectors += member * (R * V)
    hats += member * (R * V)
    k = tl.arange(0, RT)[:, None]
    t_high, t_low = split(load_rows(vectors, R, V, V, RT, VP), PRECISION)
    total = tl.zeros((RT, VP), tl.float32)
    for start in range(0, H, BH):
        q = tl.zeros((RT, BH), tl.float32)
        for b in range(B):
            q += load_rows(q_parts + (member * B + b) * (R * H) + start, R, H - start, H, RT, BH)
        if s == 0:  # the first coefficient is one everywhere, and the same in all streams
            h = start + tl.arange(0, BH)
            tl.store(gradient + AT_HIDDEN_BIAS + h, tl.sum(tl.where(k == 0, q, 0.0), 0), mask=h < H)
        q_high, q_low = split(q, PRECISION)
        at = AT_HIDDEN + start * (S * V) + s * V
        w_high, w_low = split(load_rows(theta + at, H - start, V, S * V, BH, VP), PRECISION)
        total = product(q_high, q_low, w_high, w_low, total, PRECISION)
        zero = tl.zeros((BH, VP), tl.float32)
        by_hidden = product(tl.trans(q_high), tl.trans(q_low), t_high, t_low, zero, PRECISION)
        store_rows(gradient + at, by_hidden, H - start, V, S * V, BH, VP)
    store_rows(hats, total, R, V, V, RT, VP)
    for back in range(LAYERS):
        tl.debug_barrier()
        layer = LAYERS - 1 - back
        size = (E + 1) << layer
        t_high, t_low = split(load_rows(vectors, size, V, V, RT, VP), PRECISION)
        total = load_rows(hats, size, V, V, RT, VP)
        for start in range(0, V, BV):
            image = scale * load_rows(hats + size * V + start, size, V - start, V, RT, BV)
            o = start + tl.arange(0, BV)
            to = gradient + AT_B + (s * LAYERS + layer) * V + o
            tl.store(to, tl.sum(tl.where(k == 0, image, 0.0), 0), mask=o < V)
            high, low = split(image, PRECISION)
            at = AT_W + ((s * LAYERS + layer) * V + start) * V
            w_high, w_low = split(load_rows(theta + at, V - start, V, V, BV, VP), PRECISION)
            total = product(high, low, w_high, w_low, total, PRECISION)
            zero = tl.zeros((BV, VP), tl.float32)
            by_w = product(tl.trans(high), tl.trans(low), t_high, t_low, zero, PRECISION)
            store_rows(gradient + at, by_w, V - start, V, V, BV, VP)
        tl.debug_barrier()  # everyone has read the rows that are replaced now
        store_rows(hats, total, size, V, V, RT, VP)


@triton.jit
def ends_kernel(
    hats, output_parts, gradient,
    AT_EMBEDDING: tl.constexpr, AT_OUTPUT: tl.constexpr, AT_OUTPUT_BIAS: tl.constexpr,
    PARAMETERS: tl.constexpr, S: tl.constexpr, E: tl.constexpr, R: tl.constexpr, B: tl.constexpr,
    V: tl.constexpr, H: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Gradients of the embedding, a sum over streams, and of the output, a sum over structures."""
    block, m = tl.program_id(0), tl.program_id(1).to(tl.int64)
    gradient += m * PARAMETERS
    n = block * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for s in tl.static_range(S):
        at = (s * tl.num_programs(1) + m) * (R * V) + V
        total += tl.load(hats + at + n, mask=n < E * V, other=0.0)
    tl.store(gradient + AT_EMBEDDING + n, total, mask=n < E * V)
    total = tl.zeros((BLOCK,), tl.float32)
    for b in range(B):
        total += tl.load(output_parts + (m * B + b) * (H + 1) + n, mask=n <= H, other=0.0)
    tl.store(gradient + AT_OUTPUT + n, total, mask=n < H)
    tl.store(gradient + AT_OUTPUT_BIAS + n - H, total, mask=n == H)
