"""The suite `replicas`: dynamics of many molecules at once in torch-sim, against ASE one by one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from geomatt.bench.inference import TIMESTEP, verlet
from geomatt.bench.report import importable
from geomatt.bench.timing import Contender
from geomatt.bench.workbench import Workbench
from geomatt.data import Batch, Dataset
from geomatt.model import Domain, Normalisation, Potential

ONE_BY_ONE = "ASE, one by one"


def replicas_suite(bench: Workbench) -> None:
    """Velocity Verlet with walls, the same in both programs: time per step of one replica."""
    missing = [
        name for name, module in (("torch-sim", "torch_sim"), ("ASE", "ase")) if not importable(module)
    ]
    if missing:
        bench.report.notes.append(f"Replicas were not measured: {' and '.join(missing)} not installed.")
        return
    from geomatt.simulation import GeomAttCalculator
    from geomatt.simulation.engines import TorchSimModel

    settings, network = bench.settings, bench.network()
    frames, steps = bench.frames(settings.replicas), settings.replica_steps
    numbers, positions = frames.numbers[0].cpu().numpy(), frames.positions.double().cpu().numpy()
    ranges = Domain.measure(Dataset.from_frames(numbers, positions))
    potential = Potential(network, Normalisation(), ranges=ranges)
    calculator = GeomAttCalculator(potential, device=settings.device)
    together = TorchSimModel(potential, device=settings.device)
    rounds, many = settings.throughput_rounds, steps * settings.replicas
    contenders = [
        Contender(f"{bench.model}, torch-sim", _torch_sim(together, frames, steps), many, rounds),
        Contender(ONE_BY_ONE, verlet(numbers, positions[0], calculator, steps), steps, rounds),
    ]
    what = f"step of one of {settings.replicas} replicas, {len(numbers)} atoms each"
    work = network.evaluation_work(len(numbers))
    bench.compare("replicas", what, contenders, work, "steps × replicas")


def _torch_sim(model: Any, frames: Batch, steps: int) -> Callable[[], None]:
    """All replicas from the same frames at rest, so that every round does the same."""
    import torch_sim as ts

    from geomatt.elements import ATOMIC_MASSES
    from geomatt.units import FEMTOSECOND

    count, size = frames.numbers.shape
    flat = frames.numbers.reshape(-1)
    masses = torch.from_numpy(ATOMIC_MASSES[flat.cpu().numpy() - 1]).to(flat.device)
    system = torch.arange(count, device=flat.device).repeat_interleave(size)
    start = frames.positions.double().reshape(-1, 3)
    cell = torch.zeros(count, 3, 3, dtype=torch.float64, device=flat.device)
    state = ts.SimState(
        positions=start, masses=masses, cell=cell, pbc=False, atomic_numbers=flat, system_idx=system
    )
    zero = torch.zeros((), dtype=torch.float64, device=flat.device)
    dt = zero + TIMESTEP * FEMTOSECOND
    if hasattr(ts, "nve_step"):
        moving, step = ts.nve_init(state, model, kT=zero), partial(ts.nve_step, model=model, dt=dt)
    else:  # before torch-sim 0.4
        begin, step = ts.nve(model, dt=dt, kT=zero)
        moving = begin(state)

    def run() -> None:
        moving.positions, moving.momenta = start.clone(), torch.zeros_like(start)
        for _ in range(steps):
            step(moving)

    return run
