"""Triton kernels of a training step on a GPU: derivatives of the loss, and Adam."""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from geomatt.data.batch import Batch
from geomatt.training.loss import Loss


@triton.jit
def loss_kernel(
    energy, forces, numbers, energy_target, force_target, index, sums, by_energy, by_forces, count, rho,
    AUTHORS: tl.constexpr, SQUARED: tl.constexpr, FORCES: tl.constexpr, B: tl.constexpr, N: tl.constexpr,
    BT: tl.constexpr, NT: tl.constexpr,
):  # fmt: skip
    """Derivatives of the loss of a member's batch, and its errors added to `sums` (4, M), see `ErrorSums`.

    BT structures at a time, as a tile (BT, NT) of atoms.
    """
    m, members = tl.program_id(0).to(tl.int64), tl.num_programs(0)
    i = tl.arange(0, NT)[None, :]
    loss = tl.zeros((BT,), tl.float32)
    energy_sum, force_sum, components = loss, loss, loss
    for start in range(0, B, BT):
        b = start + tl.arange(0, BT)
        there = b < B
        structure = m * count + tl.load(index + m * B + b, mask=there, other=0)
        inside = there[:, None] & (i < N)
        kind = tl.load(numbers + structure[:, None] * N + i, mask=inside, other=0)
        atoms = tl.maximum(tl.sum((kind > 0).to(tl.float32), 1), 1.0)
        e = tl.load(energy + m * B + b, mask=there, other=0.0)
        e -= tl.load(energy_target + structure, mask=there, other=0.0)
        e = tl.where(there, e, 0.0)
        energy_sum += tl.abs(e)
        if SQUARED:
            loss += rho * e * e
            slope = 2.0 * e
        else:
            loss += rho * tl.abs(e)
            slope = tl.where(e > 0, 1.0, tl.where(e < 0, -1.0, 0.0))
        tl.store(by_energy + m * B + b, rho / B * slope, mask=there)
        if FORCES:
            at = (m * B + b)[:, None] * (3 * N) + 3 * i
            label = structure[:, None] * (3 * N) + 3 * i
            x = tl.load(forces + at, mask=inside, other=0.0)
            x -= tl.load(force_target + label, mask=inside, other=0.0)
            y = tl.load(forces + at + 1, mask=inside, other=0.0)
            y -= tl.load(force_target + label + 1, mask=inside, other=0.0)
            z = tl.load(forces + at + 2, mask=inside, other=0.0)
            z -= tl.load(force_target + label + 2, mask=inside, other=0.0)
            squared = x * x + y * y + z * z
            weight = 1.0 / (3.0 * atoms * atoms) if AUTHORS else 1.0 / atoms
            force_sum += tl.sum(tl.abs(x) + tl.abs(y) + tl.abs(z), 1)
            components += tl.where(there, 3.0 * atoms, 0.0)
            if SQUARED:
                loss += weight * tl.sum(squared, 1)
                factor = tl.zeros_like(squared) + (2.0 / B * weight)[:, None]
            else:
                norm = tl.sqrt(squared)
                loss += weight * tl.sum(norm, 1)
                factor = tl.where(norm > 0, (weight / B)[:, None] / tl.where(norm > 0, norm, 1.0), 0.0)
            tl.store(by_forces + at, factor * x, mask=inside)
            tl.store(by_forces + at + 1, factor * y, mask=inside)
            tl.store(by_forces + at + 2, factor * z, mask=inside)
    tl.store(sums + m, tl.load(sums + m) + tl.sum(loss, 0))
    tl.store(sums + members + m, tl.load(sums + members + m) + tl.sum(energy_sum, 0))
    if FORCES:
        to = sums + 2 * members + m
        tl.store(to, tl.load(to) + tl.sum(force_sum, 0))
        tl.store(to + members, tl.load(to + members) + tl.sum(components, 0))


class FusedLoss:
    """Derivatives of a `Loss` and sums of errors in one kernel, for labels gathered by an index."""

    def __init__(self, loss: Loss) -> None:
        self.loss = loss

    def __call__(
        self, energy: Tensor, forces: Tensor | None, targets: Batch, index: Tensor, sums: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        """∂loss/∂E (M, B) and ∂loss/∂F (M, B, N, 3) of predictions for the structures `index` (M, B)."""
        assert targets.energy is not None
        (members, batch), (count, atoms) = index.shape, targets.numbers.shape[1:]
        with_forces = forces is not None and targets.forces is not None
        found = forces.contiguous() if forces is not None else energy
        by_energy = torch.empty_like(energy)
        by_forces = torch.empty_like(found) if with_forces else None
        loss_kernel[(members,)](
            energy.contiguous(), found, targets.numbers, targets.energy,
            energy if targets.forces is None else targets.forces, index, sums, by_energy,
            energy if by_forces is None else by_forces, count, self.loss.rho,
            AUTHORS=self.loss.weighting == "authors", SQUARED=self.loss.squared, FORCES=with_forces, B=batch,
            N=atoms, BT=min(16, triton.next_power_of_2(batch)), NT=max(16, triton.next_power_of_2(atoms)),
            num_warps=4,
        )  # fmt: skip
        return by_energy, by_forces


@triton.jit
def adam_kernel(
    theta, gradient, first, second, average, trainable, steps, ticket, rate, pace, size, parameters,
    log_b1, log_b2, b2, rest1, rest2, eps, rest_average,
    AVERAGE: tl.constexpr, MASKED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Adam as torch.optim.Adam does it, over a flat θ, with its moving average; counts the step itself."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < size
    step = tl.load(steps) + 1.0  # float64, like the corrections: 1 − β^t loses digits at small t
    rates = tl.load(rate) * tl.load(pace + at // parameters, mask=inside, other=0.0)
    step_size = (rates / (1.0 - tl.exp(step * log_b1))).to(tl.float32)
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
        # A smaller decay at first, or the average would contain the random initial weights.
        weight = tl.maximum((9.0 / (9.0 + step)).to(tl.float32), rest_average)
        tl.store(average + at, mean + weight * (t - mean), mask=inside)
    # The last program to finish counts the step: by then every program has read the old count.
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
        pace: Tensor,
        average: Tensor | None = None,
        trainable: Tensor | None = None,
    ) -> None:
        """One update in place; `steps` goes up by one.

        `pace` (M,) multiplies the rate, `trainable` (n,) the gradient.
        """
        if self._ticket is None:
            self._ticket = torch.zeros((), dtype=torch.int32, device=theta.device)
        (b1, b2), block = self.betas, 1024
        adam_kernel[(triton.cdiv(theta.numel(), block),)](
            theta, gradient, first, second, theta if average is None else average,
            theta if trainable is None else trainable, steps, self._ticket, rate, pace, theta.numel(),
            theta.shape[1], math.log(b1), math.log(b2), b2, 1.0 - b1, 1.0 - b2, self.eps,
            1.0 - self.ema_decay, AVERAGE=average is not None, MASKED=trainable is not None, BLOCK=block,
            num_warps=4,
        )  # fmt: skip
