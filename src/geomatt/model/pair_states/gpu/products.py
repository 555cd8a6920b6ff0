"""Triton kernels for P = s A B over atoms, and its derivatives.

A program does one matrix over atoms: a channel of a structure. A and B are rows c and C + c of states
(M, 2C, columns), and so are their tangents and adjoints. Rows are `apart` numbers from each other. The last
structure also clears the columns that are there only to align rows, so that products over all columns can
be used for gradients of weights.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import triton
import triton.language as tl

from geomatt.model.pair_states.gpu.initial import TAIL


@triton.jit
def place(batch, atoms, apart, NT: tl.constexpr):
    """Where a program's matrix is: member, structure, its entries (NT, NT) and which of them exist."""
    matrix = tl.program_id(0)  # structures of a channel are next to each other
    c, b = matrix // batch, matrix % batch
    i = tl.arange(0, NT)
    inside = (i < atoms)[:, None] & (i < atoms)[None, :]
    at = c * apart + b * (atoms * atoms) + i[:, None] * atoms + i[None, :]
    return tl.program_id(1).to(tl.int64), b, at, inside


@triton.jit
def clear_tail(states, b, batch, atoms, columns, apart):
    """Zero in the columns without a pair of the program's row, by the program of the last structure."""
    p = batch * atoms * atoms + tl.arange(0, TAIL)
    to = states + (tl.program_id(0) // batch) * apart + p
    tl.store(to, tl.zeros((TAIL,), tl.float32), mask=(p < columns) & (b == batch - 1))


@triton.jit
def product_kernel(
    ab, ab_m, p, p_m, scale,
    batch, atoms, columns, apart, C: tl.constexpr, NT: tl.constexpr,
):  # fmt: skip
    m, b, at, inside = place(batch, atoms, apart, NT)
    ab += m * ab_m
    x = tl.load(ab + at, mask=inside, other=0.0)
    y = tl.load(ab + C * apart + at, mask=inside, other=0.0)
    result = tl.dot(x, y, input_precision="ieee") * tl.load(scale + m * batch + b)
    tl.store(p + m * p_m + at, result, mask=inside)
    clear_tail(p + m * p_m, b, batch, atoms, columns, apart)


@triton.jit
def product_dot_kernel(
    ab, ab_m, ab_dot, ab_dot_m, p_dot, p_dot_m, scale,
    batch, atoms, columns, apart, C: tl.constexpr, NT: tl.constexpr,
):  # fmt: skip
    m, b, at, inside = place(batch, atoms, apart, NT)
    ab += m * ab_m
    ab_dot += m * ab_dot_m
    x_dot = tl.load(ab_dot + at, mask=inside, other=0.0)
    y = tl.load(ab + C * apart + at, mask=inside, other=0.0)
    result = tl.dot(x_dot, y, input_precision="ieee")
    x = tl.load(ab + at, mask=inside, other=0.0)
    y_dot = tl.load(ab_dot + C * apart + at, mask=inside, other=0.0)
    result = tl.dot(x, y_dot, result, input_precision="ieee") * tl.load(scale + m * batch + b)
    tl.store(p_dot + m * p_dot_m + at, result, mask=inside)
    clear_tail(p_dot + m * p_dot_m, b, batch, atoms, columns, apart)


@triton.jit
def product_adjoint_kernel(
    n_p, n_p_m, ab, ab_m, n_ab, n_ab_m, scale,
    batch, atoms, columns, apart, C: tl.constexpr, NT: tl.constexpr,
):  # fmt: skip
    m, b, at, inside = place(batch, atoms, apart, NT)
    ab += m * ab_m
    n_ab += m * n_ab_m
    n = tl.load(n_p + m * n_p_m + at, mask=inside, other=0.0) * tl.load(scale + m * batch + b)
    y = tl.load(ab + C * apart + at, mask=inside, other=0.0)
    tl.store(n_ab + at, tl.dot(n, tl.trans(y), input_precision="ieee"), mask=inside)
    x = tl.load(ab + at, mask=inside, other=0.0)
    tl.store(n_ab + C * apart + at, tl.dot(tl.trans(x), n, input_precision="ieee"), mask=inside)
    clear_tail(n_ab, b, batch, atoms, columns, apart)
    clear_tail(n_ab + C * apart, b, batch, atoms, columns, apart)


@triton.jit
def product_hat_kernel(
    p_hat, p_hat_m, n_p, n_p_m, ab, ab_m, ab_dot, ab_dot_m, ab_hat, ab_hat_m, scale,
    batch, atoms, columns, apart, C: tl.constexpr, NT: tl.constexpr,
):  # fmt: skip
    """Â = s (P̂ Bᵀ + n_P Ḃᵀ), B̂ = s (Aᵀ P̂ + Ȧᵀ n_P)."""
    m, b, at, inside = place(batch, atoms, apart, NT)
    ab += m * ab_m
    ab_dot += m * ab_dot_m
    ab_hat += m * ab_hat_m
    s = tl.load(scale + m * batch + b)
    hat = tl.load(p_hat + m * p_hat_m + at, mask=inside, other=0.0) * s
    n = tl.load(n_p + m * n_p_m + at, mask=inside, other=0.0) * s
    y = tl.load(ab + C * apart + at, mask=inside, other=0.0)
    result = tl.dot(hat, tl.trans(y), input_precision="ieee")
    y_dot = tl.load(ab_dot + C * apart + at, mask=inside, other=0.0)
    result = tl.dot(n, tl.trans(y_dot), result, input_precision="ieee")
    tl.store(ab_hat + at, result, mask=inside)
    x = tl.load(ab + at, mask=inside, other=0.0)
    result = tl.dot(tl.trans(x), hat, input_precision="ieee")
    x_dot = tl.load(ab_dot + at, mask=inside, other=0.0)
    result = tl.dot(tl.trans(x_dot), n, result, input_precision="ieee")
    tl.store(ab_hat + C * apart + at, result, mask=inside)
    clear_tail(ab_hat, b, batch, atoms, columns, apart)
    clear_tail(ab_hat + C * apart, b, batch, atoms, columns, apart)
