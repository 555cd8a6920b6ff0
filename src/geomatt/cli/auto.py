"""`geomatt auto`: from a molecule to a force field."""

from __future__ import annotations

from typing import Any

from geomatt.cli.console import finish, rate_bar, say
from geomatt.cli.generated import options_of, with_options
from geomatt.cli.options import Dask, Everything, Processes, open_pool, set_up_training
from geomatt.cli.sample import Molecule, starts_of
from geomatt.cli.train_display import live_progress
from geomatt.workflow.config import AutoConfig


@with_options(settings=options_of(AutoConfig))
def auto(
    molecule: Molecule,
    out: Everything,
    settings: dict[str, Any],
    workers: Processes = 1,
    dask: Dask = None,
) -> None:
    """Make a force field of a molecule: sample, check, train, test, run dynamics, report.

    Every stage is kept: after Ctrl-C or a crash the same command continues. The
    model in OUT/model is ready for the calculator and all other commands.
    """
    from geomatt.training import resolve
    from geomatt.workflow import auto as make
    from geomatt.workflow.report import report_text

    config = AutoConfig(**settings)
    starts, name = starts_of(molecule, config)
    set_up_training(resolve({"model": config.model, "network": config.network}))
    with open_pool(workers, dask) as pool:
        report = make(starts, config, out, workers=pool, watch=rate_bar, training=live_progress, name=name)
    say(report_text(report))
    finish({"report": out / "report.txt", "page": out / "report.html", "numbers": out / "report.json"})
