"""Insert the results of a demo run into the README.

Usage: python scripts/update_readme.py path/to/geomatt-demo

Copies demo.json to results/ and the figure to docs/images/, and rewrites the block in the README.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

from geomatt.reproduce.report import update_page

ROOT = Path(__file__).resolve().parents[1]


def with_demo(text: str, result: dict[str, Any]) -> str:
    """The text of the README with the demo results in their block."""
    errors, training = result["evaluation"], result["training"]
    settings, md = training["settings"], result["dynamics"]
    (name, row), *_ = errors["per_molecule"].items()
    unit, replicas = errors["unit"]["energy"], md["replicas"]
    intact = f"{sum(not r['failure'] for r in replicas)} of {len(replicas)} replicas intact"
    drift = max(abs(r["drift_meV_per_atom_ps"]) for r in replicas)
    kelvin = sum(r["mean_temperature_K"] for r in replicas) / len(replicas)
    block = f"""\
The demo's own figures ({training["hardware"]}; commit {(training["commit"] or "unknown")[:9]}), on
{row["structures"]} frames it never saw (random split):

| {name}, GFN2-xTB, 500 K | |
|---|---|
| training | {settings["train"]} frames, {training["epochs"]} epochs, {training["seconds"]:.0f} s |
| energy MAE | {row["energy_mae"]:.3f} {unit} |
| force MAE | {row["forces_mae"]:.2f} {unit}/Å |
| dynamics, {md["time_fs"] / 1000:g} ps, {kelvin:.0f} K, no walls | {intact} |
| drift of the energy in it | {drift:.1g} meV per atom and ps at most |
"""
    return update_page(text, {"demo": block})


def main(folder: Path) -> None:
    for target in (ROOT / "results", ROOT / "docs/images"):
        target.mkdir(parents=True, exist_ok=True)
    shutil.copy(folder / "demo.json", ROOT / "results/demo.json")
    shutil.copy(folder / "attention.png", ROOT / "docs/images/attention.png")
    readme = ROOT / "README.md"
    result = json.loads((folder / "demo.json").read_text(encoding="utf-8"))
    readme.write_text(with_demo(readme.read_text(encoding="utf-8"), result), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
