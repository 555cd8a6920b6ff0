"""The suite `infer`: one molecule at a time, alone and inside molecular dynamics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from geomatt.bench.floor import energy_and_forces
from geomatt.bench.peers import Peer, installed_peers, literal
from geomatt.bench.result import Bench, Check, Row, importable
from geomatt.bench.settings import Settings
from geomatt.bench.stage import Stage
from geomatt.bench.systems import ELEMENTS, Workload, aspirin_frames
from geomatt.bench.timing import Contender, Timing, measure, ticks
from geomatt.bench.training import judged, new_network, own_floor
from geomatt.data.batch import Batch
from geomatt.model.geometric_attention.inference import Evaluator
from geomatt.model.normalisation import Normalisation
from geomatt.model.potential import Potential

TIMESTEP = 0.5  # fs


def infer_suite(bench: Bench, settings: Settings, stage: Stage) -> None:
    """Energy and forces of one molecule from tensors, then steps of molecular dynamics through ASE."""
    workload = aspirin_frames(settings.batch, settings.batch, seed=settings.seed, device=settings.device)
    potential = Potential(
        new_network(settings.config(ELEMENTS), settings.device, settings.seed), Normalisation()
    )
    peers = installed_peers(settings.peers, workload)
    _single_points(bench, settings, stage, workload, potential, peers)
    if importable("ase"):
        _dynamics(bench, settings, stage, workload, potential, peers)
    else:
        bench.notes.append("Molecular dynamics was not measured: ASE is not installed.")


def _single_points(
    bench: Bench,
    settings: Settings,
    stage: Stage,
    workload: Workload,
    potential: Potential,
    peers: list[Peer],
) -> None:
    positions = workload.positions[0]
    batch = Batch(workload.numbers[None], positions[None])

    def times(run: Callable[[], object], count: int) -> Callable[[], None]:
        def repeated() -> None:
            for _ in range(count):
                run()

        return repeated

    def peer_run(peer: Peer) -> Callable[[], object]:
        return lambda: peer.energy_and_forces(positions)

    # Kept, as whoever evaluates more than one structure does; peers are as they come.
    evaluator = Evaluator(potential.network)
    count = settings.single_points
    spelled_out = literal(workload, potential.network)
    contenders = [
        Contender("geomatt", times(lambda: potential.evaluate(batch, evaluator=evaluator), count), count),
        *(Contender(p.name, times(peer_run(p), count), count) for p in peers),
        Contender("literal", times(peer_run(spelled_out), 2), 2),
    ]
    rounds = [settings.rounds] * (len(contenders) - 1) + [settings.literal_rounds]
    with stage("single points", ticks(contenders, rounds)) as advance:
        timings = measure(contenders, rounds, settings.device, advance)
    what = f"energy and forces of one molecule, {workload.atoms} atoms"
    _add_rows(bench, settings, potential, workload, what, timings, goal=4.5)


def _dynamics(
    bench: Bench,
    settings: Settings,
    stage: Stage,
    workload: Workload,
    potential: Potential,
    peers: list[Peer],
) -> None:
    from geomatt.simulation.calculator import GeomAttCalculator

    numbers, start = workload.numbers.cpu().numpy(), workload.positions[0].double().cpu().numpy()
    steps = settings.md_steps
    calculators: list[tuple[str, Any]] = [("geomatt", GeomAttCalculator(potential, device=settings.device))]
    calculators += [(p.name, peer_calculator(p, workload)) for p in peers]
    contenders = [Contender(name, _verlet(numbers, start, calc, steps), steps) for name, calc in calculators]
    rounds = [settings.rounds] * len(contenders)
    with stage("molecular dynamics", ticks(contenders, rounds)) as advance:
        timings = measure(contenders, rounds, settings.device, advance)
    what = f"step of molecular dynamics in ASE, {workload.atoms} atoms"
    _add_rows(bench, settings, potential, workload, what, timings, goal=3.0, rate=True)


def _add_rows(
    bench: Bench,
    settings: Settings,
    potential: Potential,
    workload: Workload,
    what: str,
    timings: list[Timing],
    *,
    goal: float,
    rate: bool = False,
) -> None:
    """Our timing, which comes first, beside each of the others; `rate`: with steps per second."""
    own, *others = timings
    floor = own_floor(bench, energy_and_forces(potential.network.config, workload.atoms), own)
    for other in others:
        note = f"{1 / own.median:.0f} steps per second; {other.name} {1 / other.median:.0f}"
        row = Row("infer", what, own, other, floor=floor, note=note if rate else "")
        bench.rows.append(judged(row, _checks(row, settings, goal)))


def _checks(row: Row, settings: Settings, goal: float) -> list[Check]:
    """The target holds against the baseline, on a processor."""
    if settings.quick or settings.cuda or row.baseline.name != "PyG SchNet":
        return []
    return [Check("times faster", row.ratio.median, goal, False, "×")]


def _verlet(numbers: np.ndarray, start: np.ndarray, calculator: Any, steps: int) -> Callable[[], None]:
    """Velocity Verlet from the same frame at rest, so that every round does the same."""
    from ase import Atoms, units
    from ase.md.verlet import VelocityVerlet

    atoms = Atoms(numbers, start)
    atoms.calc = calculator
    dynamics = VelocityVerlet(atoms, TIMESTEP * units.fs)

    def run() -> None:
        atoms.positions[:] = start
        atoms.set_momenta(np.zeros_like(start))
        dynamics.run(steps)

    return run


def peer_calculator(peer: Peer, workload: Workload) -> Any:
    """A peer behind the least calculator ASE accepts."""
    from ase.calculators.calculator import Calculator, all_changes

    class PeerCalculator(Calculator):
        implemented_properties = ["energy", "forces"]  # noqa: RUF012 - ASE's convention

        def calculate(
            self, atoms: Any = None, properties: Any = ("energy",), system_changes: Any = all_changes
        ) -> None:
            super().calculate(atoms, properties, system_changes)
            positions: Tensor = torch.from_numpy(atoms.positions).to(workload.device, torch.float32)
            energy, forces = peer.energy_and_forces(positions)
            self.results = {"energy": float(energy), "forces": forces.double().cpu().numpy()}

    return PeerCalculator()
