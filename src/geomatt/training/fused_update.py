"""Triton kernels that end a step: error sums and Adam."""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def sums_kernel(
    numbers, index, energy_error, force_error, sums, count, rho,
    AUTHORS: tl.constexpr, FORCES: tl.constexpr, B: tl.constexpr, N: tl.constexpr, NT: tl.constexpr,
):  # fmt: skip
    """Add a batch's loss and absolute errors to `sums` (4, M), as `ErrorSums.add` does."""
    m, members = tl.program_id(0).to(tl.int64), tl.num_programs(0)
    i = tl.arange(0, NT)
    i3 = tl.arange(0, 4 * NT)
    loss, energy, force, components = 0.0, 0.0, 0.0, 0.0
    for b in range(B):
        structure = m * count + tl.load(index + m * B + b)
        atoms = tl.sum((tl.load(numbers + structure * N + i, mask=i < N, other=0) > 0).to(tl.float32), 0)
        e = tl.load(energy_error + m * B + b)
        loss += rho * e * e
        energy += tl.abs(e)
        if FORCES:
            f = tl.load(force_error + (m * B + b) * (3 * N) + i3, mask=i3 < 3 * N, other=0.0)
            weight = 1.0 / (3.0 * atoms * atoms) if AUTHORS else 1.0 / atoms
            loss += weight * tl.sum(f * f, 0)
            force += tl.sum(tl.abs(f), 0)
            components += 3.0 * atoms
    tl.store(sums + m, tl.load(sums + m) + loss)
    tl.store(sums + members + m, tl.load(sums + members + m) + energy)
    if FORCES:
        at = sums + 2 * members + m
        tl.store(at, tl.load(at) + force)
        tl.store(at + members, tl.load(at + members) + components)


@triton.jit
def adam_kernel(
    theta, gradient, first, second, average, trainable, steps, ticket, rate, size, parameters,
    log_b1, log_b2, b2, rest1, rest2, eps, rest_average,
    AVERAGE: tl.constexpr, MASKED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Adam as torch.optim.Adam does it, over a flat θ, with its moving average; counts the step itself."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < size
    step = tl.load(steps) + 1.0  # float64, like the corrections: 1 − β^t loses digits at small t
    step_size = (tl.load(rate) / (1.0 - tl.exp(step * log_b1))).to(tl.float32)
    scale = tl.sqrt(1.0 - tl.exp(step * log_b2)).to(tl.float32)
    g = tl.load(gradient + at, mask=inside, other=0.0)
    if MASKED:
        g *= tl.load(trainable + at % parameters, mask=inside, other=0.0)
    m = tl.load(first + at, mask=inside, other=0.0)
    v = tl.load(second + at, mask=inside, other=0.0)
    t = tl.load(theta + at, mask=inside, other=0.0)
    m += rest1 * (g - m)  # rest = 1 − β, subtracted in float64
    v = b2 * v + rest2 * g * g
    t -= step_size * m / (tl.sqrt(v) / scale + eps)
    tl.store(first + at, m, mask=inside)
    tl.store(second + at, v, mask=inside)
    tl.store(theta + at, t, mask=inside)
    if AVERAGE:
        mean = tl.load(average + at, mask=inside, other=0.0)
        # Early on the average forgets faster, or it would remember the random start.
        weight = tl.maximum((9.0 / (9.0 + step)).to(tl.float32), rest_average)
        tl.store(average + at, mean + weight * (t - mean), mask=inside)
    # Whoever finishes last counts the step: by then every program has read the old count.
    tl.debug_barrier()
    if tl.atomic_add(ticket, 1) == tl.num_programs(0) - 1:
        tl.store(steps, step)
        tl.store(ticket, 0)


class FusedAdam:
    """Adam over all members' weights θ (M, n) in one kernel. `steps` and `rate` are float64 on the device."""

    def __init__(
        self, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, ema_decay: float = 0.0
    ) -> None:
        self.betas, self.eps, self.ema_decay = betas, eps, ema_decay
        self._ticket: Tensor | None = None

    def step(
        self,
        theta: Tensor,
        gradient: Tensor,
        first: Tensor,
        second: Tensor,
        steps: Tensor,
        rate: Tensor,
        average: Tensor | None = None,
        trainable: Tensor | None = None,
    ) -> None:
        """One update in place; `steps` goes up by one, `trainable` (n,) multiplies the gradient."""
        if self._ticket is None:
            self._ticket = torch.zeros((), dtype=torch.int32, device=theta.device)
        (b1, b2), block = self.betas, 1024
        adam_kernel[(triton.cdiv(theta.numel(), block),)](
            theta, gradient, first, second, theta if average is None else average,
            theta if trainable is None else trainable, steps, self._ticket, rate, theta.numel(),
            theta.shape[1], math.log(b1), math.log(b2), b2, 1.0 - b1, 1.0 - b2, self.eps,
            1.0 - self.ema_decay, AVERAGE=average is not None, MASKED=trainable is not None, BLOCK=block,
            num_warps=4,
        )  # fmt: skip
