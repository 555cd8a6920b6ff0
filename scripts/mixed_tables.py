"""The tables of `measure_mixed.py` in Markdown."""

from __future__ import annotations

from typing import Any

import numpy as np

from geomatt.units import ENERGY_IN_EV

KCAL = ENERGY_IN_EV["kcal/mol"]
GROUPS = ("trained", "unseen")


def tables(result: dict[str, Any]) -> str:
    """Dynamics and errors, then energies of displaced atoms, then how they were measured."""
    return "\n".join([*_dynamics(result), "", *_holes(result), "", _note(result)])


def _dynamics(result: dict[str, Any]) -> list[str]:
    heads = ["remedy", "force MAE", "unseen"]
    for k in result["ps"]:
        heads += [f"{k} K: intact", "unseen", "acts, %", "mean K"]
    lines = [f"| {' | '.join(heads)} |", f"| --- |{' ---: |' * (len(heads) - 1)}"]
    reference: dict[str, Any] = {"dynamics": result["reference_dynamics"]}
    for label, row in {"GFN2-xTB": reference, **result["remedies"]}.items():
        if not row.get("dynamics"):
            continue
        cells = [label]
        for group in GROUPS:
            cells.append(f"{_force_error(result, row, group):.2f}" if "errors" in row else "–")
        for k in result["ps"]:
            runs = row["dynamics"].get(k)
            cells += _runs(result, runs) if runs else ["–"] * 4
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _runs(result: dict[str, Any], runs: list[dict[str, Any]]) -> list[str]:
    cells = []
    for group in GROUPS:
        own = [run for run in runs if run["molecule"] in result[group]]
        cells.append(f"{sum(not run['failure'] for run in own)} of {len(own)}")
    acted = 100 * np.mean([run["acted"] for run in runs])
    warm = [run["mean_temperature_K"] for run in runs if not run["failure"]]
    return [*cells, f"{acted:.1f}", f"{np.mean(warm):.0f}" if warm else "–"]


def _force_error(result: dict[str, Any], row: dict[str, Any], group: str) -> float:
    """Mean over the molecules, in kcal/mol/Å."""
    return float(np.mean([row["errors"][name]["forces"] for name in result[group]])) / KCAL


def _holes(result: dict[str, Any]) -> list[str]:
    rows = {"GFN2-xTB": result["reference_holes"]}
    rows |= {label: row["holes"] for label, row in result["remedies"].items()}
    spreads = list(rows["GFN2-xTB"]["trained"])
    heads = ["remedy"]
    for spread in spreads:
        heads += [f"{spread} Å: median", "lowest", "in holes, %", "unseen: lowest", "in holes, %"]
    lines = [f"| {' | '.join(heads)} |", f"| --- |{' ---: |' * (len(heads) - 1)}"]
    for label, found in rows.items():
        cells = [label]
        for spread in spreads:
            own, other = (found[group][spread] for group in GROUPS)
            cells += [_short(own["median"]), _short(own["lowest"]), _share(own)]
            cells += [_short(other["lowest"]), _share(other)]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _share(found: dict[str, Any]) -> str:
    share = 100 * found["in_holes"] / found["structures"]
    return "<1" if 0 < share < 0.5 else f"{share:.0f}"


def _short(value: float) -> str:
    return f"{value:.1f}" if abs(value) < 1000 else f"{value:.0e}".replace("e+0", "e").replace("e+", "e")


def _note(result: dict[str, Any]) -> str:
    setting, models = result["setting"], result["models"]
    times = " and ".join(f"{ps:g} ps at {k} K" for k, ps in result["ps"].items())
    short, perturbed = models["short"], models["perturbed"]
    return (
        f"Pair states of size S, {models['long']['epochs']} epochs on {models['long']['train']} frames of "
        f"{', '.join(result['trained'])}; fewer epochs: {short['epochs']}; with perturbed frames: "
        f"{perturbed['train']}. Unseen: {', '.join(result['unseen'])}. Above: force error in kcal/mol/Å on "
        f"{setting['tests']} frames of each molecule from other trajectories; runs of {times} (Nosé–Hoover, "
        "0.5 fs, from the same frames for all remedies) that stayed intact, the share of "
        "steps in which walls or an added energy acted, and the mean temperature of intact runs. Below: "
        "change of the energy in eV after all atoms of these frames were displaced at random, by the given "
        "standard deviation along each axis; in holes: more than 1 eV below the frame. Reference: "
        f"{result['reference']}. Made by `python scripts/measure_mixed.py`, seed {result['seed']}, commit "
        f"{', '.join(c[:10] for c in result['commit'])}, {result['seconds'] / 60:.0f} min of measurements on "
        f"{'; '.join(result['hardware'])}."
    )
