"""Measure which walls hold: dynamics that models do not survive, with walls of several sorts.

    python scripts/measure_walls.py --data DIR --out DIR [--case md17/toluene:pair-s,800,10] [--walls 50,0.1]

A case is a model, a temperature in K and a time in ps. Its replicas start from frames that the model has not
seen, the same for all walls. Walls are a stiffness in eV/Å² and how far outside the data they begin, in Å.
With --no-bounds the network has no bounds (`geomatt.model.bounds`). Every run is kept in OUT, so that
finished ones are not repeated after Ctrl-C, and several processes may work on different walls. The runs in
OUT are added to results/walls.json; the table in docs/simulation.md shows all. With --table, only the table.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any

from docs_block import write_block
from rich.progress import track

from geomatt.data import read
from geomatt.model import fingerprint, load
from geomatt.reproduce import ExperimentSettings
from geomatt.reproduce.frame import provenance
from geomatt.reproduce.inputs import find_file, unseen_frames
from geomatt.reproduce.physics_molecules import batched
from geomatt.simulation import DynamicsConfig

ROOT = Path(__file__).resolve().parents[1]
RESULT, PAGE = "results/walls.json", "docs/simulation.md"
CASES = ("md17/toluene:pair-s,800,10", "md17/salicylic_acid:pair-s,800,10", "md17/toluene:pair,800,10")
WALLS = ("50,0.1", "200,0.1", "50,0.05", "200,0.05", "50,0", "200,0")
ORDER = ("model", "temperature_K", "ps", "bounds", "margin", "stiffness", "replicas", "seed")  # of the table
PARTS = 50  # of the progress bar


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder with md17/")
    parser.add_argument("--out", type=Path, help="folder for the runs")
    parser.add_argument("--case", nargs="+", default=CASES, help="MODEL,K,PS")
    parser.add_argument("--walls", nargs="+", default=WALLS, help="K,MARGIN")
    parser.add_argument("--replicas", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no-bounds", action="store_true", help="networks without bounds")
    parser.add_argument("--table", action="store_true", help="write the table of the result there is")
    given = parser.parse_args()
    target = ROOT / RESULT
    if not given.table:
        if given.data is None or given.out is None:
            parser.error("--data and --out are needed")
        given.out.mkdir(parents=True, exist_ok=True)
        for case in given.case:
            for walls in given.walls:
                model, *numbers = case.split(",")
                measure(given, model, *map(float, numbers), *map(float, walls.split(",")))
        new = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(given.out.glob("*.json"))]
        before = json.loads(target.read_text(encoding="utf-8"))["runs"] if target.is_file() else []
        runs = {tuple(run[name] for name in ORDER): run for run in (*before, *new) if "bounds" in run}
        target.write_text(json.dumps({"runs": list(runs.values())}, indent=1) + "\n", encoding="utf-8")
    write_block(ROOT / PAGE, "walls", table(json.loads(target.read_text(encoding="utf-8"))))


def measure(
    given: argparse.Namespace, name: str, kelvin: float, ps: float, stiffness: float, margin: float
) -> None:
    """One case with one sort of walls, unless that was done before with the same model."""
    label = f"{name.replace('/', '-').replace(':', '-')}-{kelvin:g}K-{ps:g}ps-{stiffness:g}-{margin:g}"
    label += "-no-bounds" if given.no_bounds else ""
    path = given.out / f"{label}-{given.replicas}-seed{given.seed}.json"
    model = load(name).members[0]
    model = model.without_bounds() if given.no_bounds else model
    if path.is_file() and json.loads(path.read_text(encoding="utf-8"))["fingerprint"] == fingerprint(model):
        return
    data = read(find_file(given.data, name.partition(":")[0]))
    starts = unseen_frames(model, data, given.replicas, given.seed)
    assert model.domain is not None
    config = DynamicsConfig(temperature_K=kelvin)
    walls = replace(model.domain.walls, stiffness=stiffness, margin=margin)
    dynamics = batched(model, starts, config, walls=walls)
    blocks = round(ps * 1000 / config.timestep_fs / config.interval)
    started = time.monotonic()
    for part in track(range(PARTS), description=label):
        dynamics.advance(config.interval * (blocks * (part + 1) // PARTS - blocks * part // PARTS))
    rows = dynamics.outcome().rows()
    found = {
        "model": name,
        "temperature_K": kelvin,
        "ps": ps,
        "stiffness": stiffness,
        "margin": margin,
        "bounds": model.bounded,
        "replicas": given.replicas,
        "seed": given.seed,
        "failed_at_ps": [round(row["survived_ps"], 2) for row in rows if row["failure"]],
        "deepest_A": [max((use.worst for use in row["wall_pairs"]), default=0.0) for row in rows],
        "wall_share": [row["wall_share"] for row in rows],
        "mean_temperature_K": [row["mean_temperature_K"] for row in rows],
        "drift_meV_per_atom_ps": [row["drift_meV_per_atom_ps"] for row in rows],
        "fingerprint": fingerprint(model),
        "data": data.fingerprint(),
        "config": config.to_dict(),
        **provenance(ExperimentSettings(), time.monotonic() - started),
    }
    path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def table(result: dict[str, Any]) -> str:
    """Runs that stayed intact, by model and walls."""
    runs = result["runs"]
    lines = [
        "| model | K | ps | bounds | begin, Å | eV/Å² | intact | failed at, ps | walls active, % | mean K |",
        "| --- | ---: | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for run in sorted(runs, key=lambda r: [r[name] for name in ORDER]):
        failed = run["failed_at_ps"]
        cells = [
            run["model"],
            f"{run['temperature_K']:g}",
            f"{run['ps']:g}",
            "yes" if run["bounds"] else "no",
            f"{run['margin']:g}",
            f"{run['stiffness']:g}",
            f"{run['replicas'] - len(failed)} of {run['replicas']}",
            ", ".join(f"{t:g}" for t in sorted(failed)) or "–",
            f"{100 * mean(run['wall_share']):.2f}",
            f"{mean(run['mean_temperature_K']):.0f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    commits = ", ".join(sorted({str(run["commit"])[:10] for run in runs}))
    hardware = "; ".join(sorted({run["hardware"] for run in runs}))
    note = (
        f"Nosé–Hoover, 0.5 fs, replicas from frames the model has not seen, the same for all walls; mean K "
        f"of the time a replica ran. Made by `python scripts/measure_walls.py`, seed "
        f"{', '.join(sorted({str(run['seed']) for run in runs}))}, commit {commits}, on {hardware}."
    )
    return "\n".join([*lines, "", note])


if __name__ == "__main__":
    main()
