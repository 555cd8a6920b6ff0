"""Tables of a model's description, its errors and its attention."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.table import Table

from geomatt.analysis.bonds import BondScore
from geomatt.elements import symbols
from geomatt.evaluation.result import Errors, EvaluationResult
from geomatt.model import Potential
from geomatt.model.calibration import LEVELS
from geomatt.model.files import describe, fingerprint
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
    ]
    rows += [
        (name, f"{described['config'][name]}  ({field.metadata['help']})")
        for name, field in potential.network.config.settings().items()
    ]
    rows += list(_flat(potential.record))
    return [(name, _words(value)) for name, value in rows]


def error_tables(result: EvaluationResult) -> list[Table]:
    """Errors overall and by molecule, and by element where there are forces."""
    factor, unit = from_ev(result.unit), result.unit
    with_energy = result.data.energies is not None
    with_forces = result.forces is not None
    first = Table(title=f"Errors ({unit}, {unit}/Å)", title_justify="left")
    first.add_column("molecule")
    first.add_column("frames", justify="right")
    headings = ["energy MAE", "RMSE", "per atom MAE"] if with_energy else []
    headings += ["forces MAE", "RMSE"] if with_forces else []
    with_stress = result.overall.stress_mae is not None
    headings += ["stress MAE (GPa)"] if with_stress else []
    for heading in headings:
        first.add_column(heading, justify="right")

    def cells(errors: Errors) -> list[str]:
        e = errors.scaled(factor)
        values = [e.energy_mae, e.energy_rmse, e.energy_per_atom_mae] if with_energy else []
        values += [e.forces_mae, e.forces_rmse] if with_forces else []
        if with_stress:
            values.append(None if e.stress_mae is None else e.stress_mae * GIGAPASCAL)
        return [f"{errors.structures}", *map(_number, values)]

    molecules = result.per_molecule
    for name, errors in molecules.items():
        first.add_row(name, *cells(errors))
    if len(molecules) > 1:
        first.add_section()
        first.add_row("all", *cells(result.overall))
    tables = [first]
    if with_forces:
        second = Table(title=f"Forces by element ({unit}/Å)", title_justify="left")
        for heading in ("element", "atoms", "MAE", "RMSE"):
            second.add_column(heading, justify="left" if heading == "element" else "right")
        for name, errors in result.per_element.items():
            scaled = errors.scaled(factor)
            second.add_row(name, str(errors.atoms), _number(scaled.forces_mae), _number(scaled.forces_rmse))
        tables.append(second)
    if result.spread is not None:
        several = result.provenance.get("members", 1) > 1
        tables.append(_spread_table(result.spread, factor, unit, several))
    if result.coverage is not None:
        tables.append(_coverage_table(result.coverage))
    return tables


def bond_table(scores: Sequence[BondScore]) -> Table:
    """How well each attention matrix ranks bonds."""
    caption = "1: every bond ranks before all other pairs by |α|. AUROC: 0.5 is chance."
    table = Table(
        title="Covalent bonds among the strongest attention",
        title_justify="left",
        caption=caption,
        caption_justify="left",
    )
    for name in ("attention", "average precision", "AUROC"):
        table.add_column(name, justify="left" if name == "attention" else "right")
    for score in scores:
        values = (score.average_precision, score.auroc)
        table.add_row(score.label, *("–" if v is None else f"{v:.3f}" for v in values))
    return table


def _spread_table(spread: dict[str, float], factor: float, unit: str, several: bool) -> Table:
    title = "Committee" if several else "Estimated from the distance to the training data"
    what = "spread" if several else "estimated error"
    table = Table(title=title, title_justify="left", show_header=False)
    table.add_row(f"mean {what} of energies ({unit})", _number(spread["energy_mean"] * factor))
    if "forces_mean" in spread:
        table.add_row(f"mean {what} of forces ({unit}/Å)", _number(spread["forces_mean"] * factor))
    if "forces_correlation" in spread:
        table.add_row(f"correlation of {what} and error of forces", f"{spread['forces_correlation']:.2f}")
    return table


def _coverage_table(coverage: dict[str, dict[str, list[float]]]) -> Table:
    """Shares of errors below error bars at some levels."""
    table = Table(title="Errors below the error bars", title_justify="left")
    table.add_column("asked for", justify="right")
    for kind in coverage:
        table.add_column(f"{kind}\ncalibrated", justify="right")
        table.add_column(f"{kind}\nuncalibrated", justify="right")
    for level in SHOWN_LEVELS:
        at = LEVELS.index(level)
        shares = [values[way][at] for values in coverage.values() for way in ("calibrated", "raw")]
        table.add_row(f"{level:.0%}", *(f"{share:.0%}" for share in shares))
    return table


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
    return "–" if value is None else f"{value:#.3g}"
