"""Terminal output of a training run."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.live import Live
from rich.table import Table
from rich.text import Text

from geomatt.cli.console import console, note
from geomatt.cli.generated import with_flags
from geomatt.units import from_ev

if TYPE_CHECKING:
    from geomatt.data.structures import Dataset
    from geomatt.training import TrainProgress, TrainResult
    from geomatt.training.scratch import Comparison

BAR = 24  # characters
PLAIN_SECONDS = 10.0  # between lines where there is no terminal to redraw


def announce(dataset: Dataset) -> None:
    """Print size and units of the data, and warnings about its labels."""
    from geomatt.data.checks import check_labels
    from geomatt.data.mapped import excerpt

    origin = dataset.origin
    name = origin.get("path") or dataset.name or "the data"
    note(f"{len(dataset)} structures from {name}")
    if "energy_unit" in origin:
        known = origin.get("units_known", "as given")
        note(f"Units: energy {origin['energy_unit']}, length {origin.get('length_unit', 'Ang')} ({known})")
    looked_at = excerpt(dataset)
    if len(looked_at) < len(dataset):
        note(f"The data stays on disk; checks and statistics use {len(looked_at)} structures.")
        dataset = dataset.select(looked_at)
    warnings = ([origin["notes"]] if "notes" in origin else []) + list(check_labels(dataset))
    for warning in warnings:
        console.print("[bold yellow]Warning:[/]", end=" ")
        note(with_flags(warning), style="yellow")


@contextmanager
def live_progress() -> Iterator[Callable[[TrainProgress], None]]:
    """A callback that shows a bar with the latest errors; without a terminal, a line now and then."""
    if not console.is_terminal:
        yield _plain_lines()
        return
    with Live(console=console, transient=True, refresh_per_second=4) as live:

        def show(progress: TrainProgress) -> None:
            done = round(BAR * progress.fraction)
            first = f"{_where(progress)}  {'━' * done}{'─' * (BAR - done)}  {_left(progress)}"
            live.update(Text(f"{first}\n{_state(progress)}"))  # two lines: they fit 80 columns

        yield show


def _plain_lines() -> Callable[[TrainProgress], None]:
    last = 0.0

    def show(progress: TrainProgress) -> None:
        nonlocal last
        ends = progress.seconds_left == 0.0
        if progress.new_row and (ends or time.monotonic() - last >= PLAIN_SECONDS):
            last = time.monotonic()
            note("  ".join([_where(progress), _state(progress), _left(progress)]))

    return show


def _where(progress: TrainProgress) -> str:
    member = f"member {progress.member + 1}/{progress.members}  " if progress.members > 1 else ""
    return f"{member}epoch {progress.epoch}/{progress.epochs}"


def _state(progress: TrainProgress) -> str:
    row = progress.row
    if row is None:
        return ""
    factor, unit = from_ev(progress.unit), progress.unit
    parts = [f"loss {row.train_loss:.4g}"]
    if math.isfinite(row.val_loss):
        parts.append(f"val {row.val_loss:.4g}")
        parts.append(f"E {row.val_energy_mae * factor:.3f} {unit}")
        if math.isfinite(row.val_force_mae):
            parts.append(f"F {row.val_force_mae * factor:.3f} {unit}/Å")
    return "  ".join([*parts, f"lr {row.learning_rate:.1e}"])


def _left(progress: TrainProgress) -> str:
    return f"{duration(progress.seconds_left)} left"


def duration(seconds: float) -> str:
    """Seconds in words short enough for a progress line."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def peak_memory_text(results: Sequence[TrainResult]) -> str:
    """The most memory that a process used for training; empty where it is not known."""
    peaks = [result.potential.record.get("peak_memory", {}) for result in results]
    names = {"process": "Peak memory", "gpu": "GPU memory"}
    found = {name: max((peak.get(name, 0) for peak in peaks), default=0) for name in names}
    return ", ".join(f"{names[name]} {size / 1e9:.2f} GB" for name, size in found.items() if size)


def summary_table(results: Sequence[TrainResult], test: Sequence[tuple[float, float] | None]) -> Table:
    """Errors of the models in the user's unit, on validation and, where there are any, on test structures.

    `test` holds energy and force MAE of each model in eV; members get rows of mean and spread.
    """
    unit, factor = results[0].unit, from_ev(results[0].unit)
    table = Table(title=f"Mean absolute errors (energy in {unit}, forces in {unit}/Å)")
    table.add_column("model")
    for part in ("validation", "test") if any(test) else ("validation",):
        table.add_column(f"{part}\nenergy", justify="right")
        table.add_column(f"{part}\nforces", justify="right")
    table.add_column("best\nepoch", justify="right")
    rows = []
    for result, tested in zip(results, test, strict=True):
        values = [result.best_errors["energy_mae"], result.best_errors.get("force_mae", math.nan)]
        values += list(tested or (math.nan, math.nan)) if any(test) else []
        rows.append([v * factor for v in values])
        name = result.folder.name or str(result.folder)
        table.add_row(name, *map(_number, rows[-1]), str(result.best_epoch))
    if len(rows) > 1:
        columns = list(zip(*rows, strict=True))
        table.add_section()
        table.add_row("mean", *(_number(_mean(c)) for c in columns), "")
        table.add_row("± spread", *(_number(_deviation(c)) for c in columns), "")
    return table


def comparison_table(found: Comparison, unit: str) -> Table:
    """Force errors of a transfer beside those of a network from scratch and of zero forces."""
    table = Table(title=f"Did the transfer pay? Force MAE of validation frames ({unit}/Å)")
    for name, justify in (("model", "left"), ("epochs", "right"), ("forces", "right")):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    table.add_row("transferred", str(found.epochs), _number(found.transferred * from_ev(unit)))
    scratch = f"from scratch, recipe {found.recipe}"
    table.add_row(scratch, str(found.epochs), _number(found.from_scratch * from_ev(unit)))
    table.add_row("zero forces", "", _number(found.zero_forces * from_ev(unit)))
    return table


def _number(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.3f}"


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _deviation(values: Sequence[float]) -> float:
    mean = _mean(values)
    return math.sqrt(_mean([(v - mean) ** 2 for v in values]))
