"""`geomatt reproduce`: the paper's experiments, one command each."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from geomatt.cli.console import console, output, progress_bar
from geomatt.errors import GeomAttError
from geomatt.reproduce import NAMES, Settings

if TYPE_CHECKING:
    from geomatt.reproduce import Experiment
    from geomatt.reproduce.report import Section


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog="Example: geomatt reproduce shapes --quick")(reproduce)


def reproduce(
    name: Annotated[
        str,
        typer.Argument(help="table1, table2, table3, shapes, bonds, dna or theory; all for every one."),
    ] = "",
    device: Annotated[str, typer.Option("--device", help="cpu, cuda, cuda:1 ...")] = "cpu",
    quick: Annotated[
        bool, typer.Option("--quick", help="A smaller setting: minutes on two cores, labelled as such.")
    ] = False,
    data: Annotated[
        Path | None,
        typer.Option("--data", help="Folder with md17/, gfn2/ ...; without it, the download cache."),
    ] = None,
    out: Annotated[Path, typer.Option("--out", help="Folder for results, figures and report.")] = Path(
        "runs/reproduce"
    ),
    models: Annotated[
        Path | None, typer.Option("--models", help="Folder of trained models, for bonds: md17/aspirin ...")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of everything random.")] = 0,
    budget: Annotated[
        float | None,
        typer.Option("--budget", min=0, help="Seconds to train for; the next call goes on. 0: only report."),
    ] = None,
    part: Annotated[
        list[str] | None, typer.Option("--part", help="Only this part of the work (repeatable).")
    ] = None,
    pack: Annotated[
        Path | None, typer.Option("--pack", help="Then pack what is new under --out into PACK-1.tar ...")
    ] = None,
    unpack: Annotated[
        list[Path] | None, typer.Option("--unpack", help="First unpack such a file into --out (repeatable).")
    ] = None,
) -> None:
    """Repeat an experiment of the paper: a table beside the published numbers, figures, a result file.

    What was computed before with the same settings is not computed again, so a run that was broken off
    continues with the same command. --pack and --unpack carry results, models and checkpoints to another
    machine; without a NAME they are all that is done.
    """
    from geomatt.reproduce.packing import pack_results, unpack_results

    for file in unpack or []:
        console.print(f"{unpack_results(file, out)} files from {file} into {out}", highlight=False)
    try:
        if name:
            deadline = None if budget is None else time.monotonic() + budget
            settings = Settings(device, quick, data, out, seed, models, deadline, tuple(part or ()))
            _reproduce(name, settings)
        elif not (pack or unpack):
            raise GeomAttError(f"Which experiment? Choose from: {', '.join(NAMES)}, all.")
    finally:
        if pack is not None:
            for volume in pack_results(out, pack):
                console.print(f"packed {volume}", highlight=False, soft_wrap=True)


def _reproduce(name: str, settings: Settings) -> None:
    """Run one experiment, or all of them and write the report."""
    from geomatt.model.files import check_device
    from geomatt.reproduce import available, get
    from geomatt.reproduce.report import write_report

    check_device(settings.device)
    if settings.data_dir is not None and not settings.data_dir.is_dir():
        raise GeomAttError(f"There is no folder {settings.data_dir}.")
    quick = settings.quick
    if name != "all":
        _check_parts(get(name), settings)
        section = _run(get(name), settings)
        assert section.result is not None
        _show(section)
        output.print(
            f"result   {settings.result_file(name)}\nfigures  {settings.figures(name)}\n"
            f"next     geomatt reproduce all{' --quick' if quick else ''}",
            highlight=False,
            soft_wrap=True,
        )
        return
    sections = []
    for each in available():
        try:
            sections.append(_run(get(each), settings))
        except GeomAttError as error:  # one experiment without its data does not stop the others
            console.print(f"[bold red]{each}:[/] {error}", highlight=False, soft_wrap=True)
            sections.append(_absent(get(each), str(error)))
        else:
            _show(sections[-1])
    markdown, page = write_report(sections, settings.out)
    output.print(f"report  {page}\n        {markdown}", highlight=False, soft_wrap=True)
    if any(section.result is None for section in sections):
        raise typer.Exit(1)


def _check_parts(experiment: Experiment, settings: Settings) -> None:
    unknown = [part for part in settings.parts if part not in experiment.parts]
    if unknown:
        known = f"Its parts are: {', '.join(experiment.parts)}." if experiment.parts else "It has no parts."
        raise GeomAttError(f"{experiment.name} has no part {', '.join(unknown)}. {known}")


def _run(experiment: Experiment, settings: Settings) -> Section:
    """Run an experiment and draw its figures."""
    from geomatt.reproduce import run_experiment
    from geomatt.reproduce.report import Section

    console.print(f"[bold]{experiment.name}[/]: {experiment.description}", highlight=False, soft_wrap=True)
    result = run_experiment(experiment, settings, progress_bar)
    return Section(experiment, result, experiment.figures(result, settings.figures(experiment.name)))


def _absent(experiment: Experiment, why: str) -> Section:
    from geomatt.reproduce.report import Section

    return Section(experiment, None, missing=why)


def _show(section: Section) -> None:
    from geomatt.reproduce.report import QUICK

    assert section.result is not None
    for table in section.experiment.tables(section.result):
        output.print(table.rich())
    if section.result["quick"]:
        output.print(QUICK, style="yellow", soft_wrap=True)
