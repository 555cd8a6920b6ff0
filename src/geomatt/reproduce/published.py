"""Errors of trained models in tables, and the numbers of the paper (Frank & Chmiela 2021).

Everywhere a model is a mapping with `energy_mae` and `force_mae`. Published numbers are models with `digits`:
so many were printed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import mean, pstdev
from typing import Any

from geomatt.reproduce.inputs import MD17
from geomatt.reproduce.table import NOT_RUN as NOT_RUN
from geomatt.reproduce.table import ResultTable

ErrorPair = tuple[float, float]  # energy, forces
Models = Sequence[Mapping[str, Any]]
ERRORS = ("energy_mae", "force_mae")
WORDS = ("energies", "forces")


def published(energy: float | None, forces: float | None, digits: int = 2) -> Models:
    """One model of the literature; None if an error is not stated."""
    return [{"energy_mae": energy, "force_mae": forces, "digits": digits}]


def _row(*pairs: ErrorPair) -> dict[str, Models]:
    return {molecule: published(*pair) for molecule, pair in zip(MD17, pairs, strict=True)}


# aspirin, benzene, ethanol, malonaldehyde, naphthalene, salicylic acid, toluene, uracil, kcal/mol and
# kcal/mol/Å; the means as printed: those of 2,3,3 are not the means of its rounded cells.
GEOMATT: dict[str, dict[str, Models]] = {
    "2,3,4": _row(
        (0.89, 2.03), (0.18, 0.41), (0.25, 0.98), (0.32, 1.31),
        (0.32, 0.81), (0.35, 1.17), (0.24, 0.80), (0.27, 0.99),
    ) | {"mean": published(0.35, 1.06)},
    "2,3,3": _row(
        (1.04, 2.30), (0.14, 0.46), (0.39, 1.05), (0.55, 1.55),
        (0.36, 0.89), (0.42, 1.33), (0.25, 0.91), (0.28, 1.17),
    ) | {"mean": published(0.42, 1.20)},
    "2,2,2": _row(
        (1.10, 2.19), (0.16, 0.60), (0.37, 1.06), (0.42, 1.43),
        (0.46, 1.24), (0.48, 1.42), (0.34, 1.05), (0.46, 1.41),
    ) | {"mean": published(0.47, 1.30)},
}  # fmt: skip
SCHNET = _row(
    (0.37, 1.35), (0.08, 0.31), (0.08, 0.39), (0.13, 0.66),
    (0.16, 0.58), (0.20, 0.85), (0.12, 0.57), (0.14, 0.56),
)  # fmt: skip
TRANSFER = {
    ("aspirin", "benzene"): published(0.38, 1.45),
    ("aspirin", "toluene"): published(0.80, 2.36),
    ("benzene", "naphthalene"): published(1.16, 3.97),
    ("toluene", "benzene"): published(0.21, 0.83),
}


def _columns(
    energy: Sequence[float | None], forces: Sequence[float | None], digits: int = 3
) -> dict[str, Models]:
    return {m: published(e, f, digits) for m, e, f in zip(MD17, energy, forces, strict=True)}


_NOT_STATED = (None,) * len(MD17)
# Other networks, trained on 1000 frames.
EARLIER = "prototype"  # pair states before they were in this package; measured, not published
PEERS: dict[str, dict[str, dict[str, Models]]] = {
    "md17": {  # kcal/mol, kcal/mol/Å
        EARLIER: _columns(
            (0.146, 0.069, 0.054, 0.079, 0.114, 0.114, 0.094, 0.099),
            (0.238, 0.144, 0.081, 0.161, 0.089, 0.162, 0.076, 0.133),
        ),
        "SchNet": SCHNET,
        "DimeNet": _columns(
            (0.204, 0.078, 0.064, 0.104, 0.122, 0.134, 0.102, 0.115),
            (0.499, 0.187, 0.230, 0.383, 0.215, 0.374, 0.216, 0.301),
        ),
        "PaiNN": _columns(
            (0.167, None, 0.064, 0.091, 0.116, 0.116, 0.095, 0.106),
            (0.338, None, 0.224, 0.319, 0.077, 0.195, 0.094, 0.139),
        ),
        "NequIP l=3": _columns(
            (0.131, None, 0.051, 0.076, 0.113, 0.106, 0.092, 0.104),
            (0.189, None, 0.071, 0.129, 0.039, 0.090, 0.046, 0.076),
        ),
    },
    "rmd17": {  # meV, meV/Å
        "ACE": _columns(_NOT_STATED, (17.9, 0.5, 7.3, 11.1, 5.1, 9.3, 6.5, 6.6), 1),
        "FCHL": _columns(_NOT_STATED, (20.9, 2.6, 6.2, 10.3, 6.5, 9.5, 8.8, 4.2), 1),
        "NequIP": _columns(_NOT_STATED, (8.2, 0.3, 2.8, 5.1, 1.3, 4.0, 1.6, 3.1), 1),
        "MACE": _columns(_NOT_STATED, (6.6, 0.3, 2.1, 4.1, 1.6, 3.1, 1.5, 2.1), 1),
    },
}


def cell(models: Models | None, error: str | None = None, digits: int = 2) -> str:
    """The mean error ± the population standard deviation, if there are several models; else both errors."""
    if not models:
        return NOT_RUN
    if error is None:
        return " / ".join(cell(models, each, digits) for each in ERRORS)
    values, digits = [model[error] for model in models], models[0].get("digits", digits)
    if None in values:
        return NOT_RUN
    return f"{mean(values):.{digits}f}" + (f" ± {pstdev(values):.{digits}f}" if len(values) > 1 else "")


def means(models: Models | None) -> ErrorPair | None:
    """Mean errors over models."""
    if not models:
        return None
    energy, forces = (mean(float(model[error]) for model in models) for error in ERRORS)
    return energy, forces


def over_rows(column: Mapping[str, Models], rows: Iterable[str]) -> Models:
    """The mean over molecules of a column as one model; none if a molecule is missing."""
    found = [means(column.get(row)) for row in rows]
    there = [pair for pair in found if pair is not None]
    if len(there) < len(found) or not there:
        return []
    return [dict(zip(ERRORS, map(mean, zip(*there, strict=True)), strict=True))]


def error_table(
    name: str,
    headline: str,
    columns: Mapping[str, Mapping[str, Models]],
    rows: Sequence[str],
    note: str,
    *,
    error: str | None = None,
    digits: int = 2,
    with_mean: bool = True,
    first: str = "molecule",
) -> ResultTable:
    """Molecules down; each column maps molecules to models. The last row, in bold, is their mean.

    Cells hold one error, or both; a column may bring its own mean.
    """
    lines = [[title(row), *(cell(c.get(row), error, digits) for c in columns.values())] for row in rows]
    if with_mean:
        last = [c.get("mean") or over_rows(c, rows) for c in columns.values()]
        lines.append(["mean", *(cell(models, error, digits) for models in last)])
    strong = frozenset({len(rows)} if with_mean else ())
    return ResultTable(name, headline, [first, *columns], lines, note, strong=strong)


def tested_on(models: Iterable[Mapping[str, Any]]) -> str:
    """On how many frames results were tested, in words."""
    counts = "–".join(map(str, sorted({model["frames"] for model in models}))) or "no"
    return f"on {counts} frames that were not trained or validated on"


def no_worse(pairs: Iterable[tuple[Models, Models]], *errors: str) -> tuple[int, int]:
    """The number of mean errors no worse than published ones in their digits, and the number compared.

    `pairs`: our models and the published one.
    """
    good = [
        round(mean(model[error] for model in ours), theirs["digits"]) <= theirs[error]
        for ours, (theirs,) in pairs
        for error in errors or ERRORS
        if theirs[error] is not None
    ]
    return sum(good), len(good)


def left_table(
    result: Mapping[str, Any], missing: Mapping[str, int] | None = None, *, gpu: bool = True
) -> ResultTable:
    """The table of models that are not trained yet, with the commands for them.

    `missing` counts models by parts, separated by spaces; by default it is that of the result. Kept in the
    docs when nothing is left. A quick result is continued by quick commands, and one with embedded data
    without a folder of data. `gpu`: the work is meant for a GPU.
    """
    options = " --quick" if result["quick"] else " --device cuda" if gpu else ""
    options += "" if result["settings"].get("stand_in") else " --data DIR"

    def command(parts: str) -> str:
        return f"geomatt reproduce {result['experiment']} --part {parts.replace(' ', ' --part ')}{options}"

    missing = result["missing"] if missing is None else missing
    rows = [[parts, str(count), command(parts)] for parts, count in missing.items() if count]
    nothing = [["nothing", "0", "all has been run"]]
    return ResultTable("left", "Left to run", ["part", "models", "command"], rows or nothing)


def title(molecule: str) -> str:
    return molecule.replace("_", " ")
