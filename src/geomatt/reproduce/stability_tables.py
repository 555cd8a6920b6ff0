"""Tables and sentences of the experiment stability."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Any

from geomatt.reproduce.published import NOT_RUN, title
from geomatt.reproduce.stability_runs import BOUNDED, SHIPPED, WALLS, used_name
from geomatt.reproduce.table import ResultTable


def stability_table(result: Mapping[str, Any], kind: str) -> ResultTable:
    """A row for each molecule and condition that was run."""
    molecules = [name.rpartition("/")[2] for name in result["data"]]
    lines = []
    for molecule, walls in itertools.product(molecules, WALLS):
        runs = _of(result, f"{kind}-{walls}-nvt", molecule)
        drifts = _of(result, f"{kind}-{walls}-nve", molecule)
        if not runs and not drifts:
            continue
        so_far = result["reached_ps"].get(f"{kind}-{walls}-nvt", {}).get(molecule)
        acted = f"{100 * mean(r['wall_share'] for r in runs):.2f}" if runs and WALLS[walls] else NOT_RUN
        lines.append(
            [
                title(molecule),
                _words(result, kind, walls),
                _intact(runs) + (f" ({so_far:g} ps)" if so_far else ""),
                ", ".join(f"{r['survived_ps']:.1f}" for r in runs if r["failure"]) or NOT_RUN,
                acted,
                _mean(runs, "histogram_error", ".3f"),
                _drift(drifts, result["reached_ps"].get(f"{kind}-{walls}-nve", {}).get(molecule)),
            ]
        )
    ps = result["settings"]["ps"]
    return ResultTable(
        f"stability-{kind}",
        f"Models md17/…:{kind}" if kind in SHIPPED else "SchNet, trained here",
        ["molecule", "kept by", "intact", "failed at, ps", "wall active, %", "h(r) error", "drift"],
        lines,
        f"{ps['nvt']:g} ps, or as far as given, at 500 K (Nosé–Hoover, 0.5 fs), "
        f"{result['settings']['seeds']} seeds; failed once a bond is 0.5 Å off its mean length. "
        f"Drift: NVE at 300 K for {ps['nve']:g} ps, meV/atom/ps, the largest of the seeds, and how many of "
        "those runs failed. h(r) error: of the distribution of distances against the data's, runs that "
        "completed or not.",
        labels=2,
    )


def outcomes(result: Mapping[str, Any]) -> list[str]:
    """How many runs of each sort stayed intact, in a sentence each."""
    sentences = []
    for name, replicas in result["rows"].items():
        kind, walls, ensemble = name.rsplit("-", 2)
        if ensemble != "nvt":
            continue
        molecules = dict.fromkeys(row["name"] for row in replicas)
        reached = result["reached_ps"].get(name, {})
        times = sorted({reached.get(molecule, result["settings"]["ps"]["nvt"]) for molecule in molecules})
        some = len(molecules) < len(result["data"])
        sentences.append(
            f"{kind}, {_words(result, kind, walls)}: {_intact(replicas)} runs"
            f"{f' of {len(molecules)} molecules' if some else ''} stayed intact for "
            f"{' to '.join(f'{t:g}' for t in dict.fromkeys((times[0], times[-1])))} ps."
        )
    return sentences


def _intact(runs: Sequence[Mapping[str, Any]]) -> str:
    return f"{sum(not r['failure'] for r in runs)} of {len(runs)}" if runs else NOT_RUN


def _words(result: Mapping[str, Any], kind: str, walls: str) -> str:
    """What simulations had that keeps them where the model was trained."""
    if used_name(kind, BOUNDED) not in result["models"]:
        return "no walls" if walls == "free" else "walls"
    return {BOUNDED: "walls and bounds", "walls": "walls, no bounds", "free": "no walls, no bounds"}[walls]


def summary_by_model(result: Mapping[str, Any]) -> dict[str, Any]:
    """For each shipped model, by condition, what came of its runs (see `geomatt.model.stability`).

    Models that have bounds and were simulated only without them have None for "bounded".
    """
    found: dict[str, Any] = {}
    for name, rows in sorted(result["rows"].items()):
        kind, walls, ensemble = name.rsplit("-", 2)
        if ensemble != "nvt" or kind not in SHIPPED:
            continue
        for molecule in dict.fromkeys(row["name"] for row in rows):
            model = f"md17/{molecule}" + ("" if kind == "paper" else f":{kind}")
            has_bounds = molecule in result["models"].get(used_name(kind, BOUNDED), ())
            about = _summary(result, f"{kind}-{walls}", molecule)
            if WALLS[walls]:
                about["wall_share"] = round(mean(r["wall_share"] for r in _of(result, name, molecule)), 4)
            found.setdefault(model, {BOUNDED: None} if has_bounds else {})[walls] = about
    return found


def _summary(result: Mapping[str, Any], name: str, molecule: str) -> dict[str, Any]:
    """Of a molecule's runs; errors and drifts have the digits of the tables, and are there if measured."""
    about = _counts(result, f"{name}-nvt", molecule)
    runs, constant = _of(result, f"{name}-nvt", molecule), _of(result, f"{name}-nve", molecule)
    about["failed_at_ps"] = [round(r["survived_ps"], 1) for r in runs if r["failure"]]
    if (error := _mean(runs, "histogram_error", ".3f")) != NOT_RUN:
        about["histogram_error"] = float(error)
    if constant:
        about["nve"] = _counts(result, f"{name}-nve", molecule)
        finished = molecule not in result["reached_ps"].get(f"{name}-nve", {})
        if finished and (drift := _largest_drift(constant)) != NOT_RUN:
            about["nve"]["drift_meV_per_atom_ps"] = float(drift)
    return about


def _counts(result: Mapping[str, Any], name: str, molecule: str) -> dict[str, Any]:
    """How many runs of a molecule stayed intact, of how many, and their length."""
    runs = _of(result, name, molecule)
    length = result["settings"]["ps"][name.rpartition("-")[2]]
    return {
        "intact": sum(not r["failure"] for r in runs),
        "runs": len(runs),
        "ps": result["reached_ps"].get(name, {}).get(molecule, length),
    }


def _of(result: Mapping[str, Any], name: str, molecule: str) -> Sequence[Mapping[str, Any]]:
    return [row for row in result["rows"].get(name, ()) if row["name"] == molecule]


def _drift(rows: Sequence[Mapping[str, Any]], so_far: float | None) -> str:
    """The largest drift of runs at constant energy, and how many of them failed.

    Those that have come only `so_far` (ps) have no drift yet: it would be mostly fluctuation of the energy.
    """
    failed = sum(bool(row["failure"]) for row in rows)
    words = [_largest_drift([] if so_far else rows)] + [f"{failed} failed"] * bool(failed)
    return ", ".join(words) + (f" ({so_far:g} ps)" if so_far else "")


def _largest_drift(rows: Sequence[Mapping[str, Any]]) -> str:
    """Without its sign."""
    values = [abs(row["drift_meV_per_atom_ps"]) for row in rows if row["drift_meV_per_atom_ps"] is not None]
    return f"{max(values):.1g}" if values else NOT_RUN


def _mean(rows: Sequence[Mapping[str, Any]], key: str, form: str) -> str:
    values = [row[key] for row in rows if row.get(key) is not None]
    return format(mean(values), form) if values else NOT_RUN
