"""`geomatt reproduce`: the paper's experiments, one command each."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from geomatt.cli.console import note, output, progress_bar, say
from geomatt.cli.generated import with_flags
from geomatt.cli.options import Dask, Processes, argument, open_pool, option, out_option
from geomatt.errors import GeomAttError
from geomatt.reproduce import NAMES, ExperimentSettings

if TYPE_CHECKING:
    from geomatt.reproduce import Experiment
    from geomatt.reproduce.report import Section


def reproduce(
    name: Annotated[str, argument(f"{', '.join(NAMES)}; or all of them: all.")] = "",
    device: Annotated[str, option("cpu, cuda, cuda:1 ...")] = "cpu",
    quick: Annotated[
        bool, option("A smaller setting: minutes on two cores, labelled as such.", "--quick")
    ] = False,
    data: Annotated[
        Path | None, option("Folder with md17/, gfn2/ ...; the download cache by default.")
    ] = None,
    out: Annotated[Path, out_option("Folder for results, figures and report.")] = Path("runs/reproduce"),
    models: Annotated[
        Path | None,
        option("Folder of trained models for bonds (md17/aspirin ...); those shipped by default."),
    ] = None,
    seed: Annotated[int, option("Seed of all random numbers.", min=0)] = 0,
    budget: Annotated[
        float | None, option("Stop after so many seconds; the next call continues. 0: only report.", min=0)
    ] = None,
    part: Annotated[list[str] | None, option("Only this part of the work (repeatable).")] = None,
    figures: Annotated[Path | None, option("Folder for the figures as PDF and SVG too.")] = None,
    workers: Processes = 1,
    dask: Dask = None,
) -> None:
    """Repeat an experiment of the paper: tables with the published numbers, figures, a result file.

    Finished work is not computed again with the same settings, so an interrupted run continues with the same
    command; copy the folder --out to continue on another machine.

    With --workers or --dask the models of table1, table2, table3, pair, ablation, learning and dna
    (molecules, folds, seeds) are trained by other processes. They write into --out, which several machines
    must share.
    """
    if not name:
        raise GeomAttError(f"Which experiment? Choose from: {', '.join(NAMES)}, all.")
    deadline = None if budget is None else time.monotonic() + budget
    settings = ExperimentSettings(device, quick, data, out, seed, models, deadline, tuple(part or ()))
    if workers == 1 and dask is None:
        _reproduce(name, settings, figures)
        return
    with open_pool(workers, dask) as pool:
        _reproduce(name, replace(settings, workers=pool), figures)


def _reproduce(name: str, settings: ExperimentSettings, vector: Path | None) -> None:
    """Run one experiment, or all of them and write the report."""
    from geomatt.data import make_folder
    from geomatt.model import check_device
    from geomatt.reproduce import get
    from geomatt.reproduce.report import Section, write_report

    check_device(settings.device)
    if settings.data is not None and not settings.data.is_dir():
        raise GeomAttError(f"There is no folder {settings.data}.")
    if vector is not None:
        make_folder(vector)
    if name != "all":
        _check_parts(get(name), settings)
        _show(_run(get(name), settings, vector))
        say(
            f"result   {settings.result_file(name)}\nfigures  {settings.figures(name)}\n"
            f"next     geomatt reproduce all{' --quick' if settings.quick else ''}"
        )
        return
    sections = []
    for each in NAMES:
        try:
            sections.append(_run(get(each), settings, vector))
        except GeomAttError as error:  # missing data for one experiment do not stop the others
            message = with_flags(str(error))
            note(f"[bold red]{each}:[/] {escape(message)}", markup=True)
            sections.append(Section(get(each), None, missing=message))
        else:
            _show(sections[-1])
    markdown, page = write_report(sections, settings.out)
    say(f"report  {page}\n        {markdown}")
    if any(section.result is None for section in sections):
        raise typer.Exit(1)


def _check_parts(experiment: Experiment, settings: ExperimentSettings) -> None:
    unknown = [part for part in settings.parts if part not in experiment.parts]
    if unknown:
        known = f"Its parts are: {', '.join(experiment.parts)}." if experiment.parts else "It has no parts."
        raise GeomAttError(f"{experiment.name} has no part {', '.join(unknown)}. {known}")


def _run(experiment: Experiment, settings: ExperimentSettings, vector: Path | None) -> Section:
    """Run an experiment and draw its figures, with `vector` into that folder as PDF and SVG too."""
    from geomatt.reproduce import draw_figures, run_experiment
    from geomatt.reproduce.report import Section

    note(f"[bold]{experiment.name}[/]: {experiment.description}", markup=True)
    result = run_experiment(experiment, settings, progress_bar)
    if vector is not None:
        draw_figures(experiment, result, vector, ("pdf", "svg"))
    return Section(experiment, result, draw_figures(experiment, result, settings.figures(experiment.name)))


def _show(section: Section) -> None:
    """The tables of a section, its summary, and whether it is quick."""
    from geomatt.reproduce.report import QUICK, plain_summary

    assert section.result is not None
    for table in section.experiment.tables(section.result):
        output.print(table.rich())
    if summary := plain_summary(section.experiment, section.result):
        output.print(f"\n{summary}\n", highlight=False, markup=False)
    if section.result["quick"]:
        say(QUICK, style="yellow")
