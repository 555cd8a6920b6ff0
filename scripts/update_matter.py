"""Insert the results of the examples of a crystal and of water into the documentation.

    python scripts/update_matter.py crystal/crystal.json waters/waters.json [waters-6/waters.json …]

Writes results/crystal.json and results/waters.json (one entry for each radius), the tables in
docs/tutorials/periodic.md and docs/pair-states.md, and the picture docs/images/crystal.png. Without
arguments, the tables and the picture of the results there are.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from docs_block import write_block

from geomatt.drawing import new_figure, save_figure

ROOT = Path(__file__).resolve().parents[1]
CRYSTAL, WATERS = ROOT / "results/crystal.json", ROOT / "results/waters.json"
PICTURE = "images/crystal.png"


def main(files: list[Path]) -> None:
    for path in files:
        result = json.loads(path.read_text(encoding="utf-8"))
        if "stress_check" in result:
            write(CRYSTAL, result)
        else:
            known = json.loads(WATERS.read_text(encoding="utf-8")) if WATERS.is_file() else []
            write(WATERS, [result, *(r for r in known if r["radius"] != result["radius"])])
    for path, page, name, text in (
        (CRYSTAL, "docs/tutorials/periodic.md", "crystal", crystal_block),
        (WATERS, "docs/pair-states.md", "waters", waters_block),
    ):
        if path.is_file():
            write_block(ROOT / page, name, text(json.loads(path.read_text(encoding="utf-8"))))
    if CRYSTAL.is_file():
        draw(json.loads(CRYSTAL.read_text(encoding="utf-8")), ROOT / "docs" / PICTURE)


def write(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def origin(result: dict[str, Any]) -> str:
    return f"{result['hardware']}, commit {(result['commit'] or 'unknown')[:9]}, seed {result['seed']}"


def crystal_block(result: dict[str, Any]) -> str:
    """Errors and dynamics of the crystal in Markdown."""
    errors, check, runs = result["errors"], result["stress_check"], result["dynamics"]
    model, reference = runs["model"], runs["EMT"]
    apart = np.abs(np.array(model["rdf"]) - np.array(reference["rdf"])).mean() / np.mean(reference["rdf"])
    return f"""\
| {result["frames"]} frames of {result["atoms"]} atoms, {result["epochs"]} epochs | model | EMT |
|---|---|---|
| energy error (meV per atom) | {errors["energy_meV_per_atom"]:.2f} | |
| force error (meV/Å) | {errors["forces_meV_per_A"]:.1f} | |
| stress error (GPa) | {errors["stress_GPa"]:.3f} | |
| stress, and by finite differences (GPa) | {check["stress"]:.5f}, {check["by_differences"]:.5f} | |
| lattice constant in dynamics (Å) | {model["lattice_A"]:.4f} | {reference["lattice_A"]:.4f} |
| density in dynamics (g/cm³) | {model["density_g_per_cm3"]:.4f} | {reference["density_g_per_cm3"]:.4f} |

![Radial distribution functions of the model and of EMT](../{PICTURE})

*Errors are mean absolute ones on frames not trained on. Dynamics: {result["steps"]} steps of 2 fs at
{result["temperature_K"]:g} K and zero pressure, the same with both; the radial distribution functions
differ by {100 * apart:.1f} % on average (`examples/crystal.py`, `results/crystal.json`;
{origin(result)}).*"""


def waters_block(results: list[dict[str, Any]]) -> str:
    """Errors by size of the clusters, and dynamics, in Markdown."""
    first = results[0]
    heads = "".join(f" {r['radius']:g} Å: energy (meV per molecule) | forces (meV/Å) |" for r in results)
    lines = [
        f"| waters, frames |{heads} members differ (meV/Å) |",
        f"|---|{'---|---|' * len(results)}---|",
    ]
    for number, row in enumerate(first["tests"]):
        cells = [f"{row['clusters']}, {row['frames']}"]
        for result in results:
            own = result["tests"][number]
            shift = np.mean(own["energy_shift"])
            cells += [f"{listed(own['energy_mae'], 1)} (mean {shift:+.1f})", listed(own["force_mae"], 1)]
        lines.append(f"| {' | '.join(cells)} | {row['force_spread']:.1f} |")
    lines += ["", "| dynamics at 300 K | time | end | mean temperature | drift |", "|---|---|---|---|---|"]
    for count, run in first["dynamics"].items():
        lines.append(
            f"| {count} waters | {run['survived_ps']:g} ps | {run['failure'] or 'intact'} "
            f"| {run['mean_temperature_K']:.0f} K | {run['drift_meV_per_atom_ps']:+.3f} meV per atom and ps |"
        )
    lines += [
        "",
        f"*{first['method']}; size S, {first['train']} training frames, {first['epochs']} epochs; values "
        f"of {first['members']} models that differ by seed, mean absolute errors. *Sampled*: trajectories of "
        "the method that were not trained on; *own dynamics*: frames of the first model's dynamics "
        f"(Langevin, 0.5 fs, no walls), labelled afterwards (`examples/waters.py`, `results/waters.json`; "
        f"{origin(first)}).*",
    ]
    return "\n".join(lines)


def listed(values: list[float], digits: int) -> str:
    return ", ".join(f"{value:.{digits}f}" for value in values)


def draw(result: dict[str, Any], path: Path) -> None:
    """The radial distribution functions over each other."""
    figure = new_figure(6.4, 3.2, dpi=150)
    axis = figure.subplots()
    for (name, run), look in zip(
        result["dynamics"].items(),
        ({"color": "#2b59a8", "linewidth": 1.4}, {"color": "#d1495b", "linewidth": 1.4, "linestyle": "--"}),
        strict=True,
    ):
        edges = np.linspace(0, result["farthest_A"], len(run["rdf"]) + 1)
        axis.plot(0.5 * (edges[1:] + edges[:-1]), run["rdf"], label=name, **look)
    axis.set(xlabel="distance (Å)", ylabel="g(r)", xlim=(1.5, result["farthest_A"]), ylim=(0, None))
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False)
    save_figure(figure, path)


if __name__ == "__main__":
    main([Path(name) for name in sys.argv[1:]])
