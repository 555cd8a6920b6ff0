"""`geomatt bench`: timings against other packages and against the limits of the machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from geomatt.cli.console import console, output, progress_bar, say, table
from geomatt.cli.options import option

if TYPE_CHECKING:
    from geomatt.bench import BenchReport


def bench(
    model: Annotated[
        list[str] | None,
        option(
            "Network to measure, such as geomatt or pair:channels=64 (repeatable). By default geomatt and "
            "pair states in three sizes, each by some of the suites."
        ),
    ] = None,
    device: Annotated[str, option("Where to measure: cpu or cuda.")] = "cpu",
    suite: Annotated[
        str,
        option(
            "What to measure, separated by commas: train, infer, replicas, members, scaling, large, curves."
        ),
    ] = "train,infer,replicas,members,scaling,large",
    json_file: Annotated[Path | None, option("File for all numbers, raw timings included.", "--json")] = None,
    plot: Annotated[
        Path | None, option("Picture of the scaling (png, pdf, svg); of curves, NAME-curves.")
    ] = None,
    quick: Annotated[
        bool, option("Only test that everything runs: small networks, no targets.", "--quick")
    ] = False,
) -> None:
    r"""Time training and predictions against other packages in the same run, with targets and floors.

    Peers come from pip install 'geomatt\[bench]'. Ctrl-C keeps what was measured so far.
    """
    from geomatt.bench import BenchSettings, run_bench
    from geomatt.bench.plot import curves_plot, scaling_plot
    from geomatt.bench.settings import MODELS
    from geomatt.data import require_writable

    for path in (json_file, plot):
        if path is not None:
            require_writable(path)
    names = [name.strip() for name in suite.split(",") if name.strip()]
    settings = BenchSettings.of(device, quick, tuple(model or MODELS))
    result = run_bench(settings, names, stage=progress_bar)
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
            say(f"{kind}: {path}")
    if not result.complete:
        raise typer.Exit(130)


def _show(result: BenchReport) -> None:
    """Tables of all that was measured."""
    from geomatt.bench import words

    found = result.to_dict()
    if found["settings"]["quick"]:
        console.print("A quick run tests that everything works; its times mean little.")
    say(f"machine   {words.machine_line(found)}")
    say(f"ceilings  {words.ceilings(found)}")
    if found["rows"]:
        output.print(_rows(found["rows"]))
    for row in found["rows"]:
        said = [*map(_coloured, row["checks"]), *([row["note"]] if row["note"] else [])]
        if said:
            against = f"{row['what']}, {row['ours']['name']} against {row['baseline']['name']}"
            say(f"{against}: {'; '.join(said)}", markup=True)
    if found["exactness"]:
        rows = map(words.exactness, found["exactness"])
        output.print(table("Exactness of the engines", words.EXACTNESS, rows, left=words.EXACTNESS))
    if found["scaling"]:
        rows = map(words.scaling, found["scaling"])
        output.print(table("Energy and forces of random matter", words.SCALING, rows, left=words.SCALING))
    if found["curves"]:
        say(words.curves(found))
    if not found["settings"]["quick"]:
        say(f"targets   {words.targets(found)}")
    for note in found["notes"]:
        say(f"Note: {note}")


def _rows(rows: list[dict[str, Any]]) -> Table:
    """Each measurement above its baseline; kernels only where there are any."""
    from geomatt.bench import words

    extra = ["over floor", *(["kernels"] if any(row["ours"]["kernels"] for row in rows) else [])]
    made = Table("what", "time", "faster by", *extra, title="Times: median (quartiles)", show_lines=True)
    for row in rows:
        cells = words.row(row)
        times = f"{cells['measured']} {cells['time']}\n{cells['baseline']} {cells['its time']}"
        made.add_row(cells["what"], times, cells["faster by"], *(cells[name] for name in extra))
    return made


def _coloured(entry: dict[str, Any]) -> str:
    from geomatt.bench import words

    return f"[{'green' if entry['met'] else 'red'}]{words.check(entry)}[/]"
