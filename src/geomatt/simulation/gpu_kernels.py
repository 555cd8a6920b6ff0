"""Triton kernels of dynamics on a GPU: a step is three of them, beside those of the forces.

A program does one replica, whose atoms are a tile; R replicas, N atoms (padded). All numbers are float64.
They come from tensors, as Triton would take a number among the arguments as float32.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from geomatt.model.domain import Walls
from geomatt.model.domain.limits import Limits
from geomatt.simulation.ensembles import MOVE, Evaluate, NoseHoover, State, Verlet
from geomatt.simulation.monitor import Monitor

LARGEST = 64  # atoms; the distances of a replica are one tile


@triton.jit
def vectors(source, r, N: tl.constexpr, NT: tl.constexpr):
    """The three components of vectors (R, N, 3) of a replica, zero for padding."""
    i = tl.arange(0, NT)
    at = source + (r * N + i) * 3
    inside = i < N
    x = tl.load(at, mask=inside, other=0.0)
    y = tl.load(at + 1, mask=inside, other=0.0)
    z = tl.load(at + 2, mask=inside, other=0.0)
    return x, y, z


@triton.jit
def put_vectors(target, r, x, y, z, N: tl.constexpr, NT: tl.constexpr):
    i = tl.arange(0, NT)
    at = target + (r * N + i) * 3
    inside = i < N
    tl.store(at, x, mask=inside)
    tl.store(at + 1, y, mask=inside)
    tl.store(at + 2, z, mask=inside)


@triton.jit
def entry(values, index, k):
    """Entry k of a vector; zero if it has none."""
    return tl.sum(tl.where(index == k, values, 0.0), 0)


@triton.jit
def accelerated(w, index, k, doubled, gain, loss, time, C: tl.constexpr):
    """The rates of a chain of thermostats after half of `time` for thermostat k, see `NoseHoover.couple`."""
    own, above = entry(w, index, k), entry(w, index, k + 1)
    if k == 0:
        drive = doubled
    else:
        below = entry(w, index, k - 1)
        drive = below * below
    push = 0.5 * time * (entry(loss, index, k) + entry(gain, index, k) * drive)
    if k == C - 1:
        own += push
    else:
        damping = tl.exp(-0.25 * time * above)
        own = (own * damping + push) * damping
    return tl.where(index == k, own, w)


@triton.jit
def coupled(
    vx, vy, vz, mass, r, replicas, eta, rate, gain, loss, time, live, C: tl.constexpr, CT: tl.constexpr
):
    """Velocities after half a step of the thermostats (C, R), which are updated; from rest if not `live`."""
    index = tl.arange(0, CT)
    at, inside = index * replicas + r, index < C
    w = tl.where(live, tl.load(rate + at, mask=inside, other=0.0), 0.0)
    gains = tl.load(gain + at, mask=inside, other=0.0)
    losses = tl.load(loss + at, mask=inside, other=0.0)
    doubled = tl.sum(mass * (vx * vx + vy * vy + vz * vz), 0)
    for k in tl.static_range(C):
        w = accelerated(w, index, C - 1 - k, doubled, gains, losses, time, C)
    scale = tl.exp(-time * entry(w, index, 0))
    doubled *= scale * scale
    tl.store(eta + at, tl.load(eta + at, mask=inside, other=0.0) + time * w, mask=inside)
    for k in tl.static_range(C):
        w = accelerated(w, index, k, doubled, gains, losses, time, C)
    tl.store(rate + at, w, mask=inside)
    return vx * scale, vy * scale, vz * scale


@triton.jit
def begin_kernel(
    positions, velocities, forces, masses, inverse, eta, rate, gain, loss, times, replicas,
    COUPLE: tl.constexpr, C: tl.constexpr, CT: tl.constexpr, N: tl.constexpr, NT: tl.constexpr,
):  # fmt: skip
    """What comes before new forces: half a step of thermostats (if COUPLE) and velocities, then positions."""
    r = tl.program_id(0)
    i = tl.arange(0, NT)
    time, half = tl.load(times), tl.load(times + 1)
    vx, vy, vz = vectors(velocities, r, N, NT)
    if COUPLE:
        mass = tl.load(masses + r * N + i, mask=i < N, other=0.0)
        vx, vy, vz = coupled(vx, vy, vz, mass, r, replicas, eta, rate, gain, loss, half, True, C, CT)
    fx, fy, fz = vectors(forces, r, N, NT)
    push = half * tl.load(inverse + r * N + i, mask=i < N, other=0.0)
    vx += push * fx
    vy += push * fy
    vz += push * fz
    put_vectors(velocities, r, vx, vy, vz, N, NT)
    x, y, z = vectors(positions, r, N, NT)
    put_vectors(positions, r, x + time * vx, y + time * vy, z + time * vz, N, NT)


@triton.jit
def end_kernel(
    velocities, forces, alive, step, masses, inverse, eta, rate, gain, loss, times, replicas,
    COUPLE: tl.constexpr, C: tl.constexpr, CT: tl.constexpr, N: tl.constexpr, NT: tl.constexpr,
):  # fmt: skip
    """What comes after new forces. A replica in which an atom would move too far stops, as in `guard`."""
    r = tl.program_id(0)
    i = tl.arange(0, NT)
    time, half, furthest = tl.load(times), tl.load(times + 1), tl.load(times + 2)
    vx, vy, vz = vectors(velocities, r, N, NT)
    fx, fy, fz = vectors(forces, r, N, NT)
    push = half * tl.load(inverse + r * N + i, mask=i < N, other=0.0)
    vx += push * fx
    vy += push * fy
    vz += push * fz
    # Nan is not within the limit.
    near = (tl.abs(vx + push * fx) * time <= furthest) & (tl.abs(vy + push * fy) * time <= furthest)
    near = near & (tl.abs(vz + push * fz) * time <= furthest)
    live = (tl.load(alive + r) != 0) & (tl.sum((near == 0).to(tl.int32), 0) == 0)
    tl.store(alive + r, live.to(tl.uint8))
    vx = tl.where(live, vx, 0.0)
    vy = tl.where(live, vy, 0.0)
    vz = tl.where(live, vz, 0.0)
    put_vectors(forces, r, tl.where(live, fx, 0.0), tl.where(live, fy, 0.0), tl.where(live, fz, 0.0), N, NT)
    if COUPLE:
        mass = tl.load(masses + r * N + i, mask=i < N, other=0.0)
        vx, vy, vz = coupled(vx, vy, vz, mass, r, replicas, eta, rate, gain, loss, half, live, C, CT)
    put_vectors(velocities, r, vx, vy, vz, N, NT)
    if r == 0:
        tl.store(step, tl.load(step) + 1)


@triton.jit
def walls_kernel(
    positions, forces, energy, alive, lower, upper, steps, pairs, worst, shape,
    COUNT: tl.constexpr, N: tl.constexpr, NT: tl.constexpr,
):  # fmt: skip
    """Add forces and energy of `Walls` to those of a replica; if COUNT, as `Monitor.count_walls`."""
    r = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, NT)
    stiffness, margin, onset = tl.load(shape), tl.load(shape + 1), tl.load(shape + 2)
    at = positions + (r * N + i) * 3
    x, y, z = vectors(positions, r, N, NT)
    dx = x[:, None] - tl.load(at, mask=i < N, other=0.0)[None, :]
    dy = y[:, None] - tl.load(at + 1, mask=i < N, other=0.0)[None, :]
    dz = z[:, None] - tl.load(at + 2, mask=i < N, other=0.0)[None, :]
    distance = tl.sqrt(tl.maximum(dx * dx + dy * dy + dz * dz, 1e-12))
    inside = (i < N)[:, None] & (i < N)[None, :]
    pair = r * N * N + i[:, None] * N + i[None, :]
    below = tl.load(lower + pair, mask=inside, other=float("-inf")) - distance
    above = distance - tl.load(upper + pair, mask=inside, other=float("inf"))
    excess = tl.maximum(below, above)
    outside = tl.maximum(excess - margin, 0.0)
    curved = tl.minimum(outside, onset)
    rest = outside - curved
    strain = stiffness * (curved * curved * curved / (6.0 * onset) + rest * (0.5 * onset + 0.5 * rest))
    slope = stiffness * (curved * curved / (2.0 * onset) + rest)
    pull = tl.where(above > below, slope, -slope) / distance
    fx, fy, fz = vectors(forces, r, N, NT)
    fx -= tl.sum(pull * dx, 1)
    fy -= tl.sum(pull * dy, 1)
    fz -= tl.sum(pull * dz, 1)
    put_vectors(forces, r, fx, fy, fz, N, NT)
    tl.store(energy + r, tl.load(energy + r) + 0.5 * tl.sum(tl.sum(strain, 1), 0))
    if COUNT:  # noqa: SIM102
        if tl.load(alive + r) != 0:
            active = (excess > margin).to(tl.int64)
            before = tl.load(pairs + pair, mask=inside, other=0)
            tl.store(pairs + pair, before + active, mask=inside)
            any_active = tl.max(tl.max(active, 1), 0)
            tl.store(steps + r, tl.load(steps + r) + any_active)
            furthest = tl.load(worst + pair, mask=inside, other=0.0)
            tl.store(worst + pair, tl.maximum(furthest, excess), mask=inside)


class FusedSteps:
    """What `Verlet.step` and `NoseHoover.step` do before and after the forces, and walls, for molecules."""

    @staticmethod
    def supports(integrator: Verlet) -> bool:
        return type(integrator) in (Verlet, NoseHoover)

    def __init__(self, integrator: Verlet) -> None:
        matter = integrator.matter
        self.masses, self.inverse = matter.masses, matter.inverse
        time = integrator.timestep
        self.times = self.masses.new_tensor([time, 0.5 * time, MOVE])
        chain, self.gain, self.loss = 1, self.masses, self.masses
        if isinstance(integrator, NoseHoover):
            chain, self.gain, self.loss = integrator.config.chain, integrator.gain, integrator.loss
        replicas, atoms = self.masses.shape[:2]
        self.grid, self.tile = (replicas,), {"N": atoms, "NT": max(16, triton.next_power_of_2(atoms))}
        self.chain = {"COUPLE": isinstance(integrator, NoseHoover), "C": chain, **_tile("CT", chain)}

    def step(self, state: State, evaluate: Evaluate) -> None:
        self.begin(state)
        evaluate(state)
        self.end(state)

    def begin(self, state: State) -> None:
        begin_kernel[self.grid](
            state.positions, state.velocities, state.forces, *self._constants(state), **self.chain,
            **self.tile, num_warps=1,
        )  # fmt: skip

    def end(self, state: State) -> None:
        end_kernel[self.grid](
            state.velocities, state.forces, state.alive.view(torch.uint8), state.step,
            *self._constants(state), **self.chain, **self.tile, num_warps=1,
        )  # fmt: skip

    def _constants(self, state: State) -> tuple[Tensor | int, ...]:
        return (
            self.masses, self.inverse, state.thermostat, state.thermostat_velocity, self.gain, self.loss,
            self.times, self.grid[0],
        )  # fmt: skip


class FusedWalls:
    """`Walls` and their counters in one kernel, for molecules all of whose atoms are watched."""

    def __init__(self, walls: Walls, limits: Limits) -> None:
        self.lower, self.upper = limits.lower.contiguous(), limits.upper.contiguous()
        self.shape = self.lower.new_tensor([walls.stiffness, walls.margin, walls.onset])

    def add(self, state: State, monitor: Monitor, count: bool) -> None:
        replicas, atoms = state.positions.shape[:2]
        walls_kernel[(replicas,)](
            state.positions, state.forces, state.energy, state.alive.view(torch.uint8), self.lower,
            self.upper, monitor.wall_steps, monitor.wall_pairs, monitor.wall_worst, self.shape, COUNT=count,
            N=atoms, NT=max(16, triton.next_power_of_2(atoms)), num_warps=4,
        )  # fmt: skip


def _tile(name: str, count: int) -> dict[str, int]:
    return {name: max(2, triton.next_power_of_2(count))}
