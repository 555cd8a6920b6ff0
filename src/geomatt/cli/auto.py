"""`geomatt auto`: from a molecule to a force field."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from geomatt.cli.console import note, rate_bar, say
from geomatt.cli.generated import with_config
from geomatt.cli.options import Dask, Processes, set_up
from geomatt.cli.sample import Molecule, stopped
from geomatt.workflow.config import AutoConfig


@with_config(AutoConfig)
def auto(
    molecule: Molecule,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for everything.")],
    settings: dict[str, Any],
    workers: Processes = 1,
    dask: Dask = None,
) -> None:
    """Make a force field of a molecule: sample, check, train, test, run dynamics, report.

    Every stage is kept: after Ctrl-C or a crash the same command continues. The
    model in OUT/model is ready for the calculator and all other commands.
    """
    from geomatt.cli.train_display import live_progress
    from geomatt.data.make import open_workers, read_molecule
    from geomatt.data.make.method import parse_arguments
    from geomatt.data.make.molecule import molecule_name
    from geomatt.training import resolve
    from geomatt.training.start import fresh_network
    from geomatt.workflow import auto as make

    parsed = {name: parse_arguments(settings.get(name, {})) for name in ("arguments", "network")}
    config = AutoConfig(**{**settings, **parsed})
    starts = read_molecule(
        molecule,
        conformers=config.conformers,
        seed=config.seed,
        charge=config.charge,
        multiplicity=config.multiplicity,
    )
    chosen = resolve({"model": config.model, "network": config.network})
    set_up(fresh_network(chosen, (1,), 0).engine(chosen.engine), chosen.device)
    try:
        with open_workers(workers, dask) as pool:
            report = make(
                starts,
                config,
                out,
                workers=pool,
                watch=rate_bar,
                training=live_progress,
                name=molecule_name(molecule, starts[0]),
            )
    except KeyboardInterrupt:
        stopped()
    from geomatt.workflow.report import report_text

    say(report_text(report))
    note(f"report: {out / 'report.txt'}\npage: {out / 'report.html'}\nnumbers: {out / 'report.json'}")
