"""Measure how well models fit the frames they were trained on, and what their bounds change on others.

    python scripts/measure_fit.py --data DIR [--kind pair] [--frames 400]

What models cannot fit in training is noise of the labels. Errors of the shipped models md17/…:KIND on frames
they were trained on and on others, by the place of a frame in the trajectory. Writes results/fit.json and a
table in docs/pair-states.md. With --table, only the table.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from docs_block import write_block
from rich.progress import track

from geomatt.data import Dataset, collate, read
from geomatt.model import Potential, fingerprint, load
from geomatt.reproduce import ExperimentSettings
from geomatt.reproduce.frame import provenance
from geomatt.reproduce.inputs import MD17, find_file
from geomatt.units import from_ev

ROOT = Path(__file__).resolve().parents[1]
RESULT, PAGE = "results/fit.json", "docs/pair-states.md"
UNIT, PARTS, BATCH = "kcal/mol", 5, 50


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder with md17/")
    parser.add_argument("--kind", default="pair")
    parser.add_argument("--frames", type=int, default=400, help="of each sort")
    parser.add_argument("--table", action="store_true", help="write the table of the result there is")
    given = parser.parse_args()
    target = ROOT / RESULT
    if not given.table:
        if given.data is None:
            parser.error("--data is needed")
        started = time.monotonic()
        rows = {m: measure(given, m) for m in track(MD17, description="models")}
        made = provenance(ExperimentSettings(), time.monotonic() - started)
        content = {"kind": given.kind, "frames": given.frames, "unit": UNIT, "rows": rows, **made}
        target.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    write_block(ROOT / PAGE, "fit", table(json.loads(target.read_text(encoding="utf-8"))))


def measure(given: argparse.Namespace, molecule: str) -> dict[str, Any]:
    """Errors on trained and on other frames, evenly from the file, in all and by parts of the trajectory."""
    model = load(f"md17/{molecule}:{given.kind}").members[0]
    data = read(find_file(given.data, f"md17/{molecule}"))
    trained = np.array([frame in model.trained_frames for frame in data.frame_hashes()])
    found: dict[str, Any] = {"model": fingerprint(model), "data": data.fingerprint()}
    for sort, which in (("trained", trained), ("others", ~trained)):
        every = np.flatnonzero(which)
        rows = every[np.linspace(0, len(every) - 1, min(given.frames, len(every))).astype(int)]
        energy, forces = errors(model, data, rows)
        free = errors(model.without_bounds(), data, rows)
        part = rows * PARTS // len(data)
        found[sort] = {
            "frames": len(rows),
            "energy_mae": float(energy.mean()),
            "force_mae": float(forces.mean()),
            "force_mae_by_part": [float(forces[part == k].mean()) for k in range(PARTS)],
            "changed_by_bounds": int(((energy != free[0]) | (forces != free[1])).sum()),
            "without_bounds": {"energy_mae": float(free[0].mean()), "force_mae": float(free[1].mean())},
        }
    return found


def errors(model: Potential, data: Dataset, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Absolute errors of the energy, and of force components on average, of each frame in UNIT."""
    energies, forces = [], []
    for start in range(0, len(rows), BATCH):
        frames = [data[int(i)] for i in rows[start : start + BATCH]]
        output = model.evaluate(collate(frames, model.dtype))
        assert output.forces is not None
        energies.append(np.abs(output.energy.numpy() - np.array([f.energy for f in frames])))
        labels = np.stack([f.forces for f in frames if f.forces is not None])
        forces.append(np.abs(output.forces.numpy() - labels).mean((1, 2)))
    return from_ev(UNIT) * np.concatenate(energies), from_ev(UNIT) * np.concatenate(forces)


def table(result: dict[str, Any]) -> str:
    """Errors on trained and other frames, and forces by parts of the trajectory."""
    heads = ["molecule", "energies: trained", "others", "forces: trained", "others"]
    heads += [*(f"{k + 1}/{PARTS}" for k in range(PARTS)), "bounded"]
    lines = [f"| {' | '.join(heads)} |", f"| --- |{' ---: |' * (len(heads) - 1)}"]
    for molecule, row in result["rows"].items():
        numbers = [row[sort][name] for name in ("energy_mae", "force_mae") for sort in ("trained", "others")]
        cells = [f"{x:.3f}" for x in (*numbers, *row["others"]["force_mae_by_part"])]
        cells.append(str(row["others"]["changed_by_bounds"]))
        lines.append(f"| {' | '.join([molecule.replace('_', ' '), *cells])} |")
    changes = [
        abs(sort["without_bounds"][name] - sort[name])
        for row in result["rows"].values()
        for sort in (row["trained"], row["others"])
        for name in ("energy_mae", "force_mae")
    ]
    note = (
        f"MAE of md17/…:{result['kind']}, {result['unit']} and {result['unit']}/Å, on {result['frames']} "
        f"frames evenly from those it was trained on, and as many others. 1/{PARTS} to {PARTS}/{PARTS}: "
        f"forces of the others by parts of the trajectory. Bounded: how many of the others the bounds of the "
        f"network change; without bounds no error differs by more than {max(changes):.1g}. Made by "
        f"`python scripts/measure_fit.py`, commit "
        f"{str(result['commit'])[:10]}, {result['seconds']:.0f} s on {result['hardware']}."
    )
    return "\n".join([*lines, "", note])


if __name__ == "__main__":
    main()
