"""Triton kernels of the readout: what is done to (M, B·N, features) between products with weights.

A program does one atom; tensors are slots of larger ones, so the stride between members is passed.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import triton
import triton.language as tl

from geomatt.model.pair_states.gpu.activations import (
    saturated,
    saturation_slope,
    silu,
    silu_curvature,
    silu_slope,
)


@triton.jit
def hidden_kernel(
    q, q_m, c, c_m, a, a_m, ceiling, ceiling_m, F: tl.constexpr, FB: tl.constexpr, UNITS: tl.constexpr
):
    """Q ← Q + c, or what the ceiling of UNITS makes of it, A = silu(Q)."""
    m = tl.program_id(1).to(tl.int64)
    f = tl.arange(0, FB)
    at = tl.program_id(0) * F + f
    value = tl.load(q + m * q_m + at, mask=f < F, other=0.0) + tl.load(c + m * c_m + f, mask=f < F, other=0.0)
    if UNITS:
        value = saturated(value, ceiling + m * ceiling_m + f, UNITS, f < F)
    tl.store(q + m * q_m + at, value, mask=f < F)
    tl.store(a + m * a_m + at, silu(value), mask=f < F)


@triton.jit
def slope_kernel(
    by_output, by_m, q, q_m, result, result_m, ceiling, ceiling_m,
    F: tl.constexpr, FB: tl.constexpr, UNITS: tl.constexpr,
):  # fmt: skip
    """by_output · silu'(Q), times the slope of the ceiling: Ȧ from Q̇, or n_Q from n_A."""
    m = tl.program_id(1).to(tl.int64)
    f = tl.arange(0, FB)
    at = tl.program_id(0) * F + f
    before = tl.load(q + m * q_m + at, mask=f < F, other=0.0)
    slope = silu_slope(before)
    if UNITS:
        slope *= saturation_slope(before, ceiling + m * ceiling_m + f, UNITS, f < F)
    value = tl.load(by_output + m * by_m + at, mask=f < F, other=0.0)
    tl.store(result + m * result_m + at, slope * value, mask=f < F)


@triton.jit
def hidden_hat_kernel(
    a_hat, a_hat_m, n_a, n_a_m, q, q_m, q_dot, q_dot_m, q_hat, q_hat_m, F: tl.constexpr, FB: tl.constexpr
):
    m = tl.program_id(1).to(tl.int64)
    f = tl.arange(0, FB)
    at = tl.program_id(0) * F + f
    value = tl.load(q + m * q_m + at, mask=f < F, other=0.0)
    dot = tl.load(q_dot + m * q_dot_m + at, mask=f < F, other=0.0)
    hat = tl.load(a_hat + m * a_hat_m + at, mask=f < F, other=0.0)
    n = tl.load(n_a + m * n_a_m + at, mask=f < F, other=0.0)
    result = silu_slope(value) * hat + silu_curvature(value) * dot * n
    tl.store(q_hat + m * q_hat_m + at, result, mask=f < F)


@triton.jit
def output_kernel(
    q, q_m, c, c_m, v, v_m, bias, bias_m, a, a_m, n_q, n_q_m, ceiling, ceiling_m, species, energies,
    F: tl.constexpr, FB: tl.constexpr, UNITS: tl.constexpr,
):  # fmt: skip
    """Q and A as in `hidden_kernel`, the atom's energy v A + bias, and n_Q."""
    atom = tl.program_id(0)
    m = tl.program_id(1).to(tl.int64)
    f = tl.arange(0, FB)
    at = atom * F + f
    value = tl.load(q + m * q_m + at, mask=f < F, other=0.0) + tl.load(c + m * c_m + f, mask=f < F, other=0.0)
    if UNITS:
        value = saturated(value, ceiling + m * ceiling_m + f, UNITS, f < F)
    slope = silu_slope(value)
    if UNITS:
        slope *= saturation_slope(value, ceiling + m * ceiling_m + f, UNITS, f < F)
    active = silu(value)
    weight = tl.load(v + m * v_m + f, mask=f < F, other=0.0)
    place = m * tl.num_programs(0) + atom
    real = tl.where(tl.load(species + place) >= 0, 1.0, 0.0)
    tl.store(q + m * q_m + at, value, mask=f < F)
    tl.store(a + m * a_m + at, active, mask=f < F)
    tl.store(n_q + m * n_q_m + at, -real * weight * slope, mask=f < F)
    tl.store(energies + place, real * (tl.sum(weight * active, 0) + tl.load(bias + m * bias_m)))


@triton.jit
def output_hat_kernel(
    by_energy, q, q_m, q_dot, q_dot_m, v, v_m, a_dot, a_dot_m, q_hat, q_hat_m, species, atoms,
    F: tl.constexpr, FB: tl.constexpr,
):  # fmt: skip
    """Ȧ and Q̂ from w."""
    atom = tl.program_id(0)
    m = tl.program_id(1).to(tl.int64)
    f = tl.arange(0, FB)
    at = atom * F + f
    value = tl.load(q + m * q_m + at, mask=f < F, other=0.0)
    dot = tl.load(q_dot + m * q_dot_m + at, mask=f < F, other=0.0)
    weight = tl.load(v + m * v_m + f, mask=f < F, other=0.0)
    count = tl.num_programs(0)
    real = tl.where(tl.load(species + m * count + atom) >= 0, 1.0, 0.0)
    w = tl.load(by_energy + m * (count // atoms) + atom // atoms)
    slope = silu_slope(value)
    tl.store(a_dot + m * a_dot_m + at, slope * dot, mask=f < F)
    result = real * weight * (w * slope - silu_curvature(value) * dot)
    tl.store(q_hat + m * q_hat_m + at, result, mask=f < F)


@triton.jit
def sums_kernel(
    by_energy, species, scale, others, a, a_m, a_dot, a_dot_m, q1_hat, q1_m, q2_hat, q2_m, r_hat, r_m, result,
    batch, atoms, C: tl.constexpr, BA: tl.constexpr, BF: tl.constexpr,
):  # fmt: skip
    """Sums over atoms, (M, 6C): by c₁ (2C), c₂ (C), v₃ (C), b₂ of the last round (C), and one by c₃."""
    f = tl.program_id(0) * BF + tl.arange(0, BF)
    m = tl.program_id(1).to(tl.int64)
    of_1 = f < 2 * C
    of_2 = (f >= 2 * C) & (f < 3 * C)
    of_v = (f >= 3 * C) & (f < 4 * C)
    of_b = (f >= 4 * C) & (f < 5 * C)
    of_c = f == 5 * C
    total = tl.zeros((BF,), tl.float32)
    for start in range(0, batch * atoms, BA):
        atom = start + tl.arange(0, BA)
        inside = (atom < batch * atoms)[:, None]
        real = tl.where(
            tl.load(species + m * (batch * atoms) + atom, mask=atom < batch * atoms, other=-1) >= 0, 1.0, 0.0
        )
        w = tl.load(by_energy + m * batch + atom // atoms, mask=atom < batch * atoms, other=0.0) * real
        rest = tl.load(others + m * batch + atom // atoms, mask=atom < batch * atoms, other=0.0) * real
        row = atom[:, None]
        at = q1_hat + m * q1_m + row * (2 * C) + f[None, :]
        part = tl.load(at, mask=inside & of_1[None, :], other=0.0)
        at = q2_hat + m * q2_m + row * C + (f - 2 * C)[None, :]
        part += tl.load(at, mask=inside & of_2[None, :], other=0.0)
        at = row * C + (f - 3 * C)[None, :]
        here = inside & of_v[None, :]
        part += w[:, None] * tl.load(a + m * a_m + at, mask=here, other=0.0)
        part -= real[:, None] * tl.load(a_dot + m * a_dot_m + at, mask=here, other=0.0)
        at = r_hat + m * r_m + row * (2 * C) + (f - 4 * C)[None, :]
        here = inside & of_b[None, :]
        part += real[:, None] * tl.load(at, mask=here, other=0.0)
        part += rest[:, None] * tl.load(at + C, mask=here, other=0.0)
        part += tl.where(of_c[None, :], w[:, None], 0.0)
        total += tl.sum(part, 0)
    tl.store(result + m * (6 * C) + f, total, mask=f < 6 * C)
