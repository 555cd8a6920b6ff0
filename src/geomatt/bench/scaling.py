"""The suite `scaling`: time and memory per atom of random matter, all pairs against neighbour lists."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from geomatt.bench import floor
from geomatt.bench.result import Bench, Check, Row, ScalingPoint
from geomatt.bench.settings import Settings
from geomatt.bench.stage import Stage
from geomatt.bench.systems import random_matter
from geomatt.bench.timing import Contender, Timing, measure
from geomatt.bench.training import judged, new_network
from geomatt.data.batch import Batch
from geomatt.model.geometric_attention.inference import Evaluator
from geomatt.model.geometric_attention.sparse.program import pair_layout, sparse_energy_and_forces

LINEAR = 1.3  # how much more an atom of a large system may cost than one of a small system
SHORTEST = 0.02  # s, below which a round repeats an evaluation


@dataclass
class Case:
    """One path at one size, ready to run."""

    path: str
    atoms: int
    pairs: float  # per atom
    run: Callable[[], object]
    setup_seconds: float


def scaling_suite(bench: Bench, settings: Settings, stage: Stage) -> None:
    """All sizes of both paths in turns, then their memory."""
    sizes = [("dense", n) for n in settings.dense_sizes] + [("sparse", n) for n in settings.sparse_sizes]
    with stage("building random matter", len(sizes)) as advance:
        cases = []
        for path, atoms in sizes:
            cases.append(build(settings, path, atoms))
            advance(1)
    with stage("evaluating random matter", len(cases) * (settings.scaling_rounds + 2)) as advance:
        cases = [case for case in cases if _fits(case, bench)]
        contenders = [_contender(case, settings, advance) for case in cases]
        timings = measure(contenders, [settings.scaling_rounds] * len(cases), settings.device, advance)
    with stage("peak memory", len(cases)) as advance:
        for case, timing in zip(cases, timings, strict=True):
            memory = _memory(settings, case, bench)
            bench.scaling.append(_point(bench, settings, case, timing, memory))
            advance(1)
    _judge(bench, settings)


def build(settings: Settings, path: str, atoms: int) -> Case:
    """Random matter and what evaluates it; the neighbour search is done here, and timed apart."""
    z, r = random_matter(atoms, settings.seed)
    numbers = torch.from_numpy(z).to(settings.device)
    positions = torch.from_numpy(r).to(settings.device)
    network = new_network(settings.config((1, 6, 7, 8), bias=False), settings.device, settings.seed)
    if path == "dense":
        batch, evaluate = Batch(numbers[None], positions[None].float()), Evaluator(network)
        return Case(
            path,
            atoms,
            float(atoms),
            lambda: evaluate(batch, forces=True, attention=False, path="dense"),
            0.0,
        )
    start = time.perf_counter()
    layout = pair_layout(network, numbers, positions)
    pairs = float((~layout.empty).sum()) / atoms  # waits for the device
    setup = time.perf_counter() - start
    return Case(
        path,
        atoms,
        pairs,
        lambda: sparse_energy_and_forces(network, numbers, positions, neighbours=layout),
        setup,
    )


def _fits(case: Case, bench: Bench) -> bool:
    """Try a case once; what a GPU has no memory for is left out with a note."""
    try:
        case.run()
    except torch.OutOfMemoryError:
        torch.cuda.empty_cache()
        bench.notes.append(f"Not enough memory for {case.path}, {case.atoms} atoms.")
        return False
    return True


def _contender(case: Case, settings: Settings, advance: Callable[[int], None]) -> Contender:
    """Small systems repeat within a round, or the clock would be measured."""
    once = Contender("", case.run)
    (warm,) = measure([once], [1], settings.device, lambda done: None)
    advance(1)
    repeats = max(1, min(50, round(SHORTEST / warm.median)))

    def run() -> None:
        for _ in range(repeats):
            case.run()

    return Contender(f"{case.path}, {case.atoms} atoms", run, repeats)


def _memory(settings: Settings, case: Case, bench: Bench) -> float | None:
    """Peak bytes of one evaluation: the allocator's on a GPU, a fresh process's on a processor."""
    if settings.cuda:
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        case.run()
        torch.cuda.synchronize()
        return float(torch.cuda.max_memory_allocated() - before)
    arguments = {"settings": settings.to_dict(), "path": case.path, "atoms": case.atoms}
    command = [sys.executable, "-m", "geomatt.bench.memory", json.dumps(arguments)]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    if answer.returncode:
        bench.notes.append(f"The memory of {case.path}, {case.atoms} atoms could not be measured.")
        return None
    return float(answer.stdout)


def _point(
    bench: Bench, settings: Settings, case: Case, timing: Timing, memory: float | None
) -> ScalingPoint:
    config = settings.config((1, 6, 7, 8), bias=False)
    if case.path == "dense":
        work = floor.energy_and_forces(config, case.atoms)
    else:
        work = floor.sparse_energy_and_forces(config, case.atoms, case.pairs * case.atoms, elements=4)
    assert bench.ceilings is not None
    return ScalingPoint(
        case.path,
        case.atoms,
        case.pairs,
        timing.seconds,
        memory,
        case.setup_seconds,
        timing.median / bench.ceilings.floor(work),
    )


def _judge(bench: Bench, settings: Settings) -> None:
    """The row of the target: what an atom costs in a large system, over a small one."""
    small, large = settings.compared_sizes
    points = {p.atoms: p for p in bench.scaling if p.path == "sparse"}
    if not {small, large} <= set(points):
        return
    per_atom = {n: Timing(f"{n} atoms", tuple(s / n for s in points[n].seconds)) for n in (small, large)}
    row = Row(
        "scaling",
        f"energy and forces per atom, {large} atoms against {small}",
        per_atom[large],
        per_atom[small],
        note=f"neighbours per atom: {points[large].pairs:.0f} against {points[small].pairs:.0f}",
    )
    checks = []
    if not settings.quick:
        largest = max(points)
        checks.append(Check("time per atom", 1 / row.ratio.median, LINEAR, True, "×"))
        memory, before = points[largest].memory, points[small].memory
        if memory is not None and before is not None:
            growth = memory / largest / (before / small)
            checks.append(Check(f"memory per atom at {largest}", growth, LINEAR, True, "×"))
        checks.append(Check("largest system", largest, 100_000 if settings.cuda else 5000, False, "atoms"))
    bench.rows.append(judged(row, checks))
