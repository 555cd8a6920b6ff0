"""Numbers of the paper (Frank & Chmiela 2021): energy and force MAE, kcal/mol and kcal/mol/Å."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import mean, pstdev
from typing import Any

from geomatt.reproduce.inputs import MD17
from geomatt.reproduce.table import ResultTable

ErrorPair = tuple[float, float]  # energy, forces


def _row(*values: ErrorPair) -> dict[str, ErrorPair]:
    return dict(zip(MD17, values, strict=True))


# aspirin, benzene, ethanol, malonaldehyde, naphthalene, salicylic acid, toluene, uracil
GEOMATT: dict[str, dict[str, ErrorPair]] = {
    "2,3,4": _row(
        (0.89, 2.03), (0.18, 0.41), (0.25, 0.98), (0.32, 1.31),
        (0.32, 0.81), (0.35, 1.17), (0.24, 0.80), (0.27, 0.99),
    ),
    "2,3,3": _row(
        (1.04, 2.30), (0.14, 0.46), (0.39, 1.05), (0.55, 1.55),
        (0.36, 0.89), (0.42, 1.33), (0.25, 0.91), (0.28, 1.17),
    ),
    "2,2,2": _row(
        (1.10, 2.19), (0.16, 0.60), (0.37, 1.06), (0.42, 1.43),
        (0.46, 1.24), (0.48, 1.42), (0.34, 1.05), (0.46, 1.41),
    ),
}  # fmt: skip
SCHNET = _row(
    (0.37, 1.35), (0.08, 0.31), (0.08, 0.39), (0.13, 0.66),
    (0.16, 0.58), (0.20, 0.85), (0.12, 0.57), (0.14, 0.56),
)  # fmt: skip
# Means over the molecules as the paper prints them; those of 2,3,3 are not the means of its rounded cells.
MEANS: dict[str, ErrorPair] = {"2,3,4": (0.35, 1.06), "2,3,3": (0.42, 1.20), "2,2,2": (0.47, 1.30)}
TRANSFER: dict[tuple[str, str], ErrorPair] = {
    ("aspirin", "benzene"): (0.38, 1.45),
    ("aspirin", "toluene"): (0.80, 2.36),
    ("benzene", "naphthalene"): (1.16, 3.97),
    ("toluene", "benzene"): (0.21, 0.83),
}

ERRORS = ("energy_mae", "force_mae")
NOT_RUN = "–"


def pair(values: Sequence[float] | None) -> str:
    """Energy and force error in one cell."""
    return NOT_RUN if values is None else f"{values[0]:.2f} / {values[1]:.2f}"


def spread(folds: Sequence[Mapping[str, Any]] | None, error: str) -> str:
    """The mean of an error over folds, with the (population) standard deviation."""
    if not folds:
        return NOT_RUN
    values = [float(fold[error]) for fold in folds]
    return f"{mean(values):.2f}" + (f" ± {pstdev(values):.2f}" if len(values) > 1 else "")


def spread_pair(values: Sequence[Mapping[str, Any]] | None) -> str:
    """Mean energy and force error over several models in one cell, with standard deviations."""
    return NOT_RUN if not values else " / ".join(spread(values, error) for error in ERRORS)


def means(folds: Sequence[Mapping[str, Any]] | None) -> ErrorPair | None:
    """Mean errors over folds."""
    return column_mean([errors_of(fold) for fold in folds or ()])


def tested_on(values: Iterable[Mapping[str, Any]]) -> str:
    """On how many frames results were tested, in words."""
    counts = "–".join(map(str, sorted({value["frames"] for value in values}))) or "no"
    return f"on {counts} frames that were not trained or validated on"


def errors_of(value: Mapping[str, Any] | None) -> ErrorPair | None:
    """Energy and force error of one result."""
    return None if value is None else (value[ERRORS[0]], value[ERRORS[1]])


def column_mean(pairs: Iterable[ErrorPair | None]) -> ErrorPair | None:
    """Mean errors over molecules; None if one is missing."""
    found = list(pairs)
    there = [p for p in found if p is not None]
    if not there or len(there) < len(found):
        return None
    return mean(p[0] for p in there), mean(p[1] for p in there)


def no_worse(ours: Sequence[float], published: Sequence[float]) -> int:
    """How many errors are no worse than the published ones, in the digits of those."""
    return sum(round(a, 2) <= b for a, b in zip(ours, published, strict=True))


def left_table(missing: Mapping[str, int], command: str) -> ResultTable:
    """The parts that are not run yet and the command for each; kept in the docs when nothing is left."""
    lines = [[part, str(count), command.format(part)] for part, count in missing.items() if count]
    rows = lines or [["nothing", "0", "all has been run"]]
    return ResultTable("left", "Left to run", ["part", "models", "command"], rows)


def title(molecule: str) -> str:
    return molecule.replace("_", " ")
