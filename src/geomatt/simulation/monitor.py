"""Observables of a batched simulation, on its device: temperature, energy, bonds, distances and walls.

Nothing here synchronises the device. `Monitor.series` is read and started anew between parts of a run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from geomatt.model.domain import Bonds, WallResult
from geomatt.model.domain.limits import geometry
from geomatt.simulation.ensembles import DynamicsConfig, Matter, State, Verlet, stop
from geomatt.simulation.pressure import BAR
from geomatt.simulation.watchdog import BROKEN, DIVERGED, Watchdog

# What is recorded at every observation, in this order; the names are those of `outcome.Part`.
SERIES = ("temperature_K", "potential_energy", "conserved_energy", "highest_force", "spread", "pressure",
          "volume", "alarm")  # fmt: skip

# The distribution of distances as Fu et al. 2023 take it: 500 bins up to 10 Å.
BINS, BIN_WIDTH = 500, 0.02


@dataclass(frozen=True)
class PaddedBonds:
    """Bonds of all replicas."""

    index: Tensor  # (R, b) position of a bond in the flattened (N, N) distances
    length: Tensor  # (R, b) mean length
    real: Tensor  # (R, b) bool, False for padding

    @classmethod
    def stack(cls, bonds: Sequence[Bonds | None], atoms: int, device: torch.device) -> PaddedBonds:
        count = max([len(b.pairs) for b in bonds if b is not None], default=0)
        index = np.zeros((len(bonds), max(count, 1)), dtype=np.int64)
        length, real = np.zeros(index.shape), np.zeros(index.shape, dtype=bool)
        for r, one in enumerate(bonds):
            if one is not None and len(one.pairs):
                n = len(one.pairs)
                index[r, :n] = one.pairs[:, 0] * atoms + one.pairs[:, 1]
                length[r, :n], real[r, :n] = one.lengths, True
        return cls(*(torch.from_numpy(x).to(device) for x in (index, length, real)))


class Monitor:
    """Counters and records of R replicas."""

    def __init__(
        self,
        config: DynamicsConfig,
        matter: Matter,
        integrator: Verlet,
        bonds: PaddedBonds,
        *,
        watched: int,
        capacity: int,
        keep_frames: bool,
        periodic: bool = False,
        watchdog: Watchdog | None = None,
        spread: Tensor | None = None,
    ) -> None:
        """`watched`: the first atoms, whose distances are looked at.

        `spread` (R,): disagreement of a committee, which the forces of the simulation update.
        """
        self.watchdog, self.spread = watchdog, spread
        self.config, self.matter, self.integrator, self.bonds = config, matter, integrator, bonds
        replicas, atoms = matter.masses.shape[:2]
        device = matter.masses.device

        def integers(*shape: int) -> Tensor:
            return torch.zeros(shape, dtype=torch.int64, device=device)

        def floats(*shape: int) -> Tensor:
            return torch.zeros(shape, dtype=torch.float64, device=device)

        self.failed_at = integers(replicas) - 1  # step; −1 for those that have not
        self.reason = integers(replicas)
        self.worst_bond = floats(replicas)
        self.histogram = integers(replicas, BINS + 1)
        self.wall_steps = integers(replicas)
        self.wall_pairs = integers(replicas, watched, watched)
        self.wall_worst = floats(replicas, watched, watched) - torch.inf
        # Records of the part of the run under way: `SERIES`, and positions, velocities and forces.
        self.filled = integers(1)
        self.series = floats(capacity, len(SERIES), replicas)
        self.frames = floats(*((capacity, 3, replicas, atoms, 3) if keep_frames else (0,)))
        self.cells = floats(*((capacity, replicas, 3, 3) if keep_frames and periodic else (0,)))
        self.watched, real = watched, matter.masses[:, :watched, 0] > 0
        above = torch.ones(watched, watched, device=device, dtype=torch.bool).triu(1)
        self._pairs = above & real[:, :, None] & real[:, None, :]  # (R, N, N)

    def tensors(self) -> dict[str, Tensor]:
        """Tensors needed to continue a run."""
        names = ("failed_at", "reason", "worst_bond", "histogram", "wall_steps", "wall_pairs", "wall_worst")
        watched = self.watchdog.tensors() if self.watchdog is not None else {}
        return {**{name: getattr(self, name) for name in names}, **watched}

    def buffers(self) -> list[Tensor]:
        """Everything that an observation changes."""
        return [*self.tensors().values(), self.filled, self.series, self.frames, self.cells]

    def count_walls(self, state: State, walls: WallResult) -> None:
        """Called once a step."""
        active = walls.active & state.alive[:, None, None]
        self.wall_pairs.add_(active)
        self.wall_steps.add_(active.flatten(1).any(1))
        excess = walls.excess.masked_fill(~state.alive[:, None, None], -torch.inf)
        self.wall_worst.copy_(torch.maximum(self.wall_worst, excess))

    def observe(self, state: State) -> None:
        """Called every `interval` steps. Replicas with a broken bond or a serious alarm stop here."""
        _, distance = geometry(state.positions[:, : self.watched], state.lattice)
        temperature = self.matter.temperature(state.velocities)
        # A replica that stopped since the last observation has its alarm in this one.
        alarm = DIVERGED * (~state.alive & (self.failed_at < 0))
        self._fail(state, ~state.alive, DIVERGED)
        off = (distance.flatten(1).gather(1, self.bonds.index) - self.bonds.length).abs()
        off = off.masked_fill(~(self.bonds.real & state.alive[:, None]), 0.0).amax(1)
        self.worst_bond.copy_(torch.maximum(self.worst_bond, off))
        highest = state.forces.square().sum(-1).amax(1).sqrt()
        if self.config.bond_limit is not None:
            broken = off > self.config.bond_limit
            alarm = alarm + BROKEN * broken
            self._fail(state, broken, BROKEN)
            state.alive.logical_and_(~broken)
        spread = highest * torch.nan if self.spread is None else self.spread
        if self.watchdog is not None:
            found = self.watchdog.alarms(state, distance, temperature)
            alarm = alarm + found
            serious = found & self.watchdog.watch.stops
            for bit in self.watchdog.stopping:
                self._fail(state, (serious & bit) > 0, bit)
            state.alive.logical_and_(serious == 0)
        pressure = volume = highest * torch.nan
        if state.lattice is not None:
            pressure, volume = self.matter.pressure(state) / BAR, state.volume
        rows = [
            temperature,
            state.energy,
            self.integrator.conserved(state),
            highest,
            spread,
            pressure,
            volume,
        ]
        frame = [state.positions, state.velocities, state.forces]
        if self.frames.numel():
            self.frames.index_copy_(0, self.filled, torch.stack(frame)[None])
        if self.cells.numel():
            self.cells.index_copy_(0, self.filled, state.cell[None])
        stop(state)
        counted = (self._pairs & state.alive[:, None, None]).flatten(1).to(torch.int64)
        where = (distance / BIN_WIDTH).to(torch.int64).clamp(max=BINS).flatten(1)
        self.histogram.scatter_add_(1, where, counted)
        row = torch.stack(rows).masked_fill(~state.alive, torch.nan)
        self.series.index_copy_(0, self.filled, torch.cat([row, alarm[None].double()])[None])
        self.filled.add_(1)

    def _fail(self, state: State, failed: Tensor, reason: int) -> None:
        new = failed & (self.failed_at < 0)
        self.failed_at.copy_(torch.where(new, state.step, self.failed_at))
        self.reason.masked_fill_(new, reason)


def density(counts: np.ndarray) -> np.ndarray:
    """h(r) (..., BINS) in 1/Å from counts (..., BINS + 1), which end with those beyond the last bin."""
    inside = counts[..., :-1]
    return inside / np.maximum(inside.sum(-1, keepdims=True), 1) / BIN_WIDTH


def frame_histogram(positions: np.ndarray) -> np.ndarray:
    """Counts (BINS + 1,) of all distances in frames (n, N, 3) of one molecule, for comparison."""
    upper = np.triu_indices(positions.shape[1], 1)
    counts = np.zeros(BINS + 1, dtype=np.int64)
    for start in range(0, len(positions), 1000):
        part = positions[start : start + 1000]
        length = np.linalg.norm(part[:, upper[0]] - part[:, upper[1]], axis=-1).reshape(-1)
        where = np.minimum((length / BIN_WIDTH).astype(np.int64), BINS)
        counts += np.bincount(where, minlength=BINS + 1)
    return counts


def histogram_error(counts: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """∫ |h − h_ref| dr (...,) of counts (..., BINS + 1): 0 for the same distribution, 2 without overlap."""
    return np.abs(density(counts) - density(reference)).sum(-1) * BIN_WIDTH
