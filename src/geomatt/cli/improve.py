"""`geomatt improve`: label where a model is uncertain, and train it further."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from geomatt.cli.console import note, output, rate_bar, say
from geomatt.cli.generated import with_config
from geomatt.cli.options import Dask, EnergyUnit, ForceUnit, Key, LengthUnit, Processes, read_data
from geomatt.cli.sample import stopped
from geomatt.workflow.config import ImproveConfig


@with_config(ImproveConfig)
def improve(
    model: Annotated[
        Path, typer.Argument(help="A run, best with several members (geomatt train --members 3).")
    ],
    data: Annotated[str, typer.Argument(help="The labelled data it was trained on.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for everything.")],
    settings: dict[str, Any],
    workers: Processes = 1,
    dask: Dask = None,
    energy_unit: EnergyUnit = None,
    length_unit: LengthUnit = None,
    force_unit: ForceUnit = None,
    keys: Key = None,
) -> None:
    """Improve a model: dynamics, labels where it is uncertain, further training.

    The labels come from the method the data was made with. A fifth of the new
    frames is never trained on and shows what a round has gained. Every stage is
    kept: after Ctrl-C the same command continues; more --rounds may be added.
    """
    from geomatt.cli.train_display import live_progress
    from geomatt.data.make import open_workers
    from geomatt.data.make.method import parse_arguments
    from geomatt.workflow import improve as run

    config = ImproveConfig(**{**settings, "arguments": parse_arguments(settings.get("arguments", {}))})
    dataset = read_data(data, energy_unit, length_unit, keys, force_unit)
    try:
        with open_workers(workers, dask) as pool:
            report = run(model, dataset, config, out, workers=pool, watch=rate_bar, training=live_progress)
    except KeyboardInterrupt:
        stopped()
    output.print(round_table(report))
    better = out / report["model"]
    say(f"model: {better}\npage: {out / 'report.html'}\nnumbers: {out / 'report.json'}")
    note(f"Next:\n  geomatt evaluate {better} DATA")


def round_table(report: dict[str, Any]) -> Table:
    """Errors before and after each round."""
    table = Table(title="Force MAE (meV/Å) on frames that were not trained on")
    for heading in ("round", "labels", "new frames\nbefore", "after", "earlier frames\nbefore", "after"):
        table.add_column(heading, justify="right")
    for number, row in enumerate(report["rounds"], 1):
        cells = []
        for group in ("new frames", "earlier frames"):
            found = row.get(group)
            for when in ("before", "after"):
                cells.append(f"{1000 * found[when]['forces_mae_eV_per_A']:.1f}" if found else "–")
        table.add_row(str(number), str(row["labelled"]), *cells)
    return table
