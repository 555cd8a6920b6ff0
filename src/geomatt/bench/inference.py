"""The suite `infer`: one molecule at a time, many at once, and inside molecular dynamics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from geomatt.bench.peers import Peer, installed_peers, literal
from geomatt.bench.report import importable
from geomatt.bench.settings import LITERAL, ONE_AT_A_TIME
from geomatt.bench.timing import Contender, repeat
from geomatt.bench.workbench import Workbench
from geomatt.data import Batch
from geomatt.model import Normalisation, Potential

TIMESTEP = 0.5  # fs


def infer_suite(bench: Workbench) -> None:
    """Energies and forces from tensors, then steps of molecular dynamics in ASE."""
    settings, network = bench.settings, bench.network()
    frames, potential = bench.frames(settings.batch), Potential(network, Normalisation())
    peers = installed_peers(bench, frames)
    _single_points(bench, frames, potential, peers)
    _throughput(bench, potential, peers[:1])  # others take minutes
    if importable("ase"):
        _dynamics(bench, frames, potential, peers)
    else:
        bench.report.notes.append("Molecular dynamics was not measured: ASE is not installed.")


def _single_points(bench: Workbench, frames: Batch, potential: Potential, peers: list[Peer]) -> None:
    """One molecule after the other, each result waited for."""
    settings, one = bench.settings, _inputs(frames, 1)
    count, rounds = settings.single_points, settings.rounds
    slow = literal(potential.network, frames, settings.batch).evaluator(one.positions)
    contenders = [
        Contender(bench.model, _alone(bench, lambda: potential.evaluate(one, keep=True)), count, rounds),
        *(Contender(p.name, _alone(bench, p.evaluator(one.positions)), count, rounds) for p in peers),
        Contender(LITERAL, _alone(bench, slow, 2), 2, settings.literal_rounds),
    ]
    atoms = one.numbers.shape[1]
    work = potential.network.evaluation_work(atoms)
    bench.compare("single point", f"energy and forces of one molecule, {atoms} atoms", contenders, work)


def _throughput(bench: Workbench, potential: Potential, peers: list[Peer]) -> None:
    """A large batch at once: time per molecule, against one at a time and against the peers."""
    settings, size = bench.settings, bench.settings.throughput
    frames, rounds = bench.frames(size), bench.settings.throughput_rounds
    one, many = _inputs(frames, 1), _inputs(frames, size)
    alone = _alone(bench, lambda: potential.evaluate(one, keep=True))
    contenders = [
        Contender(bench.model, lambda: potential.evaluate(many, keep=True), size, rounds),
        Contender(ONE_AT_A_TIME, alone, settings.single_points, rounds),
        *(Contender(p.name, p.evaluator(many.positions), size, rounds) for p in peers),
    ]
    atoms = many.numbers.shape[1]
    work = potential.network.evaluation_work(atoms, size)
    what = f"energy and forces in a batch of {size}, {atoms} atoms, per molecule"
    bench.compare("throughput", what, contenders, work and work.share(size), "molecules")


def _dynamics(bench: Workbench, frames: Batch, potential: Potential, peers: list[Peer]) -> None:
    from geomatt.simulation import GeomAttCalculator

    settings, steps = bench.settings, bench.settings.md_steps
    numbers, start = frames.numbers[0].cpu().numpy(), frames.positions[0].double().cpu().numpy()
    calculators = {bench.model: GeomAttCalculator(potential, device=settings.device)}
    calculators |= {p.name: peer_calculator(p, settings.device) for p in peers}
    contenders = [
        Contender(name, verlet(numbers, start, calculator, steps), steps, settings.rounds)
        for name, calculator in calculators.items()
    ]
    work = potential.network.evaluation_work(len(numbers))
    what = f"step of molecular dynamics in ASE, {len(numbers)} atoms"
    bench.compare("dynamics", what, contenders, work, "steps")


def _inputs(frames: Batch, count: int) -> Batch:
    """The first structures without labels."""
    return Batch(frames.numbers[:count], frames.positions[:count])


def _alone(bench: Workbench, evaluate: Callable[[], object], count: int | None = None) -> Callable[[], None]:
    """Evaluations one after the other, each finished before the next starts, as in dynamics."""

    def run() -> None:
        evaluate()
        if bench.settings.cuda:
            torch.cuda.synchronize()

    return repeat(run, count or bench.settings.single_points)


def verlet(numbers: np.ndarray, start: np.ndarray, calculator: Any, steps: int) -> Callable[[], None]:
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


def peer_calculator(peer: Peer, device: str) -> Any:
    """A peer in the smallest calculator ASE accepts."""
    from ase.calculators.calculator import Calculator, all_changes

    class PeerCalculator(Calculator):
        implemented_properties = ["energy", "forces"]  # noqa: RUF012 - ASE's convention

        def calculate(
            self, atoms: Any = None, properties: Any = ("energy",), system_changes: Any = all_changes
        ) -> None:
            super().calculate(atoms, properties, system_changes)
            positions = torch.from_numpy(atoms.positions).to(device, torch.float32)
            energy, forces = peer.energy_and_forces(positions[None])
            self.results = {"energy": float(energy), "forces": forces[0].double().cpu().numpy()}

    return PeerCalculator()
