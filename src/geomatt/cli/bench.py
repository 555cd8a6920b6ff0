"""`geomatt bench`: how fast, against whom, and how far from the machine's limits."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from geomatt.cli.console import console, output, progress_bar

if TYPE_CHECKING:
    from geomatt.bench import Bench

EXAMPLE = "Example: geomatt bench --suite train,infer --json bench.json"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog=EXAMPLE)(bench)


def bench(
    device: Annotated[str, typer.Option("--device", help="Where to measure: cpu or cuda.")] = "cpu",
    suite: Annotated[
        str,
        typer.Option(
            "--suite", help="What to measure, separated by commas: train, infer, members, scaling, curves."
        ),
    ] = "train,infer,members,scaling",
    json_file: Annotated[
        Path | None, typer.Option("--json", help="File for all numbers, raw timings included.")
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option("--plot", help="Picture of the scaling (png, pdf, svg); of curves, NAME-curves."),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Only try that everything runs: a small network, no targets.")
    ] = False,
) -> None:
    r"""Time training and predictions against other packages in the same run, with targets and floors.

    Peers come from pip install 'geomatt\[bench]'. Ctrl-C keeps what was measured so far.
    """
    from geomatt.bench import Settings, run_bench
    from geomatt.bench.plot import curves_plot, scaling_plot
    from geomatt.data.files import require_writable

    for path in (json_file, plot):
        if path is not None:
            require_writable(path)
    names = [name.strip() for name in suite.split(",") if name.strip()]
    result = run_bench(Settings.of(device, quick), names, stage=progress_bar)
    if json_file is not None:
        result.save(json_file)
    _show(result)
    if plot is not None and result.scaling:
        scaling_plot([result.to_dict()], plot)
    curves = None if plot is None else plot.with_stem(f"{plot.stem}-curves")
    if curves is not None and result.curves:
        curves_plot(result.to_dict(), curves)
    for kind, path in (("numbers", json_file), ("picture", plot), ("picture", curves)):
        if path is not None and path.exists():
            output.print(f"{kind}: {path}", highlight=False, soft_wrap=True)
    if not result.complete:
        raise typer.Exit(130)


def _show(result: Bench) -> None:
    """Tables of all that was measured."""
    from geomatt.bench import words

    found = result.to_dict()
    if found["settings"]["quick"]:
        console.print("A quick run: it shows that everything works, and its times mean little.")
    output.print(f"machine   {words.machine(found)}", highlight=False, soft_wrap=True)
    output.print(f"ceilings  {words.ceilings(found)}", highlight=False, soft_wrap=True)
    if found["rows"]:
        output.print(_rows(found["rows"]))
    for row in found["rows"]:
        said = [*map(_coloured, row["checks"]), *([row["note"]] if row["note"] else [])]
        if said:
            against = f"{row['what']}, against {row['baseline']['name']}"
            output.print(f"{against}: {'; '.join(said)}", highlight=False, soft_wrap=True)
    if found["exactness"]:
        output.print(_exactness(found["exactness"]))
    if found["scaling"]:
        output.print(_scaling(found["scaling"]))
    if found["curves"]:
        output.print(words.curves(found), highlight=False, soft_wrap=True)
    if not found["settings"]["quick"]:
        output.print(f"targets   {words.targets(found)}", highlight=False)
    for note in found["notes"]:
        output.print(f"Note: {note}", highlight=False, soft_wrap=True)


def _rows(rows: list[dict[str, Any]]) -> Table:
    """Ours above the baseline; columns that nothing fills are left out."""
    from geomatt.bench import words

    counts = any(row["ours"]["kernels"] for row in rows)
    table = Table(title="Times: median (quartiles)", title_justify="left", show_lines=True)
    table.add_column("what")
    for heading in ("time", "faster by", "floor ×"):
        table.add_column(heading)
    if counts:
        table.add_column("kernels", justify="right")
    for row in rows:
        baseline = row["baseline"]
        cells = [
            row["what"],
            f"geomatt {words.timing(row['ours'])}\n{baseline['name']} {words.timing(baseline)}",
            words.ratio(row["ratio"]),
            words.floor(row["floor"]),
        ]
        cells += [f"{words.kernels(row['ours'])}\n{words.kernels(baseline)}"] if counts else []
        table.add_row(*cells)
    return table


def _coloured(entry: dict[str, Any]) -> str:
    from geomatt.bench import words

    return f"[{'green' if entry['met'] else 'red'}]{words.check(entry)}[/]"


def _exactness(entries: list[dict[str, Any]]) -> Table:
    from geomatt.bench import words

    table = Table(*words.EXACTNESS, "target", title="Exactness of the fast paths", title_justify="left")
    for e in entries:
        checks = e["checks"]
        met = all(c["met"] for c in checks)
        target = "–"
        if checks:
            colour, verdict = ("green", "met") if met else ("red", "missed")
            target = f"[{colour}]≤ {checks[0]['goal']:.0e}: {verdict}[/]"
        table.add_row(*words.exactness(e), target)
    return table


def _scaling(points: list[dict[str, Any]]) -> Table:
    from geomatt.bench import words

    table = Table(title="Energy and forces of random matter", title_justify="left")
    for heading in words.SCALING:
        table.add_column(heading, justify="left" if heading == "path" else "right")
    for point in points:
        table.add_row(*words.scaling(point))
    return table
