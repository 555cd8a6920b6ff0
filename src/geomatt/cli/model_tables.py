"""Tables of a model's description, its errors and its attention."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.table import Table

from geomatt.analysis.bonds import BondScore
from geomatt.elements import symbols
from geomatt.evaluation.result import Errors, EvaluationResult
from geomatt.model import Potential
from geomatt.model.files import describe, fingerprint
from geomatt.units import GIGAPASCAL, from_ev

LONG = 100  # characters; longer values, such as the frames of a split, are cut


def info_table(potential: Potential, path: str) -> Table:
    """All metadata of a model file."""
    described = describe(potential)
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
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
    for name, value in rows:
        table.add_row(name, _words(value))
    return table


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
        tables.append(_spread_table(result.spread, factor, unit))
    return tables


def bond_table(scores: Sequence[BondScore]) -> Table:
    """How well each attention matrix ranks bonds."""
    table = Table(title="Covalent bonds among the strongest attention", title_justify="left")
    table.add_column("attention")
    table.add_column("average precision", justify="right")
    table.add_column("AUROC", justify="right")
    for score in scores:
        table.add_row(
            score.label,
            *("–" if v is None else f"{v:.3f}" for v in (score.average_precision, score.auroc)),
        )
    return table


def _spread_table(spread: dict[str, float], factor: float, unit: str) -> Table:
    table = Table(title="Committee", title_justify="left", show_header=False)
    table.add_row(f"mean spread of energies ({unit})", _number(spread["energy_mean"] * factor))
    if "forces_mean" in spread:
        table.add_row(f"mean spread of forces ({unit}/Å)", _number(spread["forces_mean"] * factor))
    if "forces_correlation" in spread:
        table.add_row("correlation of force spread and error", f"{spread['forces_correlation']:.2f}")
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
