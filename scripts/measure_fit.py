"""Measure how well models fit the frames they were trained on, and what their bounds change on others.

    python scripts/measure_fit.py --data DIR [--frames 400]

What models cannot fit in training is noise of the labels. Errors of the shipped pair states on frames they
were trained on and on others, by the place of a frame in the trajectory. Writes results/fit.json and a table
in docs/pair-states.md. With --table, only the table.
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
KINDS = ("pair", "pair-s")
UNIT, PARTS, BATCH = "kcal/mol", 5, 50


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder with md17/")
    parser.add_argument("--frames", type=int, default=400, help="of each sort")
    parser.add_argument("--table", action="store_true", help="write the table of the result there is")
    given = parser.parse_args()
    target = ROOT / RESULT
    if not given.table:
        if given.data is None:
            parser.error("--data is needed")
        started = time.monotonic()
        names = [f"{molecule}:{kind}" for kind in KINDS for molecule in MD17]
        rows = {name: measure(given, name) for name in track(names, description="models")}
        made = provenance(ExperimentSettings(), time.monotonic() - started)
        content = {"frames": given.frames, "unit": UNIT, "rows": rows, **made}
        target.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    write_block(ROOT / PAGE, "fit", table(json.loads(target.read_text(encoding="utf-8"))))


def measure(given: argparse.Namespace, name: str) -> dict[str, Any]:
    """Errors on trained and on other frames, evenly from the file, in all and by parts of the trajectory."""
    model = load(f"md17/{name}").members[0]
    data = read(find_file(given.data, f"md17/{name.partition(':')[0]}"))
    trained = np.array([frame in model.trained_frames for frame in data.frame_hashes()])
    found: dict[str, Any] = {"model": fingerprint(model), "data": data.fingerprint()}
    for sort, which in (("trained", trained), ("others", ~trained)):
        every = np.flatnonzero(which)
        rows = every[np.linspace(0, len(every) - 1, min(given.frames, len(every))).astype(int)]
        energy, forces = errors(model, data, rows)
        free = errors(model.without_bounds(), data, rows)
        part, changes = rows * PARTS // len(data), np.abs(forces - free[1]).max((1, 2))
        by_frame = np.abs(forces).mean((1, 2))
        found[sort] = {
            "frames": len(rows),
            "energy_mae": float(np.abs(energy).mean()),
            "force_mae": float(by_frame.mean()),
            "force_mae_by_part": [float(by_frame[part == k].mean()) for k in range(PARTS)],
            "changed_by_bounds": int(((energy != free[0]) | (changes > 0)).sum()),
            "largest_change_of_a_force": float(changes.max()),
            "without_bounds": {
                "energy_mae": float(np.abs(free[0]).mean()),
                "force_mae": float(np.abs(free[1]).mean()),
            },
        }
    return found


def errors(model: Potential, data: Dataset, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Errors of the energies (n,) and of the forces (n, N, 3) in UNIT."""
    energies, forces = [], []
    for start in range(0, len(rows), BATCH):
        frames = [data[int(i)] for i in rows[start : start + BATCH]]
        output = model.evaluate(collate(frames, model.dtype))
        assert output.forces is not None
        energies.append(output.energy.numpy() - np.array([f.energy for f in frames]))
        forces.append(output.forces.numpy() - np.stack([f.forces for f in frames if f.forces is not None]))
    return from_ev(UNIT) * np.concatenate(energies), from_ev(UNIT) * np.concatenate(forces)


def table(result: dict[str, Any]) -> str:
    """Errors on trained and other frames, and forces by parts of the trajectory."""
    heads = ["md17/…", "energies: trained", "others", "forces: trained", "others"]
    heads += [*(f"{k + 1}/{PARTS}" for k in range(PARTS)), "bounded", "by at most"]
    lines = [f"| {' | '.join(heads)} |", f"| --- |{' ---: |' * (len(heads) - 1)}"]
    for name, row in result["rows"].items():
        numbers = [row[sort][part] for part in ("energy_mae", "force_mae") for sort in ("trained", "others")]
        cells = [f"{x:.3f}" for x in (*numbers, *row["others"]["force_mae_by_part"])]
        cells.append(str(row["others"]["changed_by_bounds"]))
        cells.append(f"{row['others']['largest_change_of_a_force']:.2g}")
        lines.append(f"| {' | '.join([name, *cells])} |")
    sorts = [row[sort] for row in result["rows"].values() for sort in ("trained", "others")]
    changes = [abs(s["without_bounds"][n] - s[n]) for s in sorts for n in ("energy_mae", "force_mae")]
    trained = sum(row["trained"]["changed_by_bounds"] for row in result["rows"].values())
    unit = result["unit"]
    note = (
        f"MAE, {unit} and {unit}/Å, on {result['frames']} frames evenly from those a model was trained on, "
        f"and as many others. 1/{PARTS} to {PARTS}/{PARTS}: forces of the others by parts of the trajectory. "
        "Bounded: how many of the others the bounds of the network change (of the trained: "
        f"{trained or 'none'}), and by how much a component of a force at most, {unit}/Å. Without bounds no "
        f"error of the first four columns differs by more than {max(changes):.1g}. Made by "
        f"`python scripts/measure_fit.py`, commit {str(result['commit'])[:10]}, {result['seconds']:.0f} s on "
        f"{result['hardware']}."
    )
    return "\n".join([*lines, "", note])


if __name__ == "__main__":
    main()
