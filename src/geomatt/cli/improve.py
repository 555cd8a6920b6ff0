"""`geomatt improve`: label where a model is uncertain, and train it further."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from geomatt.cli.console import finish, output, rate_bar, table
from geomatt.cli.generated import options_of, with_options
from geomatt.cli.options import LABELLED, Dask, Everything, Processes, argument, open_pool
from geomatt.cli.train_display import live_progress
from geomatt.workflow.config import ImproveConfig


@with_options(settings=options_of(ImproveConfig), reading=LABELLED)
def improve(
    model: Annotated[Path, argument("A run, best with several members (geomatt train --members 3).")],
    data: Annotated[str, argument("The labelled data it was trained on.")],
    out: Everything,
    settings: dict[str, Any],
    reading: dict[str, Any],
    workers: Processes = 1,
    dask: Dask = None,
) -> None:
    """Improve a model: dynamics, labels where it is uncertain, further training.

    The labels come from the method the data was made with. A fifth of the new
    frames is never trained on and shows what a round has gained. Every stage is
    kept: after Ctrl-C the same command continues; more --rounds may be added.
    """
    from geomatt.data import read
    from geomatt.workflow import improve as run
    from geomatt.workflow.report import ROUND_HEADINGS, round_rows

    config, dataset = ImproveConfig(**settings), read(data, **reading)
    with open_pool(workers, dask) as pool:
        report = run(model, dataset, config, out, workers=pool, watch=rate_bar, training=live_progress)
    headings = [heading.replace(": ", "\n") for heading in ROUND_HEADINGS]
    title = "Force MAE (meV/Å) on frames that were not trained on"
    output.print(table(title, headings, round_rows(report["rounds"])))
    better = out / report["model"]
    files = {"model": better, "page": out / "report.html", "numbers": out / "report.json"}
    finish(files, f"geomatt evaluate {better} DATA")
