"""`geomatt md`: molecular dynamics."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from geomatt.cli.console import PLAIN_SECONDS, console, note, output, say
from geomatt.cli.generated import with_config
from geomatt.cli.options import Device, Dtype, FrameNumber, LengthUnit, load_model, read_structure
from geomatt.errors import GeomAttError
from geomatt.simulation.settings import FILES, MDSettings

if TYPE_CHECKING:
    from geomatt.model import AnyPotential
    from geomatt.simulation.md import MDProgress, MDReport

MOST_ROWS = 12  # replicas in the table
LARGE_DRIFT = 1.0  # meV/atom/ps, worth a warning; good models have less than a tenth


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        epilog="Example: geomatt md md17/ethanol:fast ethanol.xyz --temperature 300 --time 10 --replicas 4"
    )(md)


@with_config(MDSettings)
def md(
    settings: dict[str, Any],
    model: Annotated[
        str | None,
        typer.Argument(
            help="A model file, the folder of a run, or a name of `geomatt models`.", show_default=False
        ),
    ] = None,
    structure: Annotated[
        str | None, typer.Argument(help="A file with the structure to start from.", show_default=False)
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="Folder of the run; STRUCTURE_md by default.",
            rich_help_panel=FILES,
            show_default=False,
        ),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Continue the run in --out, bit by bit; longer with --time.",
            rich_help_panel=FILES,
        ),
    ] = False,
    checkpoint_every: Annotated[
        float, typer.Option("--checkpoint-every", help="Seconds between checkpoints.", rich_help_panel=FILES)
    ] = 30.0,
    with_report: Annotated[
        bool,
        typer.Option(
            "--report", help="Also write report.html: curves, trajectory, attention.", rich_help_panel=FILES
        ),
    ] = False,
    frame: FrameNumber = 0,
    length_unit: LengthUnit = None,
    device: Device = None,
    dtype: Dtype = None,
) -> None:
    """Run molecular dynamics of a molecule, several replicas at once.

    Writes the trajectory with energies, forces and momenta, the numbers, a plot, and a
    file to continue from into --out. Ctrl-C saves; --resume continues exactly.

    The watchdog reports bonds that break, a temperature that runs away, atoms outside the
    ranges of the training data and a committee that disagrees, and saves such frames
    for labelling (to_label.extxyz).
    """
    from geomatt.simulation.checks import refuse
    from geomatt.simulation.md import Saved, run_dynamics
    from geomatt.simulation.md_results import write_results

    if resume:
        folder = _folder(out, structure, resume)
        saved = Saved.read(folder)
        model, chosen = model or saved.model, MDSettings(**{**saved.settings.to_dict(), **settings})
        start = saved.start if structure is None else read_structure(structure, frame, length_unit)
    else:
        if model is None or structure is None:
            raise GeomAttError(
                "Give a model and a structure, such as: geomatt md md17/ethanol:fast ethanol.xyz"
            )
        chosen, folder = MDSettings(**settings), _folder(out, structure, resume)
        start = read_structure(structure, frame, length_unit)
    loaded = load_model(Path(model), device, dtype)
    refuse(loaded, start)
    for message in (*loaded.doubts(start), *loaded.extrapolations([start])):
        note(f"Warning: {message}", style="yellow")
    name = str(Path(model).resolve()) if Path(model).exists() else model
    replicas = f"{chosen.replicas} replicas of " if chosen.replicas > 1 else ""
    note(
        f"{replicas}{len(start)} atoms, {chosen.ensemble} at {chosen.temperature:g} K, {chosen.time:g} ps in "
        f"steps of {chosen.timestep:g} fs, {loaded.device}; output in {folder}"
    )
    with _progress(chosen) as show:
        report = run_dynamics(
            loaded,
            start,
            chosen,
            folder,
            model=name,
            resume=resume,
            checkpoint_every=checkpoint_every,
            progress=show,
        )
    files = write_results(report, loaded)
    if with_report:
        files["report"] = _write_report(report, loaded)
    _print(report, files, model)
    if report.signal:
        raise typer.Exit(128 + report.signal)
    if not report.outcome.intact.any():
        raise typer.Exit(1)


def _write_report(report: MDReport, potential: AnyPotential) -> Path:
    from geomatt.cli.explain import progress_of_page
    from geomatt.data import read
    from geomatt.pages import dynamics_report
    from geomatt.pages.reports import REPORT

    path = _first_trajectory(report)
    frames = list(read(path, keys={"energy": "none", "forces": "none"})) if path.is_file() else []
    with progress_of_page() as tell:
        page = dynamics_report(report, potential, frames, warnings=alarms_in_words(report), progress=tell)
    return page.save(report.folder / REPORT)


def _first_trajectory(report: MDReport) -> Path:
    name = "trajectory_0" if report.settings.replicas > 1 else "trajectory"
    return report.folder / f"{name}.{report.settings.format}"


def _folder(out: Path | None, structure: str | None, resume: bool) -> Path:
    if out is None and structure is None:
        raise GeomAttError("Name the folder of the run to continue with --out.")
    return out or Path(f"{Path(str(structure)).name.partition('.')[0]}_md")


@contextmanager
def _progress(settings: MDSettings) -> Iterator[Callable[[MDProgress], None]]:
    """A callback that shows time, speed and what is left; without a terminal, a line now and then."""
    if not console.is_terminal:
        yield _plain_lines(settings)
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[state]}"))
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as bar:
        task = bar.add_task("dynamics", total=settings.steps, state="")

        def show(progress: MDProgress) -> None:
            bar.update(task, completed=progress.steps, state=_state(progress, settings))

        yield show


def _plain_lines(settings: MDSettings) -> Callable[[MDProgress], None]:
    last = time.monotonic()

    def show(progress: MDProgress) -> None:
        nonlocal last
        if time.monotonic() - last >= PLAIN_SECONDS:
            last = time.monotonic()
            note(_state(progress, settings))

    return show


def _state(progress: MDProgress, settings: MDSettings) -> str:
    done, whole = (1e-3 * n * settings.timestep for n in (progress.steps, progress.total))
    lost = settings.replicas - progress.alive
    stopped = f", {lost} of {settings.replicas} stopped" if lost else ""
    return f"{done:.2f} of {whole:g} ps, {speed(progress.rate, settings)}{stopped}"


def speed(rate: float, settings: MDSettings) -> str:
    """Steps per second and nanoseconds per day, of one replica and of all."""
    each = rate * settings.timestep * 86400e-6
    total = f" ({each * settings.replicas:.3g} in all)" if settings.replicas > 1 else ""
    return f"{rate:.3g} steps/s, {each:.3g} ns/day{total}"


def _print(report: MDReport, files: dict[str, Path], model: str) -> None:
    """The closing table, warnings and the next commands."""
    import numpy as np

    from geomatt.simulation.md import TO_LABEL

    outcome, settings, folder = report.outcome, report.settings, report.folder
    output.print(_table(report))
    if np.isfinite(outcome.mean_volume).any():
        pressure, volume = np.nanmean(outcome.mean_pressure), np.nanmean(outcome.mean_volume)
        say(f"Mean pressure {pressure:.0f} bar, mean volume {volume:.1f} Å³")
    say(f"{report.steps} steps, {report.seconds:.1f} s, {speed(report.rate, settings)}")
    for text in alarms_in_words(report):
        note(f"Warning: {text}", style="yellow")
    name = "trajectory_*" if settings.replicas > 1 else "trajectory"
    lines = [f"trajectory: {folder / name}.{settings.format}"]
    lines += [f"{what}: {path}" for what, path in files.items()]
    if report.to_label:
        lines.append(f"{report.to_label} frames with an alarm, to be labelled: {folder / TO_LABEL}")
    say("\n".join(lines))
    if report.signal:
        note(f"Stopped; everything is saved. Continue with:\n  geomatt md --out {folder} --resume")
        return
    longer = f"  geomatt md --out {folder} --resume --time {2 * settings.time:g}   # as long again"
    relax = f"  geomatt relax {model} {_first_trajectory(report)} --frame -1   # the minimum below its end"
    if outcome.intact.any():
        say(f"Next:\n{longer}\n{relax}")
    elif report.to_label:
        say(f"Next: label {folder / TO_LABEL} with your reference method, and train on it, too.")


def _table(report: MDReport) -> Any:
    from rich.table import Table

    rows = report.outcome.rows()
    table = Table(title=f"Dynamics, {report.settings.ensemble}", title_justify="left")
    for heading in ("replica", "ps", "mean K", "drift", "highest\nforce", "bonds\nchanged", "walls\nacted"):
        table.add_column(heading, justify="right")
    table.add_column("ended")
    table.caption = "Drift of the conserved energy in meV/atom/ps, force in eV/Å, walls in % of the steps."
    table.caption_justify = "left"
    # The ones that failed come first if not all fit.
    order = sorted(range(len(rows)), key=lambda r: (not rows[r]["failure"], r))[:MOST_ROWS]
    for r in sorted(order):
        row = rows[r]
        ended = "stopped" if row["failure"] else "complete" if report.finished else "interrupted"
        table.add_row(
            str(r),
            f"{row['survived_ps']:.3g}",
            f"{row['mean_temperature_K']:.1f}",
            f"{row['drift_meV_per_atom_ps']:+.4f}",
            f"{row['highest_force_eV_per_A']:.2f}",
            str(len(row["bonds_changed"])),
            f"{100 * row['wall_share']:.2f}",
            ended,
        )
    if len(rows) > MOST_ROWS:
        left = len(rows) - MOST_ROWS
        table.caption += f"\n{left} more in the JSON file; {sum(not r['failure'] for r in rows)} not stopped."
    return table


def alarms_in_words(report: MDReport) -> list[str]:
    """What the watchdog has seen, in sentences."""
    from geomatt.simulation.watchdog import OUTSIDE, REASONS, SPREAD

    found = []
    for r, row in enumerate(report.outcome.rows()):
        name = f"Replica {r}: " if report.settings.replicas > 1 else ""
        if row["failure"]:
            doubt = row["failure"] in (REASONS[OUTSIDE], REASONS[SPREAD])
            remedy = "" if doubt else "use a shorter --timestep or a lower --temperature, or "
            found.append(
                f"{name}{row['failure']} after {row['survived_ps']:.3f} ps, where it was stopped: "
                f"{remedy}train on frames like the one saved."
            )
        if row["survived_ps"] >= 1.0 and abs(row["drift_meV_per_atom_ps"]) > LARGE_DRIFT:
            found.append(
                f"{name}the conserved energy drifts by {row['drift_meV_per_atom_ps']:+.1f} meV/atom/ps: use "
                "a shorter --timestep, and --dtype float64 to see if rounding is the cause."
            )
        for bond, what, when in row["bonds_changed"][:5]:
            found.append(f"{name}the bond {bond} {what} at {1e-3 * when:.3f} ps.")
        for text, count in row["alarms"].items():
            if text != row["failure"]:
                found.append(f"{name}{text} in {count} of the observed frames.")
        for pair, share, worst in row["wall_pairs"][:1]:
            if share > 0.01:
                found.append(
                    f"{name}a wall acted on {pair} in {100 * share:.1f} % of the steps, up to {worst:.2f} Å "
                    "outside the training data: its distances are not the model's own."
                )
    return found[:20]
