"""Models of the C-G dimer: what is trained, how, and what is measured of each."""

from __future__ import annotations

import csv
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from geomatt.data import Dataset, Split, random_split
from geomatt.model import load
from geomatt.reproduce.dna_attention import score
from geomatt.reproduce.frame import ExperimentSettings, ProgressBar, provenance
from geomatt.reproduce.inputs import described, load_or_embedded
from geomatt.reproduce.md17 import WEIGHTING
from geomatt.reproduce.pair import LEARNING_RATES, SIZES
from geomatt.reproduce.study import CHECKPOINT, UNIT, Study
from geomatt.training import Job, TrainConfig, TrainResult, resolve, without_zero

DATA = "gfn2/cg-cg"
SPLITS = {"random": "random frames", "segments": "a trajectory never seen"}


@dataclass(frozen=True)
class DnaRecipe:
    """A network and how it is trained."""

    settings: Mapping[str, Any]
    # True if its attention is compared with that of the untrained networks, which are of the paper's kind.
    scored: bool = True


RECIPES = {
    **{
        name: DnaRecipe({"model": "geomatt", "recipe": name, "weighting": WEIGHTING[name]})
        for name in ("paper", "fast")
    },
    "pair": DnaRecipe(
        {
            "model": "pair",
            "recipe": "pair",
            "network": SIZES["s"],
            "learning_rate": LEARNING_RATES["s"],
            "batch": 10,
            "warmup": 1,
            "validate_every": 2,
        },
        scored=False,
    ),
}
SCORED = tuple(name for name, recipe in RECIPES.items() if recipe.scored)


@dataclass(frozen=True)
class DnaSize:
    """The size of the experiment."""

    train: int
    validation: int
    test: int
    batch: int  # of recipes without their own
    epochs: Mapping[str, int]
    scored: int  # frames whose attention is scored
    untrained: int = 100  # networks with random weights, as a control
    # Settings of each kind of network other than those of the recipes.
    networks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    seeds: int = 3  # of the weights, for scored models trained on random frames


# 15,000 frames as in the paper: of seven segments five train, one validates, one tests.
FULL = DnaSize(12_500, 2_500, 2_500, 32, {"paper": 1000, "fast": 60, "pair": 24}, 500)
QUICK = DnaSize(24, 8, 16, 8, dict.fromkeys(RECIPES, 2), 8, untrained=3, seeds=1)


@dataclass(frozen=True)
class DnaModel:
    """One model to train."""

    recipe: str
    split: str = "random"
    seed: int = 0

    data = DATA

    @property
    def name(self) -> str:
        return f"{self.split}-{self.recipe}" + f"-seed{self.seed}" * bool(self.seed)


def plan(seeds: int) -> dict[str, list[DnaModel]]:
    """The models of each part; those of a part are trained side by side."""
    first = {recipe: [DnaModel(recipe, split) for split in SPLITS] for recipe in RECIPES}
    again = {f"{r}-seeds": [DnaModel(r, seed=s) for s in range(1, seeds)] for r in SCORED}
    return {**first, **again}


class DnaStudy(Study[DnaModel]):
    """Models of the dimer. One whose training was ended by the deadline is measured as it is then."""

    name = "dna"

    def __init__(
        self, settings: ExperimentSettings, progress: ProgressBar, size: DnaSize | None = None
    ) -> None:
        super().__init__(settings, progress)
        self.size = size or (QUICK if settings.quick else FULL)
        found, self.stand_in = load_or_embedded(settings, [DATA], "embedded/dimer")
        ((self.source, self.frames),) = found.items()
        self.data, self.described = {DATA: self.frames}, {DATA: described(self.frames)}
        sizes = self.size.train, self.size.validation, self.size.test
        self.splits = {
            "random": random_split(len(self.frames), *sizes, settings.seed),
            "segments": segment_split(segments(self.frames), *sizes),
        }

    @property
    def work(self) -> Path:
        return self.settings.work("dna-stand-in" if self.stand_in else "dna")

    @property
    def scored(self) -> Dataset:
        """The random test frames whose attention is scored."""
        return self._scored(self.splits["random"])

    def _scored(self, split: Split) -> Dataset:
        rows = np.linspace(0, len(split.test) - 1, self.size.scored).astype(int)
        return self.frames.select(split.test[rows])

    def split(self, member: DnaModel) -> Split:
        return self.splits[member.split]

    def config(self, member: DnaModel) -> TrainConfig:
        own = RECIPES[member.recipe].settings
        given = {
            "batch": self.size.batch,
            **own,
            "data": self.source,
            "epochs": self.size.epochs[member.recipe],
            "patience": 0,
            "seed": self.settings.seed + member.seed,
            "device": self.settings.device,
            "report_unit": UNIT,
            "network": {**own.get("network", {}), **self.size.networks.get(own["model"], {})},
        }
        return resolve(given)

    def beside(self, member: DnaModel) -> dict[str, Any]:
        sizes = [self.size.train, self.size.validation, self.size.test, self.size.scored]
        # The last: before, these results had the zero of the energy fitted.
        left = {"energies": "as training leaves them"} if RECIPES[member.recipe].scored else {}
        return {"split": member.split, "sizes": sizes, **left}

    def control_inputs(self) -> dict[str, Any]:
        """Everything the controls depend on."""
        return {**self.inputs(DnaModel("paper")), "untrained": self.size.untrained}

    def finished(self, member: DnaModel) -> bool:
        found = self.find(member)
        return found is not None and found["epochs"] >= self.config(member).epochs

    def groups(self, members: Sequence[DnaModel]) -> list[list[DnaModel]]:
        programs: dict[tuple[str, bool], list[DnaModel]] = {}
        for member in members:
            programs.setdefault((member.recipe, member.seed > 0), []).append(member)
        return list(programs.values())

    def train_group(self, group: Sequence[DnaModel]) -> None:
        jobs, results = self.run_group(group)
        for member, job in zip(group, jobs, strict=True):
            if (job.folder / "model.safetensors").is_file():
                started = time.monotonic()
                value = self.measure(member, job)
                known = self.find(member)
                if known is not None and known["epochs"] > value["epochs"]:
                    continue  # of a run whose checkpoint is not here
                value["training_seconds"] /= len(group)
                seconds = value["training_seconds"] + time.monotonic() - started
                self.pieces.put(member.name, self.inputs(member), value, provenance(self.settings, seconds))
            if results:
                (job.folder / CHECKPOINT).unlink(missing_ok=True)

    def measure(self, member: DnaModel, job: Job, result: TrainResult | None = None) -> dict[str, Any]:
        """Errors, and attention if it is scored, of a model as far as it is trained."""
        model = load(job.folder).members[0]
        with open(job.folder / "history.csv", encoding="utf-8", newline="") as file:
            history = list(csv.DictReader(file))
        curve = [float(row["val_force_mae_eV"] or math.inf) for row in history]
        # Of the paper's network without the zero of the energy that is fitted after training, as in table 1.
        left = without_zero(model) if RECIPES[member.recipe].scored else model
        errors = self.errors(left, job.dataset, job.split.test)
        found: dict[str, Any] = {}
        if RECIPES[member.recipe].scored:
            scored = self._scored(job.split)
            with self.progress(f"attention, {member.name}", len(scored)) as advance:
                found = score(model.to(self.settings.device).network, scored, job.dataset, advance)
        return {
            "energy_mae": errors["energy_mae"],
            "force_mae": errors["force_mae"],
            "test_frames": errors["frames"],
            "epochs": len(history),
            "best_epoch": model.record["best_epoch"],
            "late_gain": 1.0 - min(curve) / min(curve[: max(1, int(0.8 * len(curve)))]),
            "training_seconds": float(history[-1]["seconds"]),
            "training_hardware": model.record["hardware"],
            **found,
        }


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
