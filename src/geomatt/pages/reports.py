"""Reports of a training run and of an evaluation, and the parts they share with others."""

from __future__ import annotations

import csv
import math
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from geomatt.analysis.controls import UNTRAINED
from geomatt.data.checks import check_labels
from geomatt.data.dataset import Dataset
from geomatt.data.mapped import excerpt
from geomatt.data.splits import Split
from geomatt.data.structures import Structure
from geomatt.errors import GeomAttError
from geomatt.evaluation import EvaluationResult
from geomatt.model import AnyPotential
from geomatt.pages.error_blocks import error_blocks, frame_errors
from geomatt.pages.explorer import Progress, describe, explorer_block, has_attention
from geomatt.pages.page import Block, Page, chart, charts, facts, heading, next_steps, notes, text_block
from geomatt.training import TrainResult
from geomatt.training.folder import HISTORY
from geomatt.units import from_ev

REPORT = "report.html"
EFFECTS, MOST_ATOMS = 60, 60  # of the attention of a typical frame: enough for a first look
MOST_EPOCHS = 1000  # of a curve
MD_STEPS, MD_STEP_FS, MD_TEMPERATURE = 200, 0.5, 300.0


def run_report(
    result: TrainResult,
    dataset: Dataset,
    split: Split,
    tested: EvaluationResult | None,
    *,
    commands: Sequence[str] = (),
    dynamics: bool = True,
    progress: Progress | None = None,
) -> Page:
    """The page of a run: its data, curves, errors, data checks, attention and a short simulation.

    `tested` are the errors on the test frames, if there are any; `commands` are shown as what to run next.
    """
    potential, unit = result.potential, result.unit
    settings = potential.record.get("settings", {})
    blocks: list[Block] = [facts(_facts(result, split))]
    blocks += learning_curves({"run": result.folder / HISTORY}, unit, settings)
    if tested is not None:
        blocks.append(heading(f"Errors on {len(tested.data)} test frames"))
        blocks += error_blocks(tested, dataset.select(excerpt(dataset, split.train)))
    looked_at = excerpt(dataset)
    blocks += data_checks(dataset if len(looked_at) == len(dataset) else dataset.select(looked_at))
    typical = typical_frame(dataset, split)
    attention, arrays = attention_blocks(potential, typical, unit, progress)
    blocks += attention
    if dynamics:
        blocks += _dynamics(potential, typical, progress)
    blocks += next_steps(commands)
    name = potential.record.get("data", {}).get("name") or "unnamed data"
    return Page(f"Training run: {name}", describe(potential), blocks, arrays)


def evaluation_report(
    potential: AnyPotential, tested: EvaluationResult, progress: Progress | None = None
) -> Page:
    """The errors of a model on data, and its attention in a frame with a typical error."""
    rows = [[name.replace("_", " "), _words(value)] for name, value in tested.provenance.items() if value]
    errors = frame_errors(tested)
    typical = 0 if errors is None else int(np.argsort(errors, kind="stable")[len(errors) // 2])
    attention, arrays = attention_blocks(potential, tested.data[typical], tested.unit, progress)
    blocks: list[Block] = [
        *error_blocks(tested),
        *data_checks(tested.data),
        *attention,
        heading("Where the numbers come from"),
        facts(rows),
    ]
    name = tested.data.name or "unnamed data"
    return Page(f"Errors on {name}, {len(tested.data)} frames", describe(potential), blocks, arrays)


def _words(value: Any) -> str:
    if isinstance(value, Mapping):
        return "; ".join(f"{name.replace('_', ' ')} {each}" for name, each in value.items() if each)
    return str(value)


def attention_blocks(
    potential: AnyPotential, structure: Structure, unit: str, progress: Progress | None
) -> tuple[list[Block], dict[str, np.ndarray]]:
    """An explorer of one frame, if the network has attention."""
    if len(structure) < 2 or not has_attention(potential, structure):
        return [], {}
    few = EFFECTS if len(structure) <= MOST_ATOMS else 0
    block, arrays = explorer_block(
        potential, [structure], effects=few, untrained=UNTRAINED if few else 0, unit=unit, progress=progress
    )
    block.pop("notes")
    return [heading("Attention of a typical frame"), block], arrays


def _facts(result: TrainResult, split: Split) -> list[list[str]]:
    record, factor = result.potential.record, from_ev(result.unit)
    data, settings = record.get("data", {}), record.get("settings", {})
    best = [
        f"{label} {factor * result.best_errors[name]:.4g} {unit}"
        for name, label, unit in (
            ("energy_mae", "energy", result.unit),
            ("force_mae", "forces", f"{result.unit}/Å"),
        )
        if math.isfinite(result.best_errors.get(name, math.nan))
    ]
    about = {
        "data": f"{data.get('name') or 'unnamed'}, {data.get('structures')} structures",
        "split": f"{split.kind}: {len(split.train)} to train, {len(split.validation)} to validate, "
        f"{len(split.test)} to test",
        "network": f"{settings.get('model')}, recipe {settings.get('recipe')}, seed {record.get('seed')}",
        "training": f"{result.epochs} epochs in {result.seconds:.0f} s ({result.finished}); model of "
        f"epoch {result.best_epoch}",
        "validation": f"MAE: {', '.join(best)}",
        "machine": str(record.get("hardware")),
        "peak memory": ", ".join(
            f"{size / 1e9:.2f} GB{' of the GPU' * (name == 'gpu')}"
            for name, size in record.get("peak_memory", {}).items()
        ),
        "versions": f"geomatt {record.get('geomatt')}, torch {record.get('torch')}",
        "data hash": str(data.get("fingerprint")),
    }
    return [[name, text] for name, text in about.items() if text]


def curve_charts(histories: Mapping[str, Path], unit: str) -> list[dict[str, Any]]:
    """Learning curves of runs by name, one chart for each quantity; several runs with validation alone."""
    rows = {name: _history(path) for name, path in histories.items()}
    factor = from_ev(unit)
    panels = (
        ("loss", "loss (normalised units)", 1.0, ""),
        ("energy_mae", f"energy MAE ({unit})", factor, "_eV"),
        ("force_mae", f"force MAE ({unit}/Å)", factor, "_eV"),
    )
    parts = {"train": "training", "val": "validation"} if len(rows) == 1 else {"val": ""}
    items = []
    for column, label, scale, suffix in panels:
        series = []
        for name, lines in rows.items():
            for part, words in parts.items():
                points = [
                    (int(r["epoch"]), float(f"{scale * float(value):.5g}"))
                    for r in lines
                    if (value := r.get(f"{part}_{column}{suffix}"))
                ]
                if points:
                    x, y = zip(*points, strict=True)
                    series.append({"label": words or name, "x": x, "y": y})
        if series:
            items.append(chart(label, series, "epoch", label, logY=True))
    return items


def _history(path: Path) -> list[dict[str, str]]:
    if not path.is_file():
        return []
    with path.open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    return rows[:: max(1, -(-len(rows) // MOST_EPOCHS))]


def averaging(settings: Mapping[str, Any]) -> str:
    """Which curves use averaged weights, in words."""
    if decay := settings.get("ema_decay"):
        return (
            f"validation uses the moving average of the weights (decay {decay:g} per step), training the "
            "weights of each step"
        )
    return "both use the weights as they are"


def learning_curves(histories: Mapping[str, Path], unit: str, settings: Mapping[str, Any]) -> list[Block]:
    """The curves of runs by name, and which weights they use; nothing without a history."""
    items = curve_charts(histories, unit)
    errors = "Training errors are means over an epoch, while the weights change"
    text = f"{errors if len(histories) == 1 else 'Errors on validation frames'}; {averaging(settings)}."
    return [heading("Learning curves"), *charts(items), text_block(text)] if items else []


def data_checks(dataset: Dataset) -> list[Block]:
    """The results of the checks of labels."""
    fine = [text_block("The checks of the labels found nothing unusual.")]
    return [heading("Checks of the data"), *(notes(check_labels(dataset)) or fine)]


def typical_frame(dataset: Dataset, split: Split) -> Structure:
    """The frame of median energy among the validation frames."""
    if dataset.energies is None:
        return dataset[int(split.validation[0])]
    order = np.argsort(dataset.energies[split.validation], kind="stable")
    return dataset[int(split.validation[order[len(order) // 2]])]


def _dynamics(potential: AnyPotential, structure: Structure, progress: Progress | None) -> list[Block]:
    """A short simulation at constant energy; whatever goes wrong in it is a finding, not an error."""
    try:
        from ase import Atoms

        from geomatt.simulation import GeomAttCalculator, run_md
    except (ImportError, GeomAttError):
        return []
    done = 0

    def advance(steps: int) -> None:
        nonlocal done
        done += steps
        if progress is not None:
            progress("molecular dynamics", done, MD_STEPS)

    atoms = Atoms(structure.numbers, structure.positions, cell=structure.cell, pbc=structure.pbc)
    title = heading("A short simulation at constant energy")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # leaving the data is what the simulation is to show
            found = run_md(
                atoms,
                GeomAttCalculator(potential),
                steps=MD_STEPS,
                timestep_fs=MD_STEP_FS,
                temperature_K=MD_TEMPERATURE,
                ensemble="nve",
                progress=advance,
            )
    except GeomAttError as error:
        return [title, *notes([str(error)])]
    energy = 1000.0 * (found.total_energy - found.total_energy[0]) / len(atoms)
    series = [{"x": found.time_fs, "y": np.round(energy, 6)}]
    text = (
        f"{MD_STEPS} steps of {MD_STEP_FS:g} fs from a frame of the data, started at {MD_TEMPERATURE:g} K: "
        f"the total energy drifts by {1000 * found.drift:.3g} meV per atom and ps, mean temperature "
        f"{found.temperature_K.mean():.0f} K."
    )
    drawn = chart("Total energy", series, "time (fs)", "total energy − start (meV per atom)")
    return [title, *charts([drawn]), text_block(text)]
