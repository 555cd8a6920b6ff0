"""Tables of a model's description, its errors and its attention."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import mean, pstdev
from typing import Any

from rich.table import Table

from geomatt.analysis.bonds import BondScore
from geomatt.cli.console import number, table
from geomatt.elements import symbols
from geomatt.evaluation.result import ErrorSummary, EvaluationResult
from geomatt.model import Potential
from geomatt.model.calibration import LEVELS
from geomatt.model.files import describe, fingerprint
from geomatt.model.stability import outcomes
from geomatt.units import GIGAPASCAL, from_ev

SHOWN_LEVELS = (0.5, 0.7, 0.9, 0.95)
LONG = 100  # characters; longer values, such as the frames of a split, are cut


def info_rows(potential: Potential, path: str) -> list[tuple[str, str]]:
    """All metadata of a model file."""
    described = describe(potential)
    normalisation = potential.normalisation
    reference = {symbols([z])[0]: f"{energy:.6f}" for z, energy in sorted(normalisation.reference.items())}
    parameters = sum(p.numel() for p in potential.network.parameters())
    rows: list[tuple[str, Any]] = [
        ("model", path),
        ("kind", f"{described['kind']} (file format {described['format']})"),
        ("hash", fingerprint(potential)[:16]),
        ("elements", " ".join(symbols(potential.elements))),
        ("parameters", f"{parameters:,}"),
        ("precision", described["dtype"]),
        ("units", "eV, Å"),
        ("energy shift (eV)", f"{normalisation.shift:.6f}"),
        ("energy scale (eV)", f"{normalisation.scale:.6f}"),
        ("energies of atoms (eV)", reference or "none"),
        ("outside the data", _outside(potential)),
    ]
    rows += [
        (name, f"{described['config'][name]}  ({field.metadata['help']})")
        for name, field in potential.network.config.settings().items()
    ]
    rows += list(_flat({name: value for name, value in potential.record.items() if name != "stability"}))
    shown = [(name, _words(value)) for name, value in rows]
    return shown + [("dynamics at 500 K", words) for words in _in_dynamics(potential)]


def error_tables(result: EvaluationResult) -> list[Table]:
    """Errors overall and by molecule, and by element where there are forces."""
    factor, unit = from_ev(result.unit), result.unit
    with_energy, with_forces = result.data.energies is not None, result.forces is not None
    with_stress = result.overall.stress_mae is not None
    headings = ["molecule", "frames"]
    headings += ["energy MAE", "RMSE", "per atom MAE"] if with_energy else []
    headings += ["forces MAE", "RMSE"] if with_forces else []
    headings += ["stress MAE (GPa)"] if with_stress else []

    def cells(name: str, errors: ErrorSummary) -> list[str]:
        e = errors.scaled(factor)
        values = [e.energy_mae, e.energy_rmse, e.energy_per_atom_mae] if with_energy else []
        values += [e.forces_mae, e.forces_rmse] if with_forces else []
        if with_stress:
            values.append(None if e.stress_mae is None else e.stress_mae * GIGAPASCAL)
        return [name, str(errors.structures), *map(_number, values)]

    rows = [cells(name, errors) for name, errors in result.per_molecule.items()]
    tables = [table(f"Errors ({unit}, {unit}/Å)", headings, rows, left=("molecule",))]
    if len(rows) > 1:
        tables[0].add_section()
        tables[0].add_row(*cells("all", result.overall))
    if with_forces:
        by_element = {
            name: (errors.atoms, errors.scaled(factor)) for name, errors in result.per_element.items()
        }
        rows = [
            [n, str(k), _number(e.forces_mae), _number(e.forces_rmse)] for n, (k, e) in by_element.items()
        ]
        headings = ["element", "atoms", "MAE", "RMSE"]
        tables.append(table(f"Forces by element ({unit}/Å)", headings, rows, left=("element",)))
    if result.spread is not None:
        several = result.provenance.get("members", 1) > 1
        tables.append(_spread_table(result.spread, factor, unit, several))
    if result.coverage is not None:
        tables.append(_coverage_table(result.coverage))
    return tables


def bond_table(scores: Sequence[BondScore]) -> Table:
    """Scores of each attention matrix as a ranking of bonds."""
    rows = [[s.label, number(s.average_precision), number(s.auroc)] for s in scores]
    headings = ["attention", "average precision", "AUROC"]
    caption = "1: every bond ranks before all other pairs by the size of attention. AUROC: 0.5 is chance."
    controls = max((len(s.untrained) for s in scores), default=0)
    if controls:
        headings.insert(2, "untrained")
        caption += f"\nUntrained: average precision of {controls} networks with random weights (mean ± SD)."
        for row, s in zip(rows, scores, strict=True):
            shown = f"{mean(s.untrained):.2f} ± {pstdev(s.untrained):.2f}" if s.untrained else "–"
            row.insert(2, shown)
    return table(
        "Covalent bonds among the strongest attention", headings, rows, left=("attention",), caption=caption
    )


def _spread_table(spread: dict[str, float], factor: float, unit: str, several: bool) -> Table:
    title = "Committee" if several else "Estimated from the distance to the training data"
    what = "spread" if several else "estimated error"
    rows = [[f"mean {what} of energies ({unit})", _number(spread["energy_mean"] * factor)]]
    if "forces_mean" in spread:
        rows.append([f"mean {what} of forces ({unit}/Å)", _number(spread["forces_mean"] * factor)])
    if "forces_correlation" in spread:
        rows.append([f"correlation of {what} and error of forces", f"{spread['forces_correlation']:.2f}"])
    return table(title, ("", "value"), rows, left=("", "value"), show_header=False)


def _coverage_table(coverage: dict[str, dict[str, list[float]]]) -> Table:
    """Shares of errors below error bars at some levels."""
    headings = [f"{kind}\n{way}" for kind in coverage for way in ("calibrated", "uncalibrated")]
    rows = []
    for level in SHOWN_LEVELS:
        at = LEVELS.index(level)
        shares = [values[way][at] for values in coverage.values() for way in ("calibrated", "raw")]
        rows.append([f"{level:.0%}", *(f"{share:.0%}" for share in shares)])
    return table("Errors below the error bars", ["asked for", *headings], rows)


def _outside(potential: Potential) -> str:
    """What keeps simulations where the model was trained."""
    kept = ["bounds of the network"] * potential.bounded
    kept += ["walls at the ranges of distances"] * (potential.domain is not None)
    return ", ".join(kept) or "nothing: train it anew for walls"


def _in_dynamics(potential: Potential) -> list[str]:
    """What came of long dynamics, by condition."""
    tried = potential.record.get("stability", {})
    found = [outcome.words for outcome in outcomes(tried, potential.bounded)]
    return [*found, "not run with walls and bounds"] if found and not tried.get("bounded", True) else found


def _flat(record: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """A record's entries with nested ones as `outer.inner`."""
    for name, value in record.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _words(value: Any) -> str:
    """A value for a table; long lists by their length, long texts by their beginning."""
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) if len(value) <= 8 else f"{len(value)} entries"
    if isinstance(value, dict):
        return ", ".join(f"{k} {v}" for k, v in value.items()) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.8g}"
    text = "–" if value is None else str(value)
    return text if len(text) <= LONG else f"{text[: LONG // 4]}… (the rest: --json)"


def _number(value: float | None) -> str:
    return number(value, "#.3g")
