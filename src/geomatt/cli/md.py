"""`geomatt md`: molecular dynamics."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from geomatt.cli import options
from geomatt.cli.console import bars, duration, finish, live_bar, note, output, say, table, warn
from geomatt.cli.generated import from_anywhere, options_of, with_flags, with_options
from geomatt.errors import GeomAttError
from geomatt.simulation.settings import FILES, MDSettings

if TYPE_CHECKING:
    from geomatt.model import AnyPotential
    from geomatt.simulation.md import MDProgress, MDReport

MOST_ROWS = 12  # replicas in the table
HEADINGS = (
    "replica", "ps", "mean K", "drift", "highest\nforce", "bonds\nchanged", "walls\nacted", "ended",
)  # fmt: skip
LARGE_DRIFT = 1.0  # meV/atom/ps, worth a warning; good models have less than a tenth


def _option(flag: str, text: str) -> Any:
    return typer.Option(flag, help=text, rich_help_panel=FILES)


@with_options(settings=options_of(MDSettings), reading=options.LENGTH_UNIT)
def md(
    settings: dict[str, Any],
    reading: dict[str, Any],
    model: options.OptionalModel = None,
    structure: Annotated[str | None, options.argument("A file with the structure to start from.")] = None,
    out: Annotated[
        Path | None, options.out_option("Folder of the run; STRUCTURE_md by default.", FILES)
    ] = None,
    resume: Annotated[
        bool, _option("--resume", "Continue the run in --out, bit by bit; longer with --time.")
    ] = False,
    checkpoint_every: Annotated[float, _option("--checkpoint-every", "Seconds between checkpoints.")] = 30.0,
    with_report: Annotated[
        bool, _option("--report", "Also write report.html: curves, trajectory, attention.")
    ] = False,
    frame: options.FrameNumber = 0,
    device: options.Device = None,
    dtype: options.Dtype = None,
) -> None:
    """Run molecular dynamics of a molecule, several replicas at once.

    Writes the trajectory with energies, forces and momenta, the numbers, a plot, and a
    file to continue from into --out. Ctrl-C saves; --resume continues exactly.

    The watchdog reports bonds that break, a temperature that runs away, atoms outside the
    ranges of the training data and a committee that disagrees, and saves such frames
    for labelling (to_label.extxyz).
    """
    from geomatt.simulation.inputs import refuse
    from geomatt.simulation.md import Saved, run_dynamics
    from geomatt.simulation.results import write_results

    if resume:
        if out is None and structure is None:
            raise GeomAttError("Name the folder of the run to continue with --out.")
        folder = out or options.default_folder(str(structure), "md")
        saved = Saved.read(folder)
        model, chosen = model or Path(saved.model), MDSettings(**{**saved.settings.to_dict(), **settings})
        start = saved.start if structure is None else options.read_structure(structure, frame, reading)
    else:
        if model is None or structure is None:
            raise GeomAttError(
                "Give a model and a structure, such as: geomatt md md17/ethanol:fast ethanol.xyz"
            )
        chosen, folder = MDSettings(**settings), out or options.default_folder(structure, "md")
        start = options.read_structure(structure, frame, reading)
    loaded = options.load_model(model, device, dtype)
    refuse(loaded, start)
    for message in (*loaded.doubts(start), *loaded.extrapolations([start])):
        warn(with_flags(message))
    replicas = f"{chosen.replicas} replicas of " if chosen.replicas > 1 else ""
    note(
        f"{replicas}{len(start)} atoms, {chosen.ensemble} at {chosen.temperature:g} K, "
        f"{1e-3 * chosen.steps * chosen.timestep:g} ps in steps of {chosen.timestep:g} fs, {loaded.device}; "
        f"output in {folder}"
    )
    with live_bar() as bar:

        def show(now: MDProgress) -> None:
            bar("dynamics", now.steps / now.total, _state(now, chosen))

        report = run_dynamics(
            loaded,
            start,
            chosen,
            folder,
            model=from_anywhere(model),
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
    from geomatt.data import read
    from geomatt.pages import dynamics_report
    from geomatt.pages.reports import REPORT

    path = _first_trajectory(report)
    frames = list(read(path, keys={"energy": "none", "forces": "none"})) if path.is_file() else []
    with bars() as tell:
        page = dynamics_report(report, potential, frames, warnings=alarms_in_words(report), progress=tell)
    return page.save(report.folder / REPORT)


def _first_trajectory(report: MDReport) -> Path:
    name = "trajectory_0" if report.settings.replicas > 1 else "trajectory"
    return report.folder / f"{name}.{report.settings.format}"


def _state(progress: MDProgress, settings: MDSettings) -> str:
    done, whole = (1e-3 * n * settings.timestep for n in (progress.steps, progress.total))
    lost = settings.replicas - progress.alive
    stopped = f", {lost} of {settings.replicas} stopped" if lost else ""
    left = duration((progress.total - progress.steps) / max(progress.rate, 1e-9))
    return f"{done:.2f} of {whole:g} ps, {speed(progress.rate, settings)}, {left} left{stopped}"


def speed(rate: float, settings: MDSettings) -> str:
    """Steps per second and nanoseconds per day, of one replica and of all."""
    each = rate * settings.timestep * 86400e-6
    total = f" ({each * settings.replicas:.3g} in all)" if settings.replicas > 1 else ""
    return f"{rate:.3g} steps/s, {each:.3g} ns/day{total}"


def _print(report: MDReport, files: dict[str, Path], model: Path) -> None:
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
        warn(text)
    name = "trajectory_*" if settings.replicas > 1 else "trajectory"
    files = {"trajectory": folder / f"{name}.{settings.format}", **files}
    if report.to_label:
        frames = "1 frame" if report.to_label == 1 else f"{report.to_label} frames"
        files[f"{frames} with an alarm, to be labelled"] = folder / TO_LABEL
    if report.signal:
        finish(files)
        note(f"Stopped; everything is saved. Continue with:\n  geomatt md --out {folder} --resume")
    elif outcome.intact.any():
        longer = f"geomatt md --out {folder} --resume --time {2 * settings.time:g}   # twice as long"
        end = _first_trajectory(report)
        finish(files, longer, f"geomatt relax {model} {end} --frame -1   # relax its last frame")
    elif report.to_label:
        labelled = folder / "labelled.extxyz"
        finish(files, f"geomatt label {folder / TO_LABEL} --out {labelled}   # then train on it, too")
    else:
        finish(files)


def _table(report: MDReport) -> Table:
    from geomatt.simulation.results import replica_cells

    rows = report.outcome.rows()
    caption = "Drift of the conserved energy in meV/atom/ps, force in eV/Å, walls in % of the steps."
    # The ones that failed come first if not all fit.
    order = sorted(range(len(rows)), key=lambda r: (not rows[r]["failure"], r))[:MOST_ROWS]
    if len(rows) > MOST_ROWS:
        left = len(rows) - MOST_ROWS
        caption += f"\n{left} more in the JSON file; {sum(not r['failure'] for r in rows)} not stopped."
    cells = replica_cells(report)
    shown = [[*cells[r][:-1], "stopped" if rows[r]["failure"] else cells[r][-1]] for r in sorted(order)]
    title = f"Dynamics, {report.settings.ensemble}"
    return table(title, HEADINGS, shown, left=("ended",), caption=caption)


def alarms_in_words(report: MDReport) -> list[str]:
    """The findings of the watchdog, in sentences."""
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
