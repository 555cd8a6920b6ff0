"""Models of the C-G dimer: what is trained, how, and what is measured of each."""

from __future__ import annotations

import csv
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from geomatt.data import Dataset, Split
from geomatt.evaluation import evaluate
from geomatt.model import load
from geomatt.reproduce.budget import CHECKPOINT, train_jobs
from geomatt.reproduce.dna_attention import score
from geomatt.reproduce.frame import ExperimentSettings, Pieces, ProgressBar, provenance
from geomatt.reproduce.md17 import UNIT, WEIGHTING
from geomatt.training import Job, TrainConfig, resolve

DATA = "gfn2/cg-cg"
RECIPES = ("paper", "fast")
SPLITS = {"random": "random frames", "segments": "a trajectory never seen"}


@dataclass(frozen=True)
class DnaSize:
    """How large the experiment is."""

    train: int
    validation: int
    test: int
    batch: int
    epochs: Mapping[str, int]
    scored: int  # frames whose attention is scored
    untrained: int = 20  # networks with random weights, as a control
    network: Mapping[str, Any] = field(default_factory=dict)  # settings other than the paper's
    seeds: int = 3  # of the weights, for models trained on random frames


# 15,000 frames as in the paper: of seven segments five train, one validates, one tests.
FULL = DnaSize(12_500, 2_500, 2_500, 32, {"paper": 1000, "fast": 60}, 500)
QUICK = DnaSize(24, 8, 16, 8, {"paper": 2, "fast": 2}, 8, untrained=3, seeds=1)


@dataclass(frozen=True)
class DnaModel:
    """One model to train."""

    recipe: str
    split: str = "random"
    seed: int = 0

    @property
    def piece(self) -> str:
        return f"{self.split}-{self.recipe}" + f"-seed{self.seed}" * bool(self.seed)

    @property
    def folder(self) -> str:
        return f"{self.recipe}-{self.split}" + f"-seed{self.seed}" * bool(self.seed)


def plan(seeds: int) -> dict[str, list[DnaModel]]:
    """The models of each part; those of a part are trained side by side."""
    first = {recipe: [DnaModel(recipe, split) for split in SPLITS] for recipe in RECIPES}
    again = {f"{r}-seeds": [DnaModel(r, seed=s) for s in range(1, seeds)] for r in RECIPES}
    return {**first, **again}


def trained(
    settings: ExperimentSettings,
    progress: ProgressBar,
    pieces: Pieces,
    part: str,
    jobs: Mapping[DnaModel, tuple[Job, Mapping[str, Any]]],
    size: DnaSize,
) -> dict[DnaModel, Any]:
    """The numbers of the models of a part, after training them as far as the deadline allows.

    None for a model that has not been trained at all.
    """
    found = {model: pieces.find(model.piece, inputs) for model, (_, inputs) in jobs.items()}
    finished = all(v and v["epochs"] >= jobs[model][0].config.epochs for model, v in found.items())
    if finished or not settings.wants(part) or settings.out_of_time:
        return found
    title = f"dna, {part}, {len(jobs)} models"
    ended = train_jobs(settings, progress, title, [job for job, _ in jobs.values()]) is not None
    for model, (job, inputs) in jobs.items():
        if (job.folder / "model.safetensors").is_file():
            value, seconds = _measure(settings, progress, job, size, len(jobs))
            found[model] = pieces.put(model.piece, inputs, value, provenance(settings, seconds))
        if ended:
            (job.folder / CHECKPOINT).unlink(missing_ok=True)
    return found


def segment_split(segments: np.ndarray, train: int, validation: int, test: int) -> Split:
    """Whole trajectories: the last tests, the one before it validates, the others train, evenly thinned."""
    names = np.unique(segments)
    parts = (np.isin(segments, names[:-2]), segments == names[-2], segments == names[-1])
    chosen = []
    for mask, size in zip(parts, (train, validation, test), strict=True):
        rows = np.flatnonzero(mask)
        chosen.append(rows[np.linspace(0, len(rows) - 1, min(size, len(rows))).astype(int)])
    return Split(chosen[0], chosen[1], chosen[2], "segments")


def segments(dataset: Dataset) -> np.ndarray:
    """The number of the independent trajectory of each frame; seven equal parts if the file does not say."""
    path = Path(dataset.origin["path"])
    if path.is_file():
        with np.load(path, allow_pickle=False) as file:
            if "segment" in file.files:
                return np.asarray(file["segment"], dtype=np.int64)
    return np.arange(len(dataset)) * 7 // len(dataset)


def dna_config(
    settings: ExperimentSettings, size: DnaSize, recipe: str, data: str, seed: int = 0
) -> TrainConfig:
    """All settings of a model; `seed` counts from that of the experiment."""
    given = {
        "model": "geomatt",
        "data": data,
        "recipe": recipe,
        "epochs": size.epochs[recipe],
        "batch": size.batch,
        "weighting": WEIGHTING[recipe],
        "patience": 0,
        "seed": settings.seed + seed,
        "device": settings.device,
        "report_unit": UNIT,
        "network": dict(size.network),
    }
    return resolve(given)


def dna_inputs(config: TrainConfig, about: Mapping[str, Any], split: str, size: DnaSize) -> dict[str, Any]:
    """Everything the numbers of a model depend on, except how far its training has come."""
    settings = config.to_dict()
    settings.pop("device")
    sizes = [size.train, size.validation, size.test, size.scored]
    return {"settings": settings, "data": about["fingerprint"], "split": split, "sizes": sizes}


def control_inputs(config: TrainConfig, about: Mapping[str, Any], size: DnaSize) -> dict[str, Any]:
    """Everything the controls depend on; `config` is that of the paper recipe."""
    return {**dna_inputs(config, about, "random", size), "untrained": size.untrained}


def scored_frames(dataset: Dataset, split: Split, size: DnaSize) -> Dataset:
    """The test frames whose attention is scored."""
    return dataset.select(split.test[np.linspace(0, len(split.test) - 1, size.scored).astype(int)])


def _measure(
    settings: ExperimentSettings, progress: ProgressBar, job: Job, size: DnaSize, together: int
) -> tuple[dict[str, Any], float]:
    """Errors and attention of a model as far as it is trained, and the seconds this took with training."""
    started = time.monotonic()
    model = load(job.folder).members[0].to(settings.device)
    with open(job.folder / "history.csv", encoding="utf-8", newline="") as file:
        history = list(csv.DictReader(file))
    curve = [float(row["val_force_mae_eV"] or math.inf) for row in history]
    seconds = float(history[-1]["seconds"]) / together
    batch = 128 if settings.device.startswith("cuda") else 16
    errors = evaluate(model, job.dataset, indices=job.split.test, unit=UNIT, batch_size=batch).to_dict()
    scored = scored_frames(job.dataset, job.split, size)
    with progress(f"attention, {job.folder.name}", len(scored)) as advance:
        found = score(model.network, scored, job.dataset, advance)
    value = {
        "energy_mae": errors["overall"]["energy_mae"],
        "force_mae": errors["overall"]["forces_mae"],
        "test_frames": errors["structures"],
        "epochs": len(history),
        "best_epoch": model.record["best_epoch"],
        "late_gain": 1.0 - min(curve) / min(curve[: max(1, int(0.8 * len(curve)))]),
        "training_seconds": seconds,
        "training_hardware": model.record["hardware"],
        **found,
    }
    return value, seconds + time.monotonic() - started
