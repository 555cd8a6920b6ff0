"""Molecular dynamics of many replicas side by side, for one or several models and molecules.

Positions and velocities are float64 whatever the precision of the model. On a GPU a block of steps is
captured as a CUDA graph and replayed.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import Tensor

from geomatt.arguments import require
from geomatt.elements import ATOMIC_MASSES
from geomatt.errors import GeomAttError
from geomatt.model.domain import MOST_WATCHED, PairLimits, Walls
from geomatt.model.domain.limits import geometry, outside, stack
from geomatt.model.graphs import capture as capture_graph
from geomatt.simulation.ensembles import INTEGRATORS, NOISY, DynamicsConfig, Matter, State, Verlet
from geomatt.simulation.forces import CellForces, Forces
from geomatt.simulation.monitor import Monitor, PaddedBonds
from geomatt.simulation.outcome import Outcome, Part
from geomatt.simulation.pressure import Barostat, ConstantPressure
from geomatt.simulation.replicas import Group
from geomatt.simulation.restart import restore, save
from geomatt.simulation.starts import maxwell_boltzmann, rigid_motions
from geomatt.simulation.watchdog import Watch, Watchdog

if TYPE_CHECKING:
    from geomatt.simulation.gpu_kernels import FusedSteps, FusedWalls

CAPACITY = 1000  # observations held on the device before they are fetched
FRAME_BYTES = 1 << 28  # and so much memory for frames


class BatchedDynamics:
    """A simulation of all replicas of all groups."""

    def __init__(
        self,
        groups: Sequence[Group],
        config: DynamicsConfig | None = None,
        *,
        walls: Walls | None = None,
        device: torch.device | str = "cpu",
        capture: bool | None = None,
        keep_frames: bool = False,
        watch: Watch | None = None,
        spread: Tensor | None = None,
        barostat: Barostat | None = None,
    ) -> None:
        """`capture`: use CUDA graphs (default: on a GPU, without cells); needs forces that a graph can hold.

        `walls` act on replicas that have limits. `keep_frames` records positions, velocities and forces at
        every observation. `watch` looks for alarms; `spread` (R,) is the disagreement of a committee, which
        the forces of the groups update. `barostat` is that of the NPT ensemble.
        """
        self.groups = list(groups) if isinstance(groups, Sequence) else [groups]
        self.config = config or DynamicsConfig()
        for group in self.groups:
            require("group", group, Group, "Group(engine_forces(potential), replicas)")
        self.replicas = [replica for group in self.groups for replica in group.replicas]
        if not self.replicas:
            raise GeomAttError("There is nothing to simulate: give at least one replica.")
        self.device = torch.device(device)
        self.periodic = self._all_or_none_periodic()
        graphs = self.device.type == "cuda" and not self.periodic
        self.capture = graphs if capture is None else capture
        self.atoms = max(group.atoms for group in self.groups)
        self.watched = self.atoms if self.atoms <= MOST_WATCHED else 1  # one atom has no pairs
        self.numbers = np.zeros((len(self.replicas), self.atoms), dtype=np.int64)
        for r, replica in enumerate(self.replicas):
            self.numbers[r, : len(replica.numbers)] = replica.numbers
        self.state, self.matter = self._start()
        self.barostat = (barostat or Barostat()) if self.config.ensemble == "npt" else None
        self.integrator: Verlet
        if self.barostat is not None:
            self.integrator = ConstantPressure(self.config, self.matter, self.barostat)
        else:
            self.integrator = INTEGRATORS[self.config.ensemble](self.config, self.matter)
        size = 72 * self.state.positions.numel() // 3 if keep_frames else 0  # bytes of an observation
        self.capacity = min(CAPACITY, max(1, FRAME_BYTES // max(size, 1)))
        self.walls = walls or Walls()
        limits = [r.limits or PairLimits.none(self.watched, "") for r in self.replicas]
        self.limits = stack(limits, self.watched).to(self.device)
        self.walled = any(one.exist for one in limits)
        self.monitor = Monitor(
            self.config,
            self.matter,
            self.integrator,
            PaddedBonds.stack([r.bonds for r in self.replicas], self.watched, self.device),
            watched=self.watched,
            capacity=self.capacity,
            keep_frames=keep_frames,
            periodic=self.periodic,
            watchdog=None if watch is None else self._watchdog(watch, spread),
            spread=spread,
        )
        self.generators = [torch.Generator(self.device).manual_seed(r.seed) for r in self.replicas]
        noisy = self.config.ensemble in NOISY
        rows = self.atoms + (self.barostat is not None)  # the last for the volume
        shape = (self.config.interval, len(self.replicas), rows, 3) if noisy else (0,)
        self.noise = torch.zeros(shape, dtype=torch.float64, device=self.device)
        self.parts: list[Part] = []
        self._graph: torch.cuda.CUDAGraph | None = None
        self._steps: FusedSteps | None = None  # on a GPU, where they serve
        self._fused_walls: FusedWalls | None = None
        if self.device.type == "cuda" and importlib.util.find_spec("triton"):
            self.fuse()
        several = self.device.type == "cuda" and len(self.groups) > 1
        self._streams = [torch.cuda.Stream(self.device) for _ in self.groups] if several else []
        self._evaluate(self.state, count=False)
        self.integrator.guard(self.state)

    def fuse(self) -> None:
        """Use Triton kernels where they do the same as this configuration in plain torch."""
        from geomatt.simulation.gpu_kernels import LARGEST, FusedSteps, FusedWalls

        if self.periodic or self.atoms > LARGEST:
            return
        if FusedSteps.supports(self.integrator):
            self._steps = FusedSteps(self.integrator)
        if self.walled:
            self._fused_walls = FusedWalls(self.walls, self.limits)

    @property
    def steps(self) -> int:
        """Steps done."""
        return int(self.state.step)

    @property
    def alive(self) -> bool:
        """True if any replica is still moving."""
        return bool(self.state.alive.any())

    def run(self, steps: int, **callbacks: Callable[[Any], None] | None) -> Outcome:
        """`advance`, and the results of the run so far."""
        self.advance(steps, **callbacks)
        return self.outcome()

    def advance(
        self,
        steps: int,
        *,
        progress: Callable[[int], None] | None = None,
        on_part: Callable[[Part], None] | None = None,
    ) -> None:
        """Run `steps` more steps. `on_part` gets the records of each part of the run once fetched."""
        interval = self.config.interval
        if steps < 0 or steps % interval:
            raise GeomAttError(f"The number of steps, {steps}, must be a multiple of `interval`, {interval}.")
        if not self.steps and not self.parts:
            self.monitor.observe(self.state)
            self._fetch(0, on_part)
        blocks = steps // interval
        while blocks:
            part = min(blocks, self.capacity)
            for _ in range(part):
                self._advance()
                if progress is not None:
                    progress(interval)
            self._fetch(self.steps - (part - 1) * interval, on_part)
            blocks -= part

    def outcome(self) -> Outcome:
        """Results of the run so far."""
        return Outcome.of(self.replicas, self.config, self.steps, self.monitor, self.parts)

    def save(self, path: str | os.PathLike[str], extra: Any = None) -> None:
        """Write all that is needed to continue into one file, and `extra`, any JSON value."""
        save(self, Path(path), extra)

    def restore(self, path: str | os.PathLike[str]) -> None:
        """Continue from a file written by `save`; on a CPU, bit by bit as without the interruption."""
        restore(self, Path(path))

    # --- one block of steps --------------------------------------------------------------------------------

    def _advance(self) -> None:
        """`interval` steps and an observation."""
        for r, generator in enumerate(self.generators if self.noise.numel() else []):
            parts = [slice(len(self.replicas[r].numbers))]
            if self.barostat is not None:
                parts.append(slice(self.atoms, None))
            for part in parts:
                drawn = self.noise[:, r, part]
                drawn.copy_(
                    torch.randn(drawn.shape, generator=generator, dtype=drawn.dtype, device=self.device)
                )
        if not self.capture:
            return self._block()
        if self._graph is None:
            self._graph = self._captured()
        self._graph.replay()
        return None

    def _block(self) -> None:
        for k in range(self.config.interval):
            noise = self.noise[k] if self.noise.numel() else None
            if self._steps is None:
                self.integrator.step(self.state, self._evaluate, noise)
            else:
                self._steps.step(self.state, self._evaluate)
        self.monitor.observe(self.state)

    @torch.no_grad()
    def _evaluate(self, state: State, count: bool = True) -> None:
        """Forces and potential energy of all groups, with those of the walls."""
        start = 0
        for group, stream in zip(self.groups, self._fork(), strict=True):
            rows, atoms = slice(start, start + len(group.replicas)), group.atoms
            with torch.cuda.stream(stream):  # nothing without one
                if self.periodic:
                    evaluate = cast(CellForces, group.forces)
                    energy, forces, stress = evaluate(state.positions[rows, :atoms], state.cell[rows])
                    state.stress[rows].copy_(stress)
                else:
                    energy, forces = cast(Forces, group.forces)(state.positions[rows, :atoms])
                state.energy[rows].copy_(energy)
                state.forces[rows, :atoms].copy_(forces)
            start = rows.stop
        found = None
        if self._fused_walls is None and self._near_walls(state):  # while streams compute the groups
            found = self.walls.evaluate(state.positions, self.limits, state.lattice)
        for stream in self._streams:
            torch.cuda.current_stream(self.device).wait_stream(stream)
        if self._fused_walls is not None:
            self._fused_walls.add(state, self.monitor, count)
        if found is not None:
            state.energy.add_(found.energy)
            state.forces.add_(found.forces)
            if found.stress is not None:
                state.stress.add_(found.stress)
            if count:
                self.monitor.count_walls(state, found)

    def _fork(self) -> Sequence[torch.cuda.Stream | None]:
        """For each group a stream that continues from here: one group alone does not fill a GPU."""
        for stream in self._streams:
            stream.wait_stream(torch.cuda.current_stream(self.device))
        return self._streams or [None] * len(self.groups)

    def _near_walls(self, state: State) -> bool:
        """False if no wall acts. Looked at on a CPU only: a GPU would have to wait for the answer."""
        if self.device.type != "cpu" or not self.walled:
            return self.walled
        excess = outside(state.positions, self.limits, state.lattice).excess
        return bool((excess > self.walls.margin).any())

    def _captured(self) -> torch.cuda.CUDAGraph:
        """A block as a CUDA graph. Warming up runs it, so what it changes is put back."""
        changed = [*self.state.tensors().values(), *self.monitor.buffers()]
        kept = [value.clone() for value in changed]

        def put_back() -> None:  # before every run: records must not run over their capacity
            for value, before in zip(changed, kept, strict=True):
                value.copy_(before)

        return capture_graph(self._block, put_back)[0]

    def _fetch(self, first_step: int, on_part: Callable[[Part], None] | None) -> None:
        """Take the records off the device and make room for more."""
        count = int(self.monitor.filled)
        steps = first_step + self.config.interval * np.arange(count)
        series = self.monitor.series[:count].cpu().numpy().copy()
        frames, cells = (
            kept[:count].cpu().numpy().copy() if kept.numel() else None
            for kept in (self.monitor.frames, self.monitor.cells)
        )
        self.monitor.filled.zero_()
        plain = Part(steps * self.config.timestep_fs, *series.swapaxes(0, 1))
        part = replace(plain, frames=frames, cells=cells)
        self.parts.append(plain)
        if on_part is not None:
            on_part(part)

    def _watchdog(self, watch: Watch, spread: Tensor | None) -> Watchdog:
        known = [r.ranges for r in self.replicas]
        limits = None
        if any(one is not None and one.exist for one in known):
            each = [r.ranges or PairLimits.none(self.watched, "") for r in self.replicas]
            limits = stack(each, self.watched).to(self.device)
        _, distance = geometry(self.state.positions[:, : self.watched], self.state.lattice)
        temperature = self.config.temperature_K
        return Watchdog(
            watch, self.matter, self.numbers[:, : self.watched], distance, limits, spread, temperature
        )

    def _all_or_none_periodic(self) -> bool:
        cells = [replica.cell is not None for replica in self.replicas]
        if any(cells) and not all(cells):
            raise GeomAttError(
                "Molecules and periodic structures cannot be simulated together. Separate them."
            )
        if self.config.ensemble == "npt" and not any(cells):
            raise GeomAttError(
                "A molecule in empty space has no pressure. Choose another `ensemble` than npt."
            )
        return any(cells)

    # --- start ---------------------------------------------------------------------------------------------

    def _start(self) -> tuple[State, Matter]:
        config = self.config
        shape = (len(self.replicas), self.atoms, 3)
        positions, velocities = np.zeros(shape), np.zeros(shape)
        masses, freedom = np.zeros(shape[:2]), np.zeros(shape[0])
        for r, replica in enumerate(self.replicas):
            n = len(replica.numbers)
            if not np.isfinite(replica.positions).all():
                raise GeomAttError(f"Replica {r} has positions that are not finite numbers.")
            m = ATOMIC_MASSES[replica.numbers - 1]
            held = np.zeros((3 * n, 0))
            if config.free:
                whole = not (config.rotates or self.periodic)
                held = rigid_motions(m, replica.positions, rotations=whole)
            found = replica.velocities
            if found is None:
                found = maxwell_boltzmann(m, replica.positions, config.temperature_K, replica.seed, held=held)
            positions[r, :n], velocities[r, :n], masses[r, :n] = replica.positions, found, m
            freedom[r] = max(3 * n - held.shape[1], 1)
        inverse = np.divide(1.0, masses, out=np.zeros_like(masses), where=masses > 0)

        def put(array: np.ndarray) -> Tensor:
            return torch.from_numpy(array).to(self.device)

        chain = torch.zeros(config.chain, shape[0], dtype=torch.float64, device=self.device)
        state = State(
            put(positions),
            put(velocities),
            put(np.zeros(shape)),
            put(np.zeros(shape[0])),
            torch.ones(shape[0], dtype=torch.bool, device=self.device),
            chain,
            chain.clone(),
            torch.zeros((), dtype=torch.int64, device=self.device),
            put(
                np.array([r.cell for r in self.replicas], dtype=np.float64) if self.periodic else np.zeros(0)
            ),
            put(np.zeros((shape[0], 3, 3) if self.periodic else 0)),
        )
        return state, Matter(put(masses)[..., None], put(inverse)[..., None], put(freedom))
