"""Two stacked cytosine–guanine pairs: errors, and where hydrogen bonds appear in the attention."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from geomatt.data.public.embedded import dimer
from geomatt.data.splits import Split, random_split
from geomatt.data.structures import Dataset
from geomatt.evaluation import evaluate
from geomatt.model.files import fingerprint, load_file, save
from geomatt.model.potential import Potential
from geomatt.reproduce.budget import STEPS, stop_at_deadline
from geomatt.reproduce.dna_attention import CONTROL, KINDS, score, strongest
from geomatt.reproduce.frame import Experiment, Figure, Pieces, Progress, Settings
from geomatt.reproduce.inputs import described, has_file, load_data
from geomatt.reproduce.md17 import WEIGHTING
from geomatt.reproduce.published import left_table
from geomatt.reproduce.table import ResultTable
from geomatt.training import Interrupted, Job, TrainConfig, resolve, train_together
from geomatt.training import checkpoint as checkpoints
from geomatt.training.prepare import new_network

DATA = "gfn2/cg-cg"
STAND_IN = "embedded/dimer"  # for the quick setting where there is no such file
UNIT = "kcal/mol"
SPLITS = ("random", "segments")


@dataclass(frozen=True)
class Scale:
    """How large the experiment is."""

    train: int
    validation: int
    test: int
    batch: int
    epochs: Mapping[str, int]
    scored: int  # frames whose attention is scored
    model: Mapping[str, Any] = field(default_factory=dict)  # of the network, where not the paper's


# 15,000 points as in the paper: of seven segments five train, one validates, one tests.
FULL = Scale(12_500, 2_500, 2_500, 32, {"paper": 1000, "fast": 60}, 500)
QUICK = Scale(24, 8, 16, 8, {"paper": 2, "fast": 2}, 8)


class Dna(Experiment):
    name = "dna"
    title = "DNA: two stacked cytosine–guanine pairs"
    description = (
        "The paper trains on a C-G dimer of 58 atoms and reads covalent and hydrogen bonds off its "
        "attention. Errors on random frames and on a trajectory never seen; precision for both bonds."
    )
    parts: ClassVar[tuple[str, ...]] = ("paper", "fast")

    def run(self, settings: Settings, progress: Progress, scale: Scale | None = None) -> dict[str, Any]:
        scale = scale or (QUICK if settings.quick else FULL)
        stand_in = settings.quick and not has_file(settings, DATA)
        dataset = dimer() if stand_in else load_data(settings, DATA)
        about = described(dataset)
        segments = _segments(dataset)
        splits = {
            "random": random_split(len(dataset), scale.train, scale.validation, scale.test, settings.seed),
            "segments": segment_split(segments, scale.train, scale.validation, scale.test),
        }
        pieces = Pieces(settings, self.name)
        name = STAND_IN if stand_in else DATA
        configs = {recipe: _config(settings, scale, recipe, name) for recipe in scale.epochs}
        rows: dict[str, dict[str, Any]] = {}
        for recipe in self.parts:
            if not settings.parts or recipe in settings.parts:
                _train(settings, progress, dataset, splits, configs[recipe])
            for kind, split in splits.items():
                path = _model_path(settings, kind, configs[recipe])
                if path.is_file():
                    value = _measure(pieces, progress, path, dataset, about, split, scale)
                    rows.setdefault(recipe, {})[kind] = value
        return {
            "settings": {**{r: config.to_dict() for r, config in configs.items()}, "stand_in": stand_in},
            "data": {name: about},
            "split": {
                "sizes": [scale.train, scale.validation, scale.test],
                "random": f"seed {settings.seed}",
                "segments": "whole trajectories of the file, the last for the test, the one before validates",
            },
            "rows": rows,
            "pieces": pieces.made,
        }

    def tables(self, result: Mapping[str, Any]) -> list[ResultTable]:
        lines = []
        for recipe in self.parts:
            for kind in SPLITS:
                value = result["rows"].get(recipe, {}).get(kind)
                label = "random frames" if kind == "random" else "a trajectory never seen"
                if value is None:
                    lines.append([recipe, label, "–", "–", "–", "–"])
                    continue
                lines.append(
                    [
                        recipe,
                        label,
                        f"{value['energy_mae']:.2f}",
                        f"{value['force_mae']:.2f}",
                        str(value["epochs"]),
                        f"{value['late_gain']:.0%}",
                    ]
                )
        tables = [
            ResultTable(
                "dna-errors",
                "Errors for the C-G dimer",
                ["recipe", "tested on", "energy MAE", "force MAE", "epochs", "late gain"],
                lines,
                f"{stand_in_note(result)}kcal/mol and kcal/mol/Å. "
                "Late gain: how much the validation error of the forces fell over the last fifth of the "
                "epochs done; a small one says that it has settled.",
                labels=2,
            )
        ]
        tables += [
            _precision_table(recipe, row["random"])
            for recipe, row in result["rows"].items()
            if "random" in row
        ]
        command = "geomatt reproduce dna --part {} --device cuda --data DIR"
        missing = {recipe: len(SPLITS) - _finished(result, recipe) for recipe in self.parts}
        left = [[r, str(count), command.format(r)] for r, count in missing.items() if count]
        return [*tables, left_table(left)]

    def figures(self, result: Mapping[str, Any], folder: Path) -> list[Figure]:
        from geomatt.reproduce.dna_figures import draw

        value = shown(result)
        return [] if value is None else draw(value, folder)

    def summary(self, result: Mapping[str, Any]) -> str:
        value = shown(result)
        if value is None:
            return "Not run yet."
        precision = value["precision"]
        note = stand_in_note(result)
        sentences = [f"- **{note.strip()}**"] if note else []
        for kind, words in KINDS.items():
            label, best = strongest(precision, kind)
            sentences.append(
                f"- {words[0].upper()}{words[1:]}: found best by {label}, average precision {best:.2f}; "
                f"inverse distance reaches {precision[CONTROL][kind][0]:.2f}, the best matrix of the "
                f"untrained network {value['untrained'][kind]:.2f}, guessing {value['chance'][kind]:.3f}."
            )
        return "\n".join(sentences)


def shown(result: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The model whose attention is shown: of the random split (as the paper's), with the smaller error."""
    found = [row["random"] for row in result["rows"].values() if "random" in row]
    return min(found, key=lambda value: float(value["force_mae"])) if found else None


def _finished(result: Mapping[str, Any], recipe: str) -> int:
    """Models of a recipe that have done all their epochs."""
    epochs = result["settings"][recipe]["epochs"]
    return sum(value["epochs"] >= epochs for value in result["rows"].get(recipe, {}).values())


def stand_in_note(result: Mapping[str, Any]) -> str:
    """What has to be said beside every number that does not come from a real trajectory."""
    if not result["settings"].get("stand_in"):
        return ""
    return (
        f"{DATA} was not found: the package's own 70 frames of the dimer stand in for it, so that these "
        "numbers show that the experiment runs, and no more. "
    )


def segment_split(segments: np.ndarray, train: int, validation: int, test: int) -> Split:
    """Whole trajectories: the last tests, the one before validates, the others train, evenly thinned."""
    names = np.unique(segments)
    parts = (np.isin(segments, names[:-2]), segments == names[-2], segments == names[-1])
    chosen = []
    for mask, size in zip(parts, (train, validation, test), strict=True):
        rows = np.flatnonzero(mask)
        chosen.append(rows[np.linspace(0, len(rows) - 1, min(size, len(rows))).astype(int)])
    return Split(chosen[0], chosen[1], chosen[2], "segments")


def _segments(dataset: Dataset) -> np.ndarray:
    """Which of the independent trajectories a frame belongs to; seven equal stretches if the file is mute."""
    path = Path(dataset.origin["path"])
    if path.is_file():
        with np.load(path, allow_pickle=False) as file:
            if "segment" in file.files:
                return np.asarray(file["segment"], dtype=np.int64)
    return np.arange(len(dataset)) * 7 // len(dataset)


def _config(settings: Settings, scale: Scale, recipe: str, data: str) -> TrainConfig:
    given = {
        "data": data,
        "recipe": recipe,
        "epochs": scale.epochs[recipe],
        "batch": scale.batch,
        "weighting": WEIGHTING[recipe],
        "patience": 0,
        "seed": settings.seed,
        "device": settings.device,
        "report_unit": UNIT,
        **scale.model,
    }
    return resolve(given)


def _work(settings: Settings, config: TrainConfig) -> Path:
    """Where training leaves its files: models of the stand-in must not be taken for those of real data."""
    return settings.work("dna-stand-in" if config.data == STAND_IN else "dna")


def _model_path(settings: Settings, split: str, config: TrainConfig) -> Path:
    folder = _work(settings, config) / "models" if settings.quick else settings.out / "models"
    return folder / "dna" / f"{split}-{config.recipe}.safetensors"


def _train(
    settings: Settings,
    progress: Progress,
    dataset: Dataset,
    splits: Mapping[str, Split],
    config: TrainConfig,
) -> None:
    """Train both splits side by side, or go on with it; what there is at the deadline is kept as a model."""
    jobs = {
        kind: Job(dataset, split, config, _work(settings, config) / f"{config.recipe}-{kind}")
        for kind, split in splits.items()
    }
    paths = {kind: _model_path(settings, kind, config) for kind in jobs}
    started = any(checkpoints.exists(job.folder) for job in jobs.values())
    if settings.out_of_time or (not started and all(path.is_file() for path in paths.values())):
        return  # finished before: a finished run leaves its model and no checkpoint
    finished = True
    try:
        with progress(f"dna, {config.recipe} recipe, {len(jobs)} models", STEPS) as advance:
            tell = stop_at_deadline(settings, advance)
            train_together(list(jobs.values()), resume=True, callback=tell, checkpoint_every=60.0)
    except Interrupted:
        if not settings.out_of_time:
            raise
        finished = False
    for kind, job in jobs.items():
        model = job.folder / "model.safetensors"
        if not model.is_file():
            continue
        state = checkpoints.read(job.folder)
        potential = load_file(model)
        # Column 7 of the history is the validation error of the forces, eV/Å.
        potential.record["epochs_done"] = state.counters.epoch
        potential.record["seconds"] = state.counters.seconds / len(jobs)
        potential.record["validation_curve"] = [float(v) for v in state.history[:, 7]]
        paths[kind].parent.mkdir(parents=True, exist_ok=True)
        save(potential, paths[kind])
        if finished:
            (job.folder / checkpoints.FILE).unlink()


def _measure(
    pieces: Pieces,
    progress: Progress,
    path: Path,
    dataset: Dataset,
    about: Mapping[str, Any],
    split: Split,
    scale: Scale,
) -> dict[str, Any]:
    """Errors and attention of a model, computed once for the same weights."""
    model = load_file(path)
    device = pieces.settings.device
    scored = dataset.select(split.test[np.linspace(0, len(split.test) - 1, scale.scored).astype(int)])

    def compute() -> dict[str, Any]:
        batch = 128 if device.startswith("cuda") else 16
        model.to(device)
        errors = evaluate(model, dataset, indices=split.test, unit=UNIT, batch_size=batch).to_dict()
        with progress(f"attention, {path.stem}", len(scored)) as advance:
            found = score(model, scored, dataset, advance)
        found["untrained"] = _untrained(model, scored[:: max(1, len(scored) // 50)], dataset)
        curve = model.record["validation_curve"]
        earlier = min(curve[: max(1, int(0.8 * len(curve)))])
        return {
            "energy_mae": errors["overall"]["energy_mae"],
            "force_mae": errors["overall"]["forces_mae"],
            "test_frames": errors["structures"],
            "epochs": model.record["epochs_done"],
            "best_epoch": model.record["best_epoch"],
            "late_gain": 1.0 - min(curve) / earlier,
            "training_seconds": model.record["seconds"],
            "training_hardware": model.record["hardware"],
            "model": path.stem,
            **found,
        }

    inputs = {
        "model": fingerprint(model),
        "epochs": model.record["epochs_done"],
        "data": about["fingerprint"],
        "scored": scale.scored,
    }
    result: dict[str, Any] = pieces.get(path.stem, inputs, compute)
    made = pieces.made[path.stem]
    pieces.made[path.stem] = {**made, "seconds": made["seconds"] + result["training_seconds"]}
    return result


def _untrained(model: Potential, frames: Dataset, dataset: Dataset) -> dict[str, float]:
    """By kind, the precision of the best matrix of the network as it was before the first step.

    A function of the distance that nobody trained may happen to peak where a kind of bond is.
    """
    config = TrainConfig.from_dict(model.record["settings"])
    network = new_network(config, model.elements, config.own_seed)
    fresh = Potential(network, model.normalisation).to(model.device)
    precision = score(fresh, frames, dataset, lambda done: None)["precision"]
    return {kind: strongest(precision, kind)[1] for kind in KINDS}


def _precision_table(recipe: str, value: Mapping[str, Any]) -> ResultTable:
    lines = [
        [label, *(f"{values[kind][0]:.3f} ± {values[kind][1]:.3f}" for kind in KINDS)]
        for label, values in value["precision"].items()
    ]
    lines.append(["untrained, its best", *(f"{value['untrained'][kind]:.3f}" for kind in KINDS)])
    lines.append(["guessing", *(f"{value['chance'][kind]:.3f}" for kind in KINDS)])
    return ResultTable(
        f"dna-precision-{recipe}",
        f"Average precision of |α|, {recipe} recipe",
        ["attention", *KINDS.values()],
        lines,
        f"Mean ± standard deviation over {value['frames']} test frames, trained on random frames for "
        f"{value['epochs']} epochs; both directions of a pair averaged. Covalent bonds are the topology of "
        "the frame of lowest energy; hydrogen bonds are the three H···acceptor contacts of each pair.",
    )


EXPERIMENT = Dna()
