"""Measure what a radius costs in accuracy: pair states with all pairs against several radii.

    python scripts/measure_radius.py --data DIR --out DIR [--epochs 50] [--molecules md17/aspirin …]

Every molecule is trained with every radius on the same frames, from the same seed, and tested on the same
other frames. Every model is kept in a folder below OUT, so that a run continues after Ctrl-C, and several
processes may work on different molecules or seeds. Writes results/radius.json, from all models in OUT with
these settings, and a table in docs/pair-states.md. The dimer of DNA is gfn2/cg-cg (scripts/make_dimer.py).
With --table, only the table is written.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from docs_block import write_block

from geomatt.data import random_split, read
from geomatt.evaluation import evaluate
from geomatt.reproduce.inputs import find_file
from geomatt.training import resolve, train_members
from geomatt.training.folder import CONFIG
from geomatt.units import from_ev

ROOT = Path(__file__).resolve().parents[1]
RESULT, PAGE = "results/radius.json", "docs/pair-states.md"
UNIT = "kcal/mol"
ERRORS = "errors.json"  # in the folder of a model
TRAIN, VALIDATION = 950, 50
ALLOWED = 0.05  # more error than with all pairs, up to which the radius is the better default


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder with md17/")
    parser.add_argument("--out", type=Path, help="folder for the runs")
    parser.add_argument("--molecules", nargs="+", default=["md17/aspirin", "md17/naphthalene"])
    parser.add_argument("--radii", nargs="+", type=float, default=[0.0, 5.0, 6.0], help="Å; 0: all pairs")
    parser.add_argument("--channels", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=50)
    parser.add_argument("--rate", type=float, default=3e-3)
    parser.add_argument("--test", type=int, default=2000, help="frames to test on")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--table", action="store_true", help="write the table of the result there is")
    given = parser.parse_args()
    target = ROOT / RESULT
    if not given.table:
        if given.data is None or given.out is None:
            parser.error("--data and --out are needed")
        names = ("channels", "epochs", "rate", "test")
        settings = {name: getattr(given, name) for name in names} | {"train": TRAIN, "val": VALIDATION}
        for radius in given.radii:
            for molecule in given.molecules:
                measure(given, settings, molecule, radius)
        every = [
            json.loads(path.read_text(encoding="utf-8")) for path in sorted(given.out.glob(f"*/{ERRORS}"))
        ]
        runs = [run["found"] for run in every if run["settings"] == settings]
        content = {"settings": settings, "unit": UNIT, "runs": runs}
        target.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    write_block(ROOT / PAGE, "radius", table(json.loads(target.read_text(encoding="utf-8"))))


def measure(given: argparse.Namespace, settings: dict[str, Any], molecule: str, radius: float) -> None:
    """Train and test one model, unless that was done before."""
    folder = given.out / f"{molecule.replace('/', '-')}-{radius:g}-seed{given.seed}"
    target = folder / ERRORS
    if target.is_file() and json.loads(target.read_text(encoding="utf-8"))["settings"] == settings:
        return
    data = read(find_file(given.data, molecule))
    test = min(given.test, len(data) - TRAIN - VALIDATION)
    split = random_split(len(data), TRAIN, VALIDATION, test, seed=0)
    config = resolve(
        {
            "model": "pair",
            "data": molecule,
            "network": {"channels": given.channels, "radius": radius},
            "epochs": given.epochs,
            "learning_rate": given.rate,
            "train": TRAIN,
            "val": VALIDATION,
            "seed": given.seed,
            "device": given.device,
        }
    )
    (result,) = train_members(data, [split], config, folder, resume=(folder / CONFIG).is_file())
    potential = result.potential.to(given.device)
    errors = evaluate(potential, data, indices=split.test, unit="eV", batch_size=100).overall
    record = potential.record
    found = {
        "molecule": molecule,
        "radius": radius,
        "seed": given.seed,
        "energy_mae": from_ev(UNIT) * (errors.energy_mae or 0.0),
        "force_mae": from_ev(UNIT) * (errors.forces_mae or 0.0),
        "seconds": result.seconds,
        "data": record["data"]["fingerprint"],
        "commit": record["commit"],
        "hardware": record["hardware"],
    }
    target.write_text(json.dumps({"settings": settings, "found": found}, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(found), flush=True)


def table(result: dict[str, Any]) -> str:
    """Errors by molecule and radius, and whether the radius costs less than allowed."""
    runs, settings, unit = result["runs"], result["settings"], result["unit"]
    radii = sorted({run["radius"] for run in runs})
    molecules = list(dict.fromkeys(run["molecule"] for run in runs))

    def mean(molecule: str, radius: float, name: str) -> float | None:
        values = [r[name] for r in runs if (r["molecule"], r["radius"]) == (molecule, radius)]
        return sum(values) / len(values) if values else None

    heads = ["all pairs" if not radius else f"{radius:g} Å" for radius in radii]
    lines = [f"| energy / forces ({unit}, {unit}/Å) | {' | '.join(heads)} |", f"|---|{'---|' * len(radii)}"]
    costs: dict[float, list[float]] = {radius: [] for radius in radii if radius}
    for molecule in molecules:
        cells, every = [], mean(molecule, 0.0, "force_mae")
        for radius in radii:
            energy, force = mean(molecule, radius, "energy_mae"), mean(molecule, radius, "force_mae")
            cell = "–" if energy is None or force is None else f"{energy:.3f} / {force:.3f}"
            if radius and force is not None and every is not None:
                costs[radius].append(force / every - 1)
                cell += f" ({100 * costs[radius][-1]:+.0f} %)"
            cells.append(cell)
        lines.append(f"| {molecule} | {' | '.join(cells)} |")
    cheap = [r for r, found in costs.items() if found and max(found) < ALLOWED]
    limit = f"{100 * ALLOWED:.0f} %"
    verdict = (
        f"A radius of {' or '.join(f'{r:g}' for r in cheap)} Å costs less than {limit} in each: little "
        "enough to be the default"
        if cheap
        else f"Each radius costs {limit} or more in one of them: all pairs stay the default for molecules"
    )
    seeds, first = len({run["seed"] for run in runs}), runs[0]
    return "\n".join(
        [
            *lines,
            "",
            f"*Size S ({settings['channels']} channels, 3 rounds), {settings['train']} training frames, only "
            f"{settings['epochs']} epochs, {settings['test']} test frames, "
            f"{seeds} seed{'s' if seeds > 1 else ''}; in brackets the change of the force error against all "
            f"pairs. {verdict} (`scripts/measure_radius.py`, `{RESULT}`; {first['hardware']}, commit "
            f"{(first['commit'] or 'unknown')[:9]}).*",
        ]
    )


if __name__ == "__main__":
    main()
