"""`geomatt scan`: the energy along a torsion or a distance."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from geomatt.cli import options
from geomatt.cli.console import finish, note, output, progress_bar, say, table, warn
from geomatt.cli.generated import options_of, parse_numbers, parse_pairs, with_options
from geomatt.errors import GeomAttError
from geomatt.simulation.settings import SCAN, ScanSettings
from geomatt.training.config import TrainConfig
from geomatt.units import energy_unit as canonical_unit
from geomatt.units import from_ev

if TYPE_CHECKING:
    from geomatt.simulation.coordinates import Coordinate
    from geomatt.simulation.scans import ReferenceCurve, Scan

XTB = ("tblite.ase:TBLite", {"method": "GFN2-xTB", "verbosity": 0})
MOST_ROWS = 40  # points in the table
NO_RESULT = "no result"  # a relaxation that ran away, or changed bonds of a molecule the model does not know


def _option(flag: str, text: str, **rest: Any) -> Any:
    return typer.Option(flag, help=text, rich_help_panel=SCAN, **rest)


@with_options(
    settings=options_of(ScanSettings), reading=options_of(TrainConfig, "energy_unit", "length_unit")
)
def scan(
    settings: dict[str, Any],
    reading: dict[str, Any],
    model: options.Model,
    structure: options.StructureFile,
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
    unit: options.Unit = None,
    out: options.OutFolder = None,
    frame: options.FrameNumber = 0,
    device: options.Device = None,
    dtype: options.Precise = "float64",
) -> None:
    """Scan the energy along a torsion or a distance, rigid or relaxed, beside a reference.

    A calculator as reference computes the geometries of the scan; a labelled file is compared
    by its own values of the coordinate. Writes the geometries, the numbers and a plot
    into --out; files of an earlier call are replaced.
    """
    from geomatt.data import Dataset, write
    from geomatt.simulation.results import draw_scan, write_json
    from geomatt.simulation.scans import scan as run_scan
    from geomatt.training.interruption import stop_on_signal

    chosen, coordinate = ScanSettings(**settings), _coordinate(torsion, distance)
    start = options.read_structure(structure, frame, reading)
    loaded = options.load_model(model, device, dtype)
    shown = canonical_unit(unit or loaded.record.get("report_unit") or "eV")
    with options.result_folder(out, structure, "scan") as folder:
        compared_with = [_reference(text, reference_option or [], reading) for text in reference or []]
        what = "relaxed" if chosen.relaxed else "rigid"
        with progress_bar(f"{what} scan", chosen.points) as advance, stop_on_signal() as asked:

            def show(done: int) -> bool:
                advance(done)
                return bool(asked)

            found = run_scan(loaded, start, coordinate, chosen, progress=show)
        names = {"geometries": "scan.extxyz", "numbers": "scan.json", "plot": "scan.png"}
        files = {what: folder / name for what, name in names.items()}
        located = zip(found.structures, found.values.tolist(), strict=True)
        named = [replace(s, info={coordinate.kind: value}) for s, value in located]
        references = []
        for compare in [] if asked else compared_with:
            try:
                references.append(compare(found))
            except GeomAttError as error:  # the scan is not lost for it
                warn(f"The scan is kept without a reference: {error}")
        compared = [{"name": r.name, **found.against(r)} for r in references]
        values = {
            "model": str(model),
            "settings": chosen.to_dict(),
            "coordinate": {"kind": coordinate.kind, "atoms": list(coordinate.atoms)},
            "values": found.values.tolist(),
            "energies_eV": found.energies.tolist(),
            "converged": found.converged.tolist(),
            "failures": list(found.failures),
            "outside_data": None if found.outside is None else found.outside.tolist(),
            "energy_spread_eV": None if found.spread is None else found.spread.tolist(),
            "references": [
                {**numbers, "values": r.values.tolist(), "energies_eV": r.energies.tolist()}
                for numbers, r in zip(compared, references, strict=True)
            ],
        }
        _print(found, references, compared, shown)  # first: writing may fail
        write(Dataset.from_structures(named), files["geometries"])
        write_json(values, files["numbers"])
        draw_scan(found, references, shown, files["plot"])
        if len(found.values) < chosen.points:
            finish(files)
            note(
                f"Stopped after {len(found.values)} of {chosen.points} points, which are kept.",
                style="yellow",
            )
            raise typer.Exit(128 + asked.signal)
        intact = [p for p in range(len(found.values)) if not (found.failures and found.failures[p])]
        if not intact:
            finish(files)
            raise typer.Exit(1)
        lowest = min(intact, key=lambda p: found.energies[p])
        commands = [f"geomatt relax {model} {files['geometries']} --frame {lowest}   # from the lowest point"]
        if not references:
            commands.append("the same with --reference xtb compares with GFN2-xTB")
        finish(files, *commands)


def _coordinate(torsion: str | None, distance: str | None) -> Coordinate:
    from geomatt.simulation.coordinates import Coordinate

    if (torsion is None) == (distance is None):
        raise GeomAttError("Give the coordinate to scan: --torsion A,B,C,D or --distance A,B.")
    if torsion is not None:
        return Coordinate("torsion", parse_numbers(torsion, "--torsion"))
    return Coordinate("distance", parse_numbers(str(distance), "--distance"))


def _reference(text: str, options: list[str], reading: dict[str, Any]) -> Callable[[Scan], ReferenceCurve]:
    """A function from a scan to its reference curve; errors in `text` are reported before the scan is run."""
    from geomatt.data import read
    from geomatt.simulation.scans import calculator_reference, data_reference, make_calculator

    if Path(text).exists():
        data = read(text, **reading, keys={"forces": "none"})
        return lambda found: data_reference(data, text, found.coordinate, found.structures[0])
    given = {k: _value(v) for k, v in parse_pairs(options, "--reference-option", "method=GFN1-xTB").items()}
    path, defaults = XTB if text == "xtb" else (text, {})
    if ":" not in path:
        raise GeomAttError(f"There is no file {text}, and it is not a calculator as module:Class, nor xtb.")
    calculator = make_calculator(path, {**defaults, **given})
    name = str(given.get("method", "GFN2-xTB")) if text == "xtb" else path

    def compute(found: Scan) -> ReferenceCurve:
        with progress_bar("reference", len(found.values)) as advance:
            return calculator_reference(calculator, name, found, progress=advance)

    return compute


def _value(text: str) -> Any:
    """A number, truth value or list as Python writes it; anything else is a string."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _print(found: Scan, references: list[ReferenceCurve], compared: list[dict[str, Any]], unit: str) -> None:
    import numpy as np

    factor, name = from_ev(unit), found.coordinate.name(found.structures[0])
    kind = "Relaxed" if found.relaxed else "Rigid"
    marks, lowest = dict(found.extrema()), found.energies.min()
    rows = []
    # All points of a short scan, the turning points of a long one.
    for p in range(len(found.values)) if len(found.values) <= MOST_ROWS else sorted(marks):
        value = found.values[p]
        others = [
            f"{factor * (np.interp(value, r.values, r.energies) - r.energies.min()):.3f}"
            if r.values[0] - 1e-6 <= value <= r.values[-1] + 1e-6
            else "–"
            for r in references
        ]
        end = _end(found, p)
        mark = end if end == NO_RESULT else f"{marks.get(p, '')} {end}"
        rows.append([f"{value:.4g}", f"{factor * (found.energies[p] - lowest):.3f}", *others, mark.strip()])
    title = f"{kind} scan of {found.coordinate.kind} {name}, {unit} above the lowest point"
    say(title, style="italic")
    output.print(table("", (found.coordinate.unit, "model", *(r.name for r in references), ""), rows))
    for numbers in compared:
        say(
            f"Against {numbers['name']}: RMS difference {factor * numbers['rms_eV']:.3f}, "
            f"largest {factor * numbers['largest_eV']:.3f}; highest point "
            f"{factor * numbers['barrier_model_eV']:.3f}, reference "
            f"{factor * numbers['barrier_reference_eV']:.3f} {unit}."
        )
    failed = [text for text in found.failures if text]
    if failed:
        warn(
            f"the relaxation of {len(failed)} of {len(found.values)} points led to no result "
            f"({failed[0]}). The model does not know these structures; their energies mean nothing."
        )
    unfinished = int((~found.converged).sum()) - len(failed)
    if unfinished:
        warn(f"{unfinished} points did not reach --fmax. Give more --steps.")


def _end(found: Scan, point: int) -> str:
    """What speaks against the energy of a point."""
    if found.failures and found.failures[point]:
        return NO_RESULT
    if not found.converged[point]:
        return "not converged"
    return "outside the data" if found.outside is not None and found.outside[point] else ""
