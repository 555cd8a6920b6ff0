"""The report of a workflow as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def report_text(report: dict[str, Any]) -> str:
    """A report on the data and the model, their errors, and commands to use them."""
    data, training = report["data"], report["training"]
    settings = data["made_by"]["settings"]
    errors = report["evaluation"]["overall"]
    unit = report["evaluation"]["unit"]["energy"]
    many = f"{training['members']} models, " if training["members"] > 1 else ""
    temperatures = ", ".join(f"{t:g}" for t in settings["temperature"])
    named = "" if report["name"] == report["formula"] else f"{report['formula']}, "
    model = f"{report['folder']}/model"
    lines = [
        f"A force field of {report['name']} ({named}{report['atoms']} atoms)",
        "",
        f"data       {data['frames']} frames at {temperatures} K, {data['made_by']['method']['calculator']}; "
        f"{data['broken']} fell apart, {data['repeated_calculations']} calculations repeated",
        *[f"warning    {warning}" for warning in report["warnings"]],
        f"training   {many}{training['train']} frames, {training['epochs']} epochs, "
        f"{training['seconds'] / 60:.1f} min, network {training['model']}",
        f"errors     on {report['evaluation']['structures']} frames of other stretches of the trajectories:",
        f"           energy MAE {errors['energy_mae']:.3f} {unit}, "
        f"force MAE {errors['forces_mae']:.3f} {unit}/Å",
        *coverage_lines(report["evaluation"]),
        f"dynamics   {dynamics_line(report['dynamics'])}",
        "",
        "Use it:",
        f'    atoms.calc = geomatt.GeomAttCalculator("{model}")',
        f"    geomatt md {model} MOLECULE.xyz --temperature 300 --time 10",
        f"    geomatt improve {model} {report['folder']}/data.npz --out BETTER",
        f"    geomatt attention {model} MOLECULE.xyz -o attention.png",
        "",
    ]
    return "\n".join(lines)


def coverage_lines(evaluation: dict[str, Any], level: float = 0.9) -> list[str]:
    """Which share of errors the error bars held; nothing for a model without."""
    coverage = evaluation.get("coverage")
    if not coverage:
        return []
    at = coverage["levels"].index(level)
    shares = [
        f"{coverage[kind]['calibrated'][at]:.0%} of {kind}"
        for kind in ("forces", "energy")
        if kind in coverage
    ]
    return [f"           errors below their error bars for {level:.0%}: {', '.join(shares)}"]


def dynamics_line(motion: dict[str, Any]) -> str:
    """Dynamics at constant energy in a sentence."""
    if "time_fs" not in motion:
        return f"failed: {motion['failure']}"
    drift = 1000 * motion["drift_eV_per_atom_ps"]
    text = (
        f"{motion['time_fs'] / 1000:g} ps at constant energy, {motion['mean_temperature_K']:.0f} K: the "
        f"energy drifts by {drift:.3g} meV per atom and ps"
    )
    return f"{text}; {motion['failure']}" if motion["failure"] else text


ROUND_HEADINGS = ("round", "labels", "new frames: before", "after", "earlier frames: before", "after")


def round_rows(rounds: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Force MAE (meV/Å) before and after each round of `improve`, as cells of a table."""
    rows = []
    for number, row in enumerate(rounds, 1):
        errors = [
            row[group][when]["forces_mae_eV_per_A"] if group in row else None
            for group in ("new frames", "earlier frames")
            for when in ("before", "after")
        ]
        cells = ["–" if error is None else f"{1000 * error:.1f}" for error in errors]
        rows.append([str(number), str(row["labelled"]), *cells])
    return rows
