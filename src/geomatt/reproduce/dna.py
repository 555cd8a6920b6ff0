"""Two stacked cytosine–guanine pairs: errors, and hydrogen bonds in the attention."""

from __future__ import annotations

import csv
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from geomatt.data import Dataset, Split, random_split
from geomatt.evaluation import evaluate
from geomatt.model import load, new_network
from geomatt.reproduce.budget import CHECKPOINT, train_jobs
from geomatt.reproduce.dna_attention import CONTROL, KINDS, controls, score, strongest
from geomatt.reproduce.frame import (
    Drawing,
    Experiment,
    ExperimentSettings,
    Pieces,
    ProgressBar,
    provenance,
)  # fmt: skip
from geomatt.reproduce.inputs import described, load_or_embedded
from geomatt.reproduce.md17 import UNIT, WEIGHTING
from geomatt.reproduce.published import ERRORS, NOT_RUN, left_table
from geomatt.reproduce.table import ResultTable
from geomatt.training import Job, TrainConfig, resolve

DATA = "gfn2/cg-cg"
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


# 15,000 frames as in the paper: of seven segments five train, one validates, one tests.
FULL = DnaSize(12_500, 2_500, 2_500, 32, {"paper": 1000, "fast": 60}, 500)
QUICK = DnaSize(24, 8, 16, 8, {"paper": 2, "fast": 2}, 8, untrained=3)


class Dna(Experiment):
    name = "dna"
    title = "DNA: two stacked cytosine–guanine pairs"
    description = (
        "The paper trains on a C-G dimer of 58 atoms and finds covalent and hydrogen bonds in its attention. "
        "Here: errors on random frames and on a trajectory never seen; average precision for both bonds."
    )
    parts: ClassVar[tuple[str, ...]] = ("paper", "fast")

    def run(self, settings: ExperimentSettings, progress: ProgressBar) -> dict[str, Any]:
        size = QUICK if settings.quick else FULL
        data, stand_in = load_or_embedded(settings, [DATA], "embedded/dimer")
        ((name, dataset),) = data.items()
        about = described(dataset)
        splits = {
            "random": random_split(len(dataset), size.train, size.validation, size.test, settings.seed),
            "segments": segment_split(_segments(dataset), size.train, size.validation, size.test),
        }
        pieces = Pieces(settings, self.name)
        configs = {recipe: dna_config(settings, size, recipe, name) for recipe in self.parts}
        work = settings.work("dna-stand-in" if stand_in else "dna")
        rows: dict[str, dict[str, Any]] = {}
        for recipe, config in configs.items():
            jobs = {k: Job(dataset, split, config, work / f"{recipe}-{k}") for k, split in splits.items()}
            inputs = {k: dna_inputs(config, about, k, size) for k in jobs}
            found = {k: pieces.find(f"{k}-{recipe}", inputs[k]) for k in jobs}
            finished = all(value and value["epochs"] >= config.epochs for value in found.values())
            if settings.wants(recipe) and not finished and not settings.out_of_time:
                title = f"dna, {recipe} recipe, {len(jobs)} models"
                ended = train_jobs(settings, progress, title, list(jobs.values())) is not None
                for kind, job in jobs.items():
                    if (job.folder / "model.safetensors").is_file():
                        value, seconds = _measure(settings, progress, job, size, len(jobs))
                        made = provenance(settings, seconds)
                        found[kind] = pieces.put(f"{kind}-{recipe}", inputs[kind], value, made)
                    if ended:
                        (job.folder / CHECKPOINT).unlink(missing_ok=True)
            if any(found.values()):
                rows[recipe] = {kind: value for kind, value in found.items() if value}
        recipes = {recipe: config.to_dict() for recipe, config in configs.items()}
        config = configs["paper"]
        network = new_network(config.model, dict(config.network), tuple(dataset.elements))
        with progress("untrained networks", size.untrained) as advance:
            asked = {**dna_inputs(config, about, "random", size), "untrained": size.untrained}
            scored = _scored(dataset, splits["random"], size)
            control = pieces.get(
                "controls", asked, lambda: controls(network, scored, dataset, size.untrained, advance)
            )
        return {
            "settings": {**recipes, "stand_in": stand_in},
            "data": {name: about},
            "split": {
                "sizes": [size.train, size.validation, size.test],
                "random": f"seed {settings.seed}",
                "segments": "whole trajectories of the file: the last tests, the one before it validates",
            },
            "rows": rows,
            "controls": control,
            "pieces": pieces.made,
        }

    def tables(self, result: Mapping[str, Any]) -> list[ResultTable]:
        rows, lines = result["rows"], []
        for recipe in self.parts:
            for kind, label in SPLITS.items():
                value = rows.get(recipe, {}).get(kind)
                numbers = [NOT_RUN] * 4
                if value is not None:
                    numbers = [f"{value[error]:.2f}" for error in ERRORS]
                    numbers += [str(value["epochs"]), f"{value['late_gain']:.0%}"]
                lines.append([recipe, label, *numbers])
        errors = ResultTable(
            "dna-errors",
            "Errors for the C-G dimer",
            ["recipe", "tested on", "energy MAE", "force MAE", "epochs", "late gain"],
            lines,
            f"{_stand_in_note(result)}kcal/mol and kcal/mol/Å. Late gain: how much the validation error of "
            "the forces fell over the last fifth of the epochs; if it is small, the error has settled.",
            labels=2,
        )
        precision = [_precision_table(r, v, result["controls"]) for r, v in _random(result).items()]
        missing = {r: len(SPLITS) - _finished(result, r) for r in self.parts}
        return [
            errors,
            *precision,
            left_table(missing, "geomatt reproduce dna --part {} --device cuda --data DIR"),
        ]

    def drawings(self, result: Mapping[str, Any]) -> list[Drawing]:
        from geomatt.reproduce.dna_figures import drawings

        return drawings(_random(result), result["controls"]) if _random(result) else []

    def summary(self, result: Mapping[str, Any]) -> str:
        note = _stand_in_note(result)
        sentences = [f"- **{note.strip()}**"] if note else []
        for kind, words in KINDS.items():
            length, untrained = (result["controls"][name][kind] for name in ("length", "untrained"))
            best = [
                (recipe, *strongest(value["precision"], kind)) for recipe, value in _random(result).items()
            ]
            control = [value["precision"][CONTROL][kind][0] for value in _random(result).values()]
            sentences.append(
                f"- {words[0].upper()}{words[1:]}: average precision "
                + ", ".join(f"{ap:.2f} ({recipe} recipe, {label})" for recipe, label, ap in best)
                + f"; inverse distance reaches {max(control, default=0.0):.2f}, |d − d₀| {length[0]:.2f} "
                f"(with the best d₀, {length[2]:.2f} Å), the best matrix of {len(untrained)} untrained "
                f"networks {np.median(untrained):.2f} in the median and {max(untrained):.2f} at most."
            )
        return "\n".join(sentences) if _random(result) else "Not run yet."


def segment_split(segments: np.ndarray, train: int, validation: int, test: int) -> Split:
    """Whole trajectories: the last tests, the one before it validates, the others train, evenly thinned."""
    names = np.unique(segments)
    parts = (np.isin(segments, names[:-2]), segments == names[-2], segments == names[-1])
    chosen = []
    for mask, size in zip(parts, (train, validation, test), strict=True):
        rows = np.flatnonzero(mask)
        chosen.append(rows[np.linspace(0, len(rows) - 1, min(size, len(rows))).astype(int)])
    return Split(chosen[0], chosen[1], chosen[2], "segments")


def _segments(dataset: Dataset) -> np.ndarray:
    """The number of the independent trajectory of each frame; seven equal parts if the file does not say."""
    path = Path(dataset.origin["path"])
    if path.is_file():
        with np.load(path, allow_pickle=False) as file:
            if "segment" in file.files:
                return np.asarray(file["segment"], dtype=np.int64)
    return np.arange(len(dataset)) * 7 // len(dataset)


def dna_config(settings: ExperimentSettings, size: DnaSize, recipe: str, data: str) -> TrainConfig:
    given = {
        "data": data,
        "recipe": recipe,
        "epochs": size.epochs[recipe],
        "batch": size.batch,
        "weighting": WEIGHTING[recipe],
        "patience": 0,
        "seed": settings.seed,
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


def _scored(dataset: Dataset, split: Split, size: DnaSize) -> Dataset:
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
    scored = _scored(job.dataset, job.split, size)
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


def _random(result: Mapping[str, Any]) -> dict[str, Any]:
    """The models trained on random frames, as in the paper, by recipe."""
    return {recipe: row["random"] for recipe, row in result["rows"].items() if "random" in row}


def _finished(result: Mapping[str, Any], recipe: str) -> int:
    """Models of a recipe that have done all their epochs."""
    epochs = result["settings"][recipe]["epochs"]
    return sum(value["epochs"] >= epochs for value in result["rows"].get(recipe, {}).values())


def _stand_in_note(result: Mapping[str, Any]) -> str:
    """What must be said with every number that was not measured on the trajectory."""
    if not result["settings"].get("stand_in"):
        return ""
    return (
        f"{DATA} was not found: 70 frames of the dimer that ship with the package are used instead, so these "
        "numbers only show that the experiment runs. "
    )


def _precision_table(recipe: str, value: Mapping[str, Any], control: Mapping[str, Any]) -> ResultTable:
    lines = [
        [label, *(f"{values[kind][0]:.3f} ± {values[kind][1]:.3f}" for kind in KINDS)]
        for label, values in value["precision"].items()
    ]
    found = [control["length"][kind] for kind in KINDS]
    lines.append(["|d − d₀|, best d₀ (control)", *(f"{mean:.3f} ± {sd:.3f}" for mean, sd, _ in found)])
    untrained = [control["untrained"][kind] for kind in KINDS]
    lines.append([f"{len(untrained[0])} untrained, median", *(f"{np.median(u):.3f}" for u in untrained)])
    lines.append([f"{len(untrained[0])} untrained, largest", *(f"{max(u):.3f}" for u in untrained)])
    lines.append(["guessing", *(f"{value['chance'][kind]:.3f}" for kind in KINDS)])
    return ResultTable(
        f"dna-precision-{recipe}",
        f"Average precision of |α|, {recipe} recipe",
        ["attention", *KINDS.values()],
        lines,
        f"Mean ± standard deviation over {value['frames']} test frames, trained on random frames for "
        f"{value['epochs']} epochs; both directions of a pair averaged. Covalent bonds are those of the "
        "frame of lowest energy; hydrogen bonds are the three H···acceptor contacts of each pair. d₀ is "
        f"{', '.join(f'{d0:.2f}' for _, _, d0 in found)} Å. Untrained: the best matrix of each of "
        f"{len(untrained[0])} networks with random weights, {control['frames'][1]} frames.",
    )


EXPERIMENT = Dna()
