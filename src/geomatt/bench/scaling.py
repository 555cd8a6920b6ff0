"""The suites `scaling` and `large`: time and memory per atom of random matter, and dynamics of much of it."""

from __future__ import annotations

import contextlib
import json
import resource
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from geomatt.bench.report import BenchReport, Check, ScalingPoint
from geomatt.bench.settings import BenchSettings, parse_model
from geomatt.bench.systems import MATTER, cube_edge, random_matter
from geomatt.bench.timing import Contender, Ratio, Timing, clock, repeat
from geomatt.bench.workbench import Workbench
from geomatt.data import Batch
from geomatt.errors import GeomAttError
from geomatt.model import Neighbours, Network, Normalisation, Potential, Work
from geomatt.model.neighbours import NeighbourList, neighbour_list
from geomatt.progress import silent
from geomatt.simulation import BatchedDynamics, DynamicsConfig, Group, PeriodicForces, Replica

LINEAR = 1.3  # how much more an atom of a large system may cost than one of a small system
LARGEST = {"geomatt": 100_000}  # atoms that fit on a GPU; other networks 50,000
SHORTEST = 0.02  # s, below which a round repeats an evaluation
# Names of engines for all pairs and for neighbour lists, if a network lets one choose.
ENGINES = {"dense": ("pairs", "dense"), "sparse": ("sparse",), "dynamics": ("sparse",)}
SCALE = 0.01  # eV, unit of an untrained network: its forces are then as weak as dynamics needs


@dataclass
class Case:
    """One engine at one size, ready to run."""

    path: str
    atoms: int
    pairs: float  # per atom
    run: Callable[[], object]
    setup_seconds: float
    work: Work | None = None


def scaling_suite(bench: Workbench) -> None:
    """All sizes of both engines in turns, then their memory."""
    settings = bench.settings
    network, sizes = bench.network(MATTER, **bench.with_radius), []
    if network.radius is None or _engine(network, "dense") != "auto":
        sizes += [("dense", n) for n in settings.dense_sizes]
    if network.radius is not None:
        sizes += [("sparse", n) for n in settings.sparse_sizes]
    cases, contenders = [], []
    with bench.stage(f"building random matter, {bench.model}", len(sizes)) as advance:
        for path, atoms in sizes:
            case = build(bench, path, atoms)
            if (contender := _contender(bench, case)) is not None:
                cases.append(case)
                contenders.append(contender)
            advance(1)
    _points(bench, cases, bench.measure("evaluating random matter", contenders))
    _judge(bench)


def large_suite(bench: Workbench) -> None:
    """Dynamics of a large cell, beside the evaluations that it needs."""
    atoms = bench.settings.large
    if bench.network(MATTER, **bench.with_radius).radius is None:
        bench.report.notes.append(f"{bench.model} has no radius: dynamics of {atoms} atoms was not measured.")
        return
    cases = [build(bench, path, atoms) for path in ("dynamics", "sparse")]
    contenders = [_contender(bench, case) for case in cases]
    ready = [contender for contender in contenders if contender is not None]
    if len(ready) < len(cases):
        return
    ours, baseline = bench.measure(f"dynamics of {atoms} atoms", ready)
    _points(bench, cases[:1], [ours])
    memory = bench.report.scaling[-1].memory
    held = "" if memory is None else f", {memory / 1e9:.1f} GB of memory"
    ours.name, baseline.name = f"{bench.model}, dynamics", "energy and forces alone"
    note = f"{1 / ours.median:.3g} steps per second{held}"
    bench.add("large", f"step of dynamics of {atoms} atoms in a cell", ours, baseline, note=note)


def _points(bench: Workbench, cases: Sequence[Case], timings: Sequence[Timing]) -> None:
    """Add points with their peak memory."""
    with bench.stage("peak memory", len(cases)) as advance:
        for case, timing in zip(cases, timings, strict=True):
            floor = bench.floor(case.work, timing)
            bench.report.scaling.append(
                ScalingPoint(
                    case.path, case.atoms, case.pairs, timing.seconds, _memory(bench, case),
                    case.setup_seconds, None if floor is None else floor.times, bench.model,
                )
            )  # fmt: skip
            advance(1)


def build(bench: Workbench, path: str, atoms: int) -> Case:
    """Random matter and what evaluates it. The neighbour search is timed apart where it can be."""
    settings, network = bench.settings, bench.network(MATTER, **bench.with_radius)
    matter = random_matter(atoms, seed=settings.seed, device=settings.device)
    if path == "sparse" and (case := _neighbours_ahead(network, matter, settings.cuda)) is not None:
        return case
    potential = Potential(network, Normalisation(scale=SCALE), engine=_engine(network, path))
    batch, pairs, setup = Batch(matter.numbers, matter.positions.float()), float(atoms**2), 0.0
    if path != "dense" and network.radius is not None:
        # Periodic, so that atoms of small and large systems have as many neighbours.
        cell = cube_edge(atoms) * torch.eye(3, device=batch.positions.device)
        batch = replace(batch, cell=cell[None])
        near: list[NeighbourList] = []
        place, box = matter.positions[0].cpu().numpy(), cell.cpu().double().numpy()
        radius = network.radius
        setup = clock(lambda: near.append(neighbour_list(place, box, (True,) * 3, radius)), settings.cuda)
        pairs = float(atoms + len(near[0]))
    if path == "dynamics":
        simulation = _dynamics(potential, batch)
        return Case(path, atoms, pairs / atoms, lambda: simulation.run(1), setup)
    work = network.evaluation_work(atoms)
    return Case(path, atoms, pairs / atoms, lambda: potential.evaluate(batch, keep=True), setup, work)


def _neighbours_ahead(network: Network, matter: Batch, cuda: bool) -> Case | None:
    """An evaluation that is given the neighbours; None if the engine must find them itself."""
    one, atoms = matter.as_member(), matter.numbers.shape[1]
    engine = network.engine(_engine(network, "sparse")).chosen(network.stacked(), one)
    prepared = engine.prepare(network.stacked(), keep=True)
    found: list[Neighbours | None] = []
    setup = clock(lambda: found.append(engine.neighbours(prepared, one)), cuda)
    near = found[0]
    if near is None:
        return None
    pairs = float(near.pairs)

    def run() -> object:
        return engine.evaluate(prepared, one, neighbours=near)

    work = network.evaluation_work(atoms, pairs=pairs)
    return Case("sparse", atoms, pairs / atoms, run, setup, work)


def _dynamics(potential: Potential, batch: Batch) -> BatchedDynamics:
    """Velocity Verlet at 300 K in a cell, as `geomatt md` runs it."""
    assert batch.cell is not None
    numbers, positions = batch.numbers[0].cpu().numpy(), batch.positions[0].double().cpu().numpy()
    replica = Replica(numbers, positions, cell=batch.cell[0].double().cpu().numpy())
    config = DynamicsConfig("nve", 300.0, 0.5, interval=1, bond_limit=None)
    group = Group([replica], PeriodicForces(potential, batch))
    return BatchedDynamics([group], config, device=batch.numbers.device)


def _engine(network: Network, path: str) -> str:
    return next((name for name in ENGINES[path] if name in network.engines()), "auto")


def _contender(bench: Workbench, case: Case) -> Contender | None:
    """Small systems repeat within a round; what a GPU has no memory for is left out with a note."""
    try:
        first = clock(case.run, bench.settings.cuda)
        warm = first if first > 50 * SHORTEST else clock(case.run, bench.settings.cuda)
    except (torch.OutOfMemoryError, GeomAttError):
        torch.cuda.empty_cache()
        bench.report.notes.append(f"Not enough memory for {case.path}, {case.atoms} atoms.")
        return None
    count = max(1, min(50, round(SHORTEST / warm)))
    name = f"{case.path}, {case.atoms} atoms"
    return Contender(name, repeat(case.run, count), count, bench.settings.scaling_rounds)


def _memory(bench: Workbench, case: Case) -> float | None:
    """Peak bytes of one evaluation: the allocator's on a GPU, those of a new process on a CPU."""
    if bench.settings.cuda:
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        case.run()
        torch.cuda.synchronize()
        return float(torch.cuda.max_memory_allocated() - before)
    arguments = json.dumps([bench.model, case.path, case.atoms, bench.settings.to_dict()])
    program = f"import {__name__} as scaling; scaling.print_peak({arguments!r})"
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    if answer.returncode:
        bench.report.notes.append(f"The memory of {case.path}, {case.atoms} atoms could not be measured.")
        return None
    return float(answer.stdout)


def print_peak(arguments: str) -> None:
    """Print the bytes by which one evaluation raises the peak memory of this process."""
    model, path, atoms, settings = json.loads(arguments)
    bench = Workbench(BenchSettings(**settings), model, BenchReport({}), silent)
    build(bench, path, 2).run()  # libraries allocate their own memory before the count begins
    before = _peak()
    case = build(bench, path, atoms)
    if path != "dynamics":  # which evaluates when it is built
        before = _peak()
    case.run()
    print(_peak() - before)


def _peak() -> float:
    """The most memory this process has held, in bytes."""
    with contextlib.suppress(OSError):  # getrusage would count the parent's too, which Linux carries over
        for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
            if line.startswith("VmHWM:"):
                return 1024.0 * int(line.split()[1])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return float(peak) if sys.platform == "darwin" else 1024.0 * peak


def _judge(bench: Workbench) -> None:
    """The row of the target: time of an atom in a large system over that in a small one."""
    small, large = bench.settings.compared_sizes
    points = {p.atoms: p for p in bench.report.scaling if p.path == "sparse" and p.model == bench.model}
    if not {small, large} <= set(points):
        return
    names = {small: f"{small} atoms", large: f"{bench.model}, {large} atoms"}
    per_atom = {n: Timing(name, tuple(s / n for s in points[n].seconds)) for n, name in names.items()}
    largest, ratio = max(points), Ratio.of(per_atom[small], per_atom[large])
    checks = [Check("time per atom", 1 / ratio.median, LINEAR, True, "×")]
    memory, before = points[largest].memory, points[small].memory
    if memory is not None and before:
        growth = memory / largest / (before / small)
        checks.append(Check(f"memory per atom at {largest}", growth, LINEAR, True, "×"))
    goal = LARGEST.get(parse_model(bench.model)[0], 50_000) if bench.settings.cuda else 5000
    checks.append(Check("largest system", largest, goal, False, "atoms"))
    what = f"energy and forces per atom, {large} atoms against {small}"
    note = f"neighbours per atom: {points[large].pairs:.0f} against {points[small].pairs:.0f}"
    bench.add("scaling", what, per_atom[large], per_atom[small], checks=checks, note=note)
