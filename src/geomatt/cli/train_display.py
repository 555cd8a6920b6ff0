"""Terminal output of a training run."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
from rich.table import Table

from geomatt.cli.console import console, count, duration, live_bar, note, number, table, warn
from geomatt.cli.generated import with_flags
from geomatt.units import from_ev

if TYPE_CHECKING:
    from geomatt.data.dataset import Dataset
    from geomatt.evaluation import EvaluationResult
    from geomatt.training import TrainProgress, TrainResult
    from geomatt.training.scratch import Comparison

FINISHING = "error bars and, where a model has them, bounds and a fitted zero of the energy"  # a training


def announce(dataset: Dataset) -> None:
    """Print size and units of the data, and warnings about its labels."""
    from geomatt.data.checks import check_labels
    from geomatt.data.mapped import excerpt

    origin = dataset.origin
    name = origin.get("path") or dataset.name or "the data"
    note(f"{count(len(dataset), 'structure')} from {name}")
    if "energy_unit" in origin:
        known = origin.get("units_known", "as given")
        note(f"Units: energy {origin['energy_unit']}, length {origin.get('length_unit', 'Ang')} ({known})")
    looked_at = excerpt(dataset)
    if len(looked_at) < len(dataset):
        note(f"The data stays on disk; checks and statistics use {len(looked_at)} structures.")
        dataset = dataset.select(looked_at)
    for warning in [*([origin["notes"]] if "notes" in origin else []), *check_labels(dataset)]:
        warn(with_flags(warning))


@contextmanager
def live_progress() -> Iterator[Callable[[TrainProgress], None]]:
    """A callback that shows a bar with the latest errors; without a terminal, a line now and then."""
    told = False
    with live_bar(at_once=True) as bar:

        def show(progress: TrainProgress) -> None:
            nonlocal told
            if console.is_terminal or progress.new_row:
                left = f"{duration(progress.seconds_left)} left"
                ends = progress.seconds_left == 0.0
                bar(_where(progress), progress.fraction, left, more=_state(progress), last=ends)
                if ends and not told:  # once for all members
                    told = True
                    note(f"Adding {FINISHING}, from the training structures.")

        yield show


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


def peak_memory_text(results: Sequence[TrainResult]) -> str:
    """The most memory that a process used for training; empty where it is not known."""
    peaks = [result.potential.record.get("peak_memory", {}) for result in results]
    names = {"process": "Peak memory", "gpu": "GPU memory"}
    found = {name: max((peak.get(name, 0) for peak in peaks), default=0) for name in names}
    return ", ".join(f"{names[name]} {size / 1e9:.2f} GB" for name, size in found.items() if size)


def summary_table(results: Sequence[TrainResult], tested: Sequence[EvaluationResult | None]) -> Table:
    """Errors of the models in the user's unit, on validation and, where there are any, on test structures.

    Members get rows of mean and spread.
    """
    unit, factor = results[0].unit, from_ev(results[0].unit)
    parts = ("validation", "test") if any(tested) else ("validation",)
    stress = any(test is not None and test.overall.stress_mae is not None for test in tested)
    headings = [
        "model",
        *(f"{part}\n{what}" for part in parts for what in ("energy", "forces")),
        *(["test\nstress"] if stress else []),
        "best\nepoch",
    ]
    title = f"Mean absolute errors (energy in {unit}, forces in {unit}/Å{', stress in eV/Å³' * stress})"
    made = table(title, headings, left=("model",))
    digits = [".3f"] * (2 * len(parts)) + ["#.3g"]  # of a stress

    def cells(values: Sequence[float]) -> list[str]:
        return [number(value, form) for value, form in zip(values, digits, strict=False)]

    errors = []
    for result, test in zip(results, tested, strict=True):
        values = [result.best_errors["energy_mae"], result.best_errors.get("force_mae")]
        if len(parts) > 1:
            values += [None, None] if test is None else [test.overall.energy_mae, test.overall.forces_mae]
        errors.append([math.nan if v is None else factor * v for v in values])
        if stress:
            found = None if test is None else test.overall.stress_mae
            errors[-1].append(math.nan if found is None else found)
        made.add_row(result.folder.name or str(result.folder), *cells(errors[-1]), str(result.best_epoch))
    if len(results) > 1:
        made.add_section()
        made.add_row("mean", *cells(np.mean(errors, axis=0)), "")
        made.add_row("± spread", *cells(np.std(errors, axis=0)), "")
    return made


def comparison_table(found: Comparison, unit: str) -> Table:
    """Force errors of a transfer beside those of a network from scratch and of zero forces."""
    factor = from_ev(unit)
    rows = [
        ["transferred", str(found.epochs), number(factor * found.transferred)],
        [f"from scratch, recipe {found.recipe}", str(found.epochs), number(factor * found.from_scratch)],
        ["zero forces", "", number(factor * found.zero_forces)],
    ]
    title = f"Transfer and training from scratch: force MAE of validation frames ({unit}/Å)"
    return table(title, ("model", "epochs", "forces"), rows, left=("model",))
