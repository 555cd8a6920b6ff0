"""Measure whether models have holes outside their training data: energies of randomly displaced atoms.

    python scripts/measure_holes.py --data DIR [--frames 100]

All atoms of frames that no model has seen are displaced at random, normally distributed along each axis.
GFN2-xTB shows what happens to the energy: it rises. A structure is in a hole of a model if its energy there
is more than 1 eV below that of the frame it was made from. Bounds with other margins than those of the models
are compared. Writes results/holes.json and two tables in docs/simulation.md. With --table, only the tables.
"""

from __future__ import annotations

import argparse
import json
import time
from copy import deepcopy
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from docs_block import write_block
from rich.progress import track

from geomatt.data import Dataset, Structure, collate, read
from geomatt.data.make import Method
from geomatt.data.make.method import NotConverged, Reference
from geomatt.model import Potential, fingerprint, load
from geomatt.model.pair_states.ceiling import LEAST, MARGIN
from geomatt.reproduce import ExperimentSettings
from geomatt.reproduce.frame import provenance
from geomatt.reproduce.inputs import MD17, find_file

ROOT = Path(__file__).resolve().parents[1]
RESULT, PAGE = "results/holes.json", "docs/simulation.md"
KINDS = ("pair", "pair-s", "fast", "paper")
SPREADS = (0.1, 0.2, 0.4)  # Å, along each axis
HOLE = 1.0  # eV
MARGINS = (MARGIN, 0.2, 0.35, 0.5, 1.0)  # the first is that of the models
Changes = dict[str, list[float | None]]  # energies in eV above those of the frames, by spread


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder with md17/")
    parser.add_argument("--frames", type=int, default=100, help="of each molecule")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--table", action="store_true", help="write the table of the result there is")
    given = parser.parse_args()
    target = ROOT / RESULT
    if not given.table:
        if given.data is None:
            parser.error("--data is needed")
        started = time.monotonic()
        rows = {m: measure(given, m) for m in track(MD17, description="molecules")}
        made = provenance(ExperimentSettings(), time.monotonic() - started)
        content = {"frames": given.frames, "seed": given.seed, "reference": Method().theory, "rows": rows}
        target.write_text(json.dumps({**content, **made}, indent=1) + "\n", encoding="utf-8")
    result = json.loads(target.read_text(encoding="utf-8"))
    write_block(ROOT / PAGE, "holes", table(result))
    write_block(ROOT / PAGE, "margins", margin_table(result))


def measure(given: argparse.Namespace, molecule: str) -> dict[str, Any]:
    """Changes of the energy by the reference, and by each model with and without bounds and walls."""
    data = read(find_file(given.data, f"md17/{molecule}"))
    models = {kind: load(f"md17/{molecule}:{kind}").members[0] for kind in KINDS}
    rng = np.random.default_rng(given.seed)
    frames = unseen(models, data, given.frames, rng)
    moved = {
        f"{spread:g}": [
            replace(f, positions=f.positions + spread * rng.normal(size=f.positions.shape)) for f in frames
        ]
        for spread in SPREADS
    }
    found: dict[str, Any] = {
        "data": data.fingerprint(),
        "models": {kind: fingerprint(model) for kind, model in models.items()},
        "changes": {"reference": by_reference(frames, moved)},
    }
    for kind, model in models.items():
        free = model.without_bounds()
        for bounds, used in ((False, free), (True, model))[: 1 + model.bounded]:
            for walls in (False, True):
                changes = by_model(used, frames, moved, walls)
                found["changes"][" ".join([kind, *["bounds"] * bounds, *["walls"] * walls])] = changes
        if model.bounded:
            found.setdefault("margins", {})[kind] = by_margin(model, frames, moved)
    return found


def unseen(
    models: dict[str, Potential], data: Dataset, count: int, rng: np.random.Generator
) -> list[Structure]:
    """Frames at random that no model was trained or validated on."""
    seen = set[str]().union(*(model.trained_frames for model in models.values()))
    others = [i for i, name in enumerate(data.frame_hashes()) if name not in seen]
    return [data[int(i)] for i in rng.choice(others, count, replace=False)]


def by_reference(frames: list[Structure], moved: dict[str, list[Structure]]) -> Changes:
    """None where the reference does not converge."""
    energy = Reference(Method(), frames[0])
    before = [energy(frame.positions)[0] for frame in frames]
    found: Changes = {spread: [] for spread in moved}
    for spread, structures in moved.items():
        for start, structure in zip(before, structures, strict=True):
            try:
                found[spread].append(energy(structure.positions)[0] - start)
            except NotConverged:
                found[spread].append(None)
    return found


def by_model(
    model: Potential, frames: list[Structure], moved: dict[str, list[Structure]], walls: bool
) -> Changes:
    """Walls as in dynamics that begins with the frame."""
    first = collate(frames, model.dtype)
    limits = model.domain.limits(first) if walls and model.domain is not None else None
    before = model.evaluate(first, forces=False).energy
    return {
        spread: (
            model.evaluate(collate(structures, model.dtype), forces=False, limits=limits).energy - before
        ).tolist()
        for spread, structures in moved.items()
    }


def by_margin(
    model: Potential, frames: list[Structure], moved: dict[str, list[Structure]]
) -> dict[str, dict[str, dict[str, int]]]:
    """How many structures are in holes by margin of the bounds, without walls and with them, and spread."""
    found: dict[str, dict[str, dict[str, int]]] = {}
    for margin in MARGINS:
        other = with_margin(model, margin)
        for name, walls in (("no walls", False), ("walls", True)):
            changes = by_model(other, frames, moved, walls)
            counts = {spread: sum(c < -HOLE for c in every) for spread, every in changes.items()}
            found.setdefault(f"{margin:g}", {})[name] = counts
    return found


def with_margin(model: Potential, margin: float) -> Potential:
    """A copy with ceilings above the largest values in the training frames by another part of the range."""
    other = deepcopy(model)
    top, room = other.network.tensors()["ceiling"].unbind(-2)
    above, extra = 2.0 * room, 2.0 * room * (margin / MARGIN)
    moved = torch.stack([top - above + extra, (extra / 2).clamp(min=LEAST)], -2)
    other.network.load_tensors({**other.network.tensors(), "ceiling": moved})
    return other


def table(result: dict[str, Any]) -> str:
    """Median changes of all molecules, and the share of structures in holes."""
    heads = ["energy", "bounds", "walls"]
    for spread in SPREADS:
        heads += [f"{spread:g} Å: median", "lowest", "in holes, %"]
    lines = [f"| {' | '.join(heads)} |", f"| --- | --- | --- |{' ---: |' * (len(heads) - 3)}"]
    failed = 0
    for name in next(iter(result["rows"].values()))["changes"]:
        kind, *using = name.split()
        label = "GFN2-xTB" if kind == "reference" else f"md17/…:{kind}"
        words = ["yes" if what in using else "no" for what in ("bounds", "walls")]
        cells = [label, *(["–", "–"] if kind == "reference" else words)]
        for spread in SPREADS:
            rows = [row["changes"][name][f"{spread:g}"] for row in result["rows"].values()]
            every = np.array([change for row in rows for change in row if change is not None])
            if kind == "reference":
                failed += sum(map(len, rows)) - len(every)
            cells += [_short(np.median(every)), _short(every.min()), _share((every < -HOLE).mean())]
        lines.append(f"| {' | '.join(cells)} |")
    without = f", which did not converge for {failed}" if failed else ""
    note = (
        f"Change of the energy in eV after all atoms of a frame were displaced at random, by the given "
        f"standard deviation along each axis: median and lowest of {result['frames']} unseen frames of each "
        f"of {len(result['rows'])} molecules. In holes: more than {HOLE:g} eV below the frame. Reference: "
        f"{result['reference']}{without}. Made by `python scripts/measure_holes.py`, seed {result['seed']}, "
        f"commit {str(result['commit'])[:10]}, {result['seconds']:.0f} s on {result['hardware']}."
    )
    return "\n".join([*lines, "", note])


def margin_table(result: dict[str, Any]) -> str:
    """The share of structures in holes by the margin of the bounds."""
    rows = list(result["rows"].values())
    kinds, number = list(rows[0]["margins"]), result["frames"] * len(rows)
    columns = list(product(kinds, SPREADS, ("no walls", "walls")))
    lines = [
        f"| margin | {' | '.join(f'{kind}, {spread:g} Å, {walls}' for kind, spread, walls in columns)} |",
        f"| ---: |{' ---: |' * len(columns)}",
    ]
    for margin in rows[0]["margins"][kinds[0]]:
        counts = [sum(row["margins"][k][margin][w][f"{s:g}"] for row in rows) for k, s, w in columns]
        lines.append(f"| {margin} | {' | '.join(_share(count / number) for count in counts)} |")
    note = (
        f"Structures in holes, %, of {number} each, by how far a ceiling is above the "
        f"largest value in the training frames, as a part of the unit's range there. Models have {MARGIN:g}."
    )
    return "\n".join([*lines, "", note])


def _share(part: float) -> str:
    """In %."""
    return "<1" if 0 < part < 0.005 else f"{100 * part:.0f}"


def _short(value: float) -> str:
    return f"{value:.1f}" if abs(value) < 1000 else f"{value:.0e}".replace("e+0", "e").replace("e+", "e")


if __name__ == "__main__":
    main()
