"""`geomatt scan`: the energy along a torsion or a distance."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from geomatt.cli.console import note, output, progress_bar, say
from geomatt.cli.generated import parse_integers, parse_pairs, with_config
from geomatt.cli.options import (
    Device,
    EnergyUnit,
    FrameNumber,
    LengthUnit,
    OutFolder,
    Precise,
    load_model,
    read_data,
    read_structure,
    result_folder,
)
from geomatt.errors import GeomAttError
from geomatt.simulation.settings import SCAN, ScanSettings
from geomatt.units import energy_unit as canonical_unit
from geomatt.units import from_ev

if TYPE_CHECKING:
    from geomatt.simulation.coordinates import Coordinate
    from geomatt.simulation.scans import Reference, Scan

XTB = ("tblite.ase:TBLite", {"method": "GFN2-xTB", "verbosity": 0})
MOST_ROWS = 40  # points in the table


def _option(flag: str, text: str, **rest: Any) -> Any:
    return typer.Option(flag, help=text, rich_help_panel=SCAN, show_default=False, **rest)


@with_config(ScanSettings)
def scan(
    settings: dict[str, Any],
    model: Annotated[
        str,
        typer.Argument(
            help="A model file, the folder of a run, or a name of `geomatt models`.", show_default=False
        ),
    ],
    structure: Annotated[str, typer.Argument(help="A file with the structure.", show_default=False)],
    torsion: Annotated[
        str | None, _option("--torsion", "Four atoms, counted from 0: 0,1,2,8.", metavar="A,B,C,D")
    ] = None,
    distance: Annotated[
        str | None, _option("--distance", "Two atoms, counted from 0: 0,1.", metavar="A,B")
    ] = None,
    reference: Annotated[
        list[str] | None,
        _option(
            "--reference",
            "To compare with: xtb (GFN2-xTB), an ASE calculator as module:Class, or a labelled file.",
        ),
    ] = None,
    reference_option: Annotated[
        list[str] | None,
        _option(
            "--reference-option",
            "Argument of the calculator: method=GFN1-xTB (repeatable).",
            metavar="NAME=VALUE",
        ),
    ] = None,
    unit: Annotated[
        str | None, _option("--unit", "Energy unit of the report; the training data's by default.")
    ] = None,
    out: OutFolder = None,
    frame: FrameNumber = 0,
    length_unit: LengthUnit = None,
    energy_unit: EnergyUnit = None,
    device: Device = None,
    dtype: Precise = "float64",
) -> None:
    """Scan the energy along a torsion or a distance, rigid or relaxed, beside a reference.

    A calculator as reference computes the geometries of the scan; a labelled file is compared
    by its own values of the coordinate. Writes the geometries, the numbers and a plot
    into --out; files of an earlier call are replaced.
    """
    from geomatt.simulation.results import draw_scan, write_json
    from geomatt.simulation.scans import scan as run_scan
    from geomatt.training.interruption import stop_on_signal

    chosen, coordinate = ScanSettings(**settings), _coordinate(torsion, distance)
    start = read_structure(structure, frame, length_unit)
    loaded = load_model(Path(model), device, dtype)
    shown = canonical_unit(unit or loaded.record.get("report_unit") or "eV")
    with result_folder(out, structure, "scan") as folder:
        compared_with = [
            _reference(text, reference_option or [], energy_unit, length_unit) for text in reference or []
        ]
        what = "relaxed" if chosen.relaxed else "rigid"
        with progress_bar(f"{what} scan", chosen.points) as advance, stop_on_signal() as asked:

            def show(done: int) -> bool:
                advance(done)
                return bool(asked)

            found = run_scan(loaded, start, coordinate, chosen, progress=show)
        files = {
            "geometries": folder / "scan.extxyz",
            "numbers": folder / "scan.json",
            "plot": folder / "scan.png",
        }
        _write_geometries(found, files["geometries"])
        references = [] if asked else [compare(found) for compare in compared_with]
        compared = [{"name": r.name, **found.against(r)} for r in references]
        values = {
            "model": model,
            "settings": chosen.to_dict(),
            "coordinate": {"kind": coordinate.kind, "atoms": list(coordinate.atoms)},
            "values": found.values.tolist(),
            "energies_eV": found.energies.tolist(),
            "converged": found.converged.tolist(),
            "energy_spread_eV": None if found.spread is None else found.spread.tolist(),
            "references": [
                {**numbers, "values": r.values.tolist(), "energies_eV": r.energies.tolist()}
                for numbers, r in zip(compared, references, strict=True)
            ],
        }
        write_json(values, files["numbers"])
        draw_scan(found, references, shown, files["plot"])
        _print(found, references, compared, shown, files)
        if len(found.values) < chosen.points:
            note(
                f"Stopped after {len(found.values)} of {chosen.points} points, which are kept.",
                style="yellow",
            )
            raise typer.Exit(128 + asked.signal)
        lowest = int(found.energies.argmin())
        say(
            f"Next:\n  geomatt relax {model} {files['geometries']} --frame {lowest}   # from the lowest point"
        )
        if not references:
            say("  the same with --reference xtb compares with GFN2-xTB")


def _coordinate(torsion: str | None, distance: str | None) -> Coordinate:
    from geomatt.simulation.coordinates import Coordinate

    if (torsion is None) == (distance is None):
        raise GeomAttError("Give the coordinate to scan: --torsion A,B,C,D or --distance A,B.")
    if torsion is not None:
        return Coordinate("torsion", parse_integers(torsion, "--torsion"))
    return Coordinate("distance", parse_integers(str(distance), "--distance"))


def _reference(
    text: str, options: list[str], energy_unit: str | None, length_unit: str | None
) -> Callable[[Scan], Reference]:
    """What makes the reference of a scan; a wrong one is reported before the scan is run."""
    from geomatt.simulation.scans import calculator_reference, data_reference, make_calculator

    if Path(text).exists():
        data = read_data(text, energy_unit, length_unit, ["forces=none"])
        return lambda found: data_reference(data, text, found.coordinate, found.structures[0])
    given = {k: _value(v) for k, v in parse_pairs(options, "--reference-option", "method=GFN1-xTB").items()}
    path, defaults = XTB if text == "xtb" else (text, {})
    if ":" not in path:
        raise GeomAttError(f"There is no file {text}, and it is not a calculator as module:Class, nor xtb.")
    calculator = make_calculator(path, {**defaults, **given})
    name = str(given.get("method", "GFN2-xTB")) if text == "xtb" else path

    def compute(found: Scan) -> Reference:
        with progress_bar("reference", len(found.values)) as advance:
            return calculator_reference(calculator, name, found, progress=advance)

    return compute


def _value(text: str) -> Any:
    """A number, truth value or list as Python writes it; anything else is a string."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _write_geometries(found: Scan, path: Path) -> None:
    from dataclasses import replace

    from geomatt.data import Dataset, write

    named = [
        replace(s, info={found.coordinate.kind: float(value)})
        for s, value in zip(found.structures, found.values, strict=True)
    ]
    write(Dataset.from_structures(named), path)


def _print(
    found: Scan,
    references: list[Reference],
    compared: list[dict[str, Any]],
    unit: str,
    files: dict[str, Path],
) -> None:
    import numpy as np
    from rich.table import Table

    factor, name = from_ev(unit), found.coordinate.name(found.structures[0])
    kind = "Relaxed" if found.relaxed else "Rigid"
    output.print(
        f"{kind} scan of {found.coordinate.kind} {name}, {unit} above the lowest point", style="italic"
    )
    table = Table()
    for heading in (found.coordinate.unit, "model", *(r.name for r in references), ""):
        table.add_column(heading, justify="right")
    marks = dict(found.extrema())
    lowest = found.energies.min()
    # All points of a short scan, the turning points of a long one.
    rows = range(len(found.values)) if len(found.values) <= MOST_ROWS else sorted(marks)
    for p in rows:
        value = found.values[p]
        others = [
            f"{factor * (np.interp(value, r.values, r.energies) - r.energies.min()):.3f}"
            if r.values[0] - 1e-6 <= value <= r.values[-1] + 1e-6
            else "–"
            for r in references
        ]
        mark = marks.get(p, "") + ("" if found.converged[p] else " not converged")
        table.add_row(f"{value:.4g}", f"{factor * (found.energies[p] - lowest):.3f}", *others, mark.strip())
    output.print(table)
    for numbers in compared:
        output.print(
            f"Against {numbers['name']}: RMS difference {factor * numbers['rms_eV']:.3f}, "
            f"largest {factor * numbers['largest_eV']:.3f}; highest point "
            f"{factor * numbers['barrier_model_eV']:.3f}, reference "
            f"{factor * numbers['barrier_reference_eV']:.3f} {unit}.",
            highlight=False,
            soft_wrap=True,
        )
    if not found.converged.all():
        note(
            f"Warning: {int((~found.converged).sum())} points did not reach --fmax. Give more --steps.",
            style="yellow",
        )
    lines = "\n".join(f"{what}: {file}" for what, file in files.items())
    say(lines)
