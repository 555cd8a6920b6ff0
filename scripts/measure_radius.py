"""What a radius costs in accuracy, and what an atom of a large system costs, on a GPU.

    python scripts/measure_radius.py --data DIR --out DIR [--minutes 8]

Times energies and forces of 2,000 to 50,000 atoms. Then trains pair states with all pairs and with several
radii on the same frames of aspirin and naphthalene (both molecules side by side) and tests them on other
frames; with --dimer also the dimer of DNA, all pairs against 5 Å. Everything goes to radius.json; an
experiment that is already in it is not repeated.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from geomatt.bench.systems import MATTER, cube_edge, random_matter
from geomatt.data import Batch, random_split
from geomatt.data.io.readers import read
from geomatt.errors import GeomAttError
from geomatt.evaluation import evaluate
from geomatt.model import new_network
from geomatt.reproduce.inputs import find_file
from geomatt.training import Job, resolve, train_together
from geomatt.units import from_ev

MOLECULES = ("md17/aspirin", "md17/naphthalene")
DIMER = ("gfn2/cg-cg",)
RADII = (0.0, 5.0, 4.0, 6.0)  # Å, the first is all pairs; in order of interest
SIZES = (2_000, 5_000, 20_000, 50_000)
KCAL = from_ev("kcal/mol")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with md17/")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--channels", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=300)
    parser.add_argument("--rate", type=float, default=3e-3)
    parser.add_argument("--test", type=int, default=10_000, help="frames to test on")
    parser.add_argument("--minutes", type=float, default=8.0, help="no experiment starts after this time")
    parser.add_argument("--dimer", action="store_true")
    parser.add_argument("--device", default="cuda")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    target, started = given.out / "radius.json", time.monotonic()
    found: dict[str, Any] = json.loads(target.read_text()) if target.exists() else {}

    def experiment(name: str, run: Any) -> None:
        if name in found or time.monotonic() - started > 60 * given.minutes:
            return
        try:
            found[name] = run()
        except GeomAttError as error:
            found[name] = {"error": str(error)}
        print(name, json.dumps(found[name]), flush=True)
        target.write_text(json.dumps(found, indent=2))

    for atoms in SIZES:
        experiment(f"{atoms} atoms", lambda atoms=atoms: large(atoms, given.device))
    for radius in RADII:
        experiment(f"radius {radius:g}", lambda radius=radius: accuracy(given, MOLECULES, radius))
    for radius in RADII[:2] if given.dimer else ():
        experiment(f"dimer, radius {radius:g}", lambda radius=radius: accuracy(given, DIMER, radius))


def accuracy(given: argparse.Namespace, molecules: Sequence[str], radius: float) -> dict[str, Any]:
    """Errors in kcal/mol and kcal/mol/Å of molecules trained side by side."""
    jobs = []
    for molecule in molecules:
        data = read(find_file(given.data, molecule))
        split = random_split(len(data), 950, 50, min(given.test, len(data) - 1000), seed=0)
        config = resolve(
            {
                "model": "pair",
                "data": molecule,
                "network": {"channels": given.channels, "radius": radius},
                "epochs": given.epochs,
                "learning_rate": given.rate,
                "train": 950,
                "val": 50,
                "device": given.device,
            }
        )
        folder = given.out / f"radius-{radius:g}" / molecule.replace("/", "-")
        jobs.append(Job(data, split, config, folder))
    begin = time.monotonic()
    results = train_together(jobs)
    seconds = time.monotonic() - begin
    rows: dict[str, Any] = {"seconds": seconds, "ms_per_step": 1e3 * seconds / (95 * given.epochs)}
    for job, result in zip(jobs, results, strict=True):
        potential = result.potential.to(given.device)
        tested = evaluate(potential, job.dataset, indices=job.split.test, unit="eV", batch_size=256).overall
        rows[job.folder.name] = {
            "energy_mae": KCAL * (tested.energy_mae or 0.0),
            "force_mae": KCAL * (tested.forces_mae or 0.0),
        }
    return rows


def large(atoms: int, device: str) -> dict[str, Any]:
    """Time and memory of energy and forces of periodic random matter, size S, radius 5 Å."""
    network = new_network("pair", {"channels": 64, "radius": 5.0}, MATTER).to(device)
    matter = random_matter(atoms, device=device, dtype=torch.float32)
    cell = cube_edge(atoms) * torch.eye(3, device=device)
    batch = Batch(matter.numbers, matter.positions, cell=cell[None]).as_member()
    engine = network.engine("sparse")
    prepared = engine.prepare(network.stacked())
    begin = time.monotonic()
    pairs = len(engine.graphs.of(batch.member(0))[0])  # type: ignore[attr-defined]
    search, cuda, seconds = time.monotonic() - begin, device.startswith("cuda"), []
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    for _ in range(4):
        begin = time.monotonic()
        engine.evaluate(prepared, batch)
        if cuda:
            torch.cuda.synchronize()
        seconds.append(time.monotonic() - begin)
    best = min(seconds[1:])
    return {
        "neighbours": pairs / atoms - 1,
        "search_s": search,
        "seconds": best,
        "us_per_atom": 1e6 * best / atoms,
        "kb_per_atom": torch.cuda.max_memory_allocated() / atoms / 1e3 if cuda else None,
    }


if __name__ == "__main__":
    main()
