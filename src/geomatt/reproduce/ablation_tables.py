"""Tables and sentences of the ablation, from its result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean, stdev
from typing import Any

from geomatt.reproduce.published import NOT_RUN, tested_on, title
from geomatt.reproduce.study import UNIT
from geomatt.reproduce.table import ResultTable

BASELINE = "baseline"
CLEAR = 2.0  # standard deviations of the baseline that count as a difference
ERRORS = ("energy_mae", "force_mae", "training_force_mae")
COLUMNS = ("changed", "weights", "energies", "forces", "training forces", "forces / baseline", "returns")


def seeds(result: Mapping[str, Any], molecule: str) -> list[dict[str, Any]]:
    """The models of the baseline; without those that diverged, as everywhere here."""
    return [row for row in _trained(result, molecule).values() if row["group"] == BASELINE]


def ratios(result: Mapping[str, Any], molecule: str) -> dict[str, float]:
    """Force errors of the variations over the baseline's mean; empty without a baseline."""
    own = [row["force_mae"] for row in seeds(result, molecule)]
    rows = _trained(result, molecule).items()
    return {n: row["force_mae"] / mean(own) for n, row in rows if own and row["group"] != BASELINE}


def spread(result: Mapping[str, Any], molecule: str) -> float | None:
    """Standard deviation of the baseline's force errors over their mean; None with fewer than two seeds."""
    own = [row["force_mae"] for row in seeds(result, molecule)]
    return stdev(own) / mean(own) if len(own) > 1 else None


def errors_table(result: Mapping[str, Any], molecule: str) -> ResultTable:
    """Errors of all variations on one molecule, below those of the baseline."""
    own, found, lines = seeds(result, molecule), ratios(result, molecule), []
    if own:
        errors = [_with_spread([row[error] for row in own], 3) for error in ERRORS]
        ratio = _with_spread([row["force_mae"] / mean(r["force_mae"] for r in own) for row in own], 2)
        returns = str(sum(row["returns"] for row in own))
        lines.append([BASELINE, f"{own[0]['parameters']:,}", *errors, ratio, returns])
    for name, row in result["rows"].get(molecule, {}).items():
        if "diverged" in row:
            lines.append([name, NOT_RUN, NOT_RUN, "diverged", NOT_RUN, NOT_RUN, NOT_RUN])
        elif row["group"] != BASELINE:
            errors = [f"{row[error]:.3f}" for error in ERRORS]
            ratio = f"{found[name]:.2f}" if found else NOT_RUN
            lines.append([name, f"{row['parameters']:,}", *errors, ratio, str(row["returns"])])
    return ResultTable(
        f"ablation-{molecule}",
        f"Errors of {title(molecule)} with one choice changed",
        COLUMNS,
        lines,
        f"MAE, {UNIT} and {UNIT}/Å, {tested_on(_trained(result, molecule).values())}. Baseline: mean ± "
        f"standard deviation over {len(own)} seeds; others: one seed. Returns: how often training went "
        "astray and went back to its best weights with half the learning rate.",
    )


def compared(result: Mapping[str, Any]) -> str:
    """Which variations differ from the baseline by more than its seeds do, in every molecule that was run."""
    spreads = {m: s for m in result["rows"] if (s := spread(result, m)) is not None}
    if not spreads:
        return "Not run yet."
    by_molecule = {m: ratios(result, m) for m in spreads}
    kinds: dict[str, list[str]] = {"Worse": [], "Better": [], "Not clearly different": []}
    for name in next(iter(by_molecule.values())):
        found = [by_molecule[m].get(name) for m in spreads]
        known = [value for value in found if value is not None]
        if len(known) < len(found):
            continue
        limits = [CLEAR * s for s in spreads.values()]
        worse = all(value > 1.0 + limit for value, limit in zip(known, limits, strict=True))
        better = all(value < 1.0 - limit for value, limit in zip(known, limits, strict=True))
        kind = "Worse" if worse else "Better" if better else "Not clearly different"
        kinds[kind].append(f"{name} ({', '.join(f'{value:.2f}' for value in known)})")
    every = [(m, name, row) for m, rows in result["rows"].items() for name, row in rows.items()]
    kinds["Diverged"] = [f"{name} ({title(m)})" for m, name, row in every if "diverged" in row]
    first = (
        f"Force errors over those of the baseline, for {' and '.join(map(title, spreads))}. Seeds of the "
        f"baseline differ by {' and '.join(f'{s:.1%}' for s in spreads.values())} (standard deviation); "
        f"{CLEAR:g} times as much in every molecule counts as a difference."
    )
    return " ".join([first, *(f"**{kind}:** {', '.join(found)}." for kind, found in kinds.items() if found)])


def _trained(result: Mapping[str, Any], molecule: str) -> dict[str, dict[str, Any]]:
    """The models of a molecule whose training did not diverge, by variation."""
    return {n: row for n, row in result["rows"].get(molecule, {}).items() if "diverged" not in row}


def _with_spread(values: Sequence[float], digits: int) -> str:
    behind = f" ± {stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{mean(values):.{digits}f}{behind}"
