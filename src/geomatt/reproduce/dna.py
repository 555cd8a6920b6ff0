"""Two stacked cytosine–guanine pairs: errors, and hydrogen bonds in the attention."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from geomatt.model import new_network
from geomatt.reproduce.dna_attention import CONTROL, KINDS, before_training, controls, strongest
from geomatt.reproduce.dna_models import DATA, RECIPES, SCORED, SPLITS, DnaModel, DnaStudy, plan
from geomatt.reproduce.frame import Drawing, Experiment, ExperimentSettings, ProgressBar
from geomatt.reproduce.published import cell, left_table, tested_on
from geomatt.reproduce.ranges import measured_ranges, ranges_table
from geomatt.reproduce.study import UNIT
from geomatt.reproduce.table import ResultTable

# Of a model in the first table.
_SHOWN = ("energy_mae", "force_mae", "epochs", "late_gain", "test_frames", "minutes")
_LOSSES = {
    "paper": "as printed in the paper",
    "authors": "that of the authors' code",
    "unsquared": "errors not squared",
}


class Dna(Experiment):
    name = "dna"
    title = "DNA: two stacked cytosine–guanine pairs"
    description = (
        "The paper trains on a C-G dimer of 58 atoms and finds covalent and hydrogen bonds in its attention. "
        "Here: errors on random frames and on a trajectory never seen; average precision for both bonds."
    )
    parts: ClassVar[tuple[str, ...]] = (*RECIPES, *(f"{recipe}-seeds" for recipe in SCORED))

    def run(self, settings: ExperimentSettings, progress: ProgressBar) -> dict[str, Any]:
        study = DnaStudy(settings, progress)
        size, models = study.size, plan(study.size.seeds)
        study.train_all(members for part, members in models.items() if settings.wants(part))
        rows: dict[str, dict[str, Any]] = {}
        seeds: dict[str, list[Any]] = {}
        for model, value in study.results(m for members in models.values() for m in members).items():
            if model.seed:
                small = {k: v for k, v in value.items() if k not in ("matrices", "bonds")}
                seeds.setdefault(model.recipe, []).append({"seed": model.seed, **small})
            else:
                rows.setdefault(model.recipe, {})[model.split] = value
        configs = {recipe: study.config(DnaModel(recipe)) for recipe in RECIPES}
        network = new_network("geomatt", dict(configs["paper"].network), tuple(study.frames.elements))
        with progress("untrained networks", size.untrained) as advance:
            control = study.pieces.get(
                "controls",
                study.control_inputs(),
                lambda: controls(network, study.scored, study.frames, size.untrained, advance),
            )
        return {
            "settings": {
                **{recipe: config.to_dict() for recipe, config in configs.items()},
                "stand_in": study.stand_in,
            },
            "data": {study.source: study.described[DATA]},
            "split": {
                "sizes": [size.train, size.validation, size.test],
                "random": f"seed {settings.seed}",
                "segments": "whole trajectories of the file: the last tests, the one before it validates",
            },
            "rows": rows,
            "seeds": seeds,
            "missing": study.missing(models),
            "controls": control,
            "ranges": {study.source: measured_ranges(study.frames, UNIT)},
            "pieces": study.pieces.made,
        }

    def tables(self, result: Mapping[str, Any]) -> list[ResultTable]:
        lines, note = [], _stand_in_note(result)
        for recipe in RECIPES:
            for kind, label in SPLITS.items():
                value = result["rows"].get(recipe, {}).get(kind, {})
                line = {"recipe": recipe, "tested": label, **dict.fromkeys(_SHOWN), **value}
                if value:
                    line["minutes"] = value["training_seconds"] / 60
                lines.append(line)
        tested = [{"frames": line["test_frames"]} for line in lines if line["test_frames"]]
        errors = ResultTable.of(
            "dna-errors",
            "Errors for the C-G dimer",
            lines,
            {
                "recipe": "{recipe}",
                "tested on": "{tested}",
                "energy MAE": "{energy_mae:.2f}",
                "force MAE": "{force_mae:.2f}",
                "epochs": "{epochs:d}",
                "late gain": "{late_gain:.0%}",
                "minutes": "{minutes:.1f}",
            },
            f"{note}kcal/mol and kcal/mol/Å, {tested_on(tested)}. Loss: {_losses(result)}. Late gain: "
            "how much the validation error of the forces fell over the last fifth of the epochs; if it is "
            f"small, the error has settled. Minutes of training{_trained_on(result)}; the models of a recipe "
            "were trained side by side and share the time equally."
            + ("" if note else " The paper: 26 hours on a GTX 1080."),
            labels=2,
        )
        precision = [_precision_table(result, r, v) for r, v in _scored(result).items()]
        return [
            errors,
            _seeds_table(result),
            *precision,
            ranges_table("dna-ranges", result["ranges"]),
            left_table(result),
        ]

    def drawings(self, result: Mapping[str, Any]) -> list[Drawing]:
        from geomatt.reproduce.dna_figures import drawings

        models = _scored(result)
        before = {recipe: before_training(result, recipe) for recipe in models}
        return drawings(models, result["controls"], before) if models else []

    def summary(self, result: Mapping[str, Any]) -> str:
        note = _stand_in_note(result)
        sentences = [f"- **{note.strip()}**"] if note else []
        for kind, words in KINDS.items():
            length, untrained = (result["controls"][name][kind] for name in ("length", "untrained"))
            best = [
                (recipe, *strongest(value["precision"], kind)) for recipe, value in _scored(result).items()
            ]
            whole = [
                f"{strongest(value['precision'], kind)[1]:.2f} ({recipe} recipe)"
                for recipe, value in _scored(result, "segments").items()
            ]
            starts = [before_training(result, recipe).get(kind) for recipe, _, _ in best]
            before = sorted({f"{start:.2f}" for start in starts if start is not None})
            control = [value["precision"][CONTROL][kind][0] for value in _scored(result).values()]
            sentences.append(
                f"- {words[0].upper()}{words[1:]}: average precision "
                + ", ".join(
                    f"{ap:.2f} ({recipe} recipe, {label}; better than {sum(u < ap for u in untrained)} of "
                    f"{len(untrained)} untrained networks)"
                    for recipe, label, ap in best
                )
                + ("; trained on whole trajectories " + ", ".join(whole)) * bool(whole)
                + f"; inverse distance reaches {max(control, default=0.0):.2f}, |d − d₀| {length[0]:.2f} "
                f"(with the best d₀, {length[2]:.2f} Å), the best matrix of an untrained network "
                f"{np.median(untrained):.2f} in the median and {max(untrained):.2f} at most"
                + (", that of the very network before training " + " or ".join(before)) * bool(before)
                + "."
            )
        return "\n".join(sentences) if _scored(result) else "Not run yet."


def _scored(result: Mapping[str, Any], split: str = "random") -> dict[str, Any]:
    """The models whose attention was scored, by recipe; as in the paper, those trained on random frames."""
    rows = result["rows"].items()
    return {recipe: row[split] for recipe, row in rows if recipe in SCORED and split in row}


def _losses(result: Mapping[str, Any]) -> str:
    """The loss of each recipe, in words."""
    settings = result["settings"]
    return ", ".join(f"{_LOSSES[settings[recipe]['weighting']]} ({recipe})" for recipe in RECIPES)


def _trained_on(result: Mapping[str, Any]) -> str:
    """Where the models were trained, with the preposition."""
    rows = result["rows"].values()
    found = sorted({value["training_hardware"] for row in rows for value in row.values()})
    return f" on {', '.join(found)}" if found else ""


def _seeds_table(result: Mapping[str, Any]) -> ResultTable:
    """Errors and the best matrices of all scored models."""
    lines = []
    for recipe in SCORED:
        row = result["rows"].get(recipe, {})
        first = [(split, {"seed": 0, **row[split]}) for split in SPLITS if split in row]
        again = [("random", model) for model in result["seeds"].get(recipe, [])]
        for split, model in first + again:
            before = before_training(result, recipe, model["seed"])
            lines.append(
                [
                    recipe,
                    SPLITS[split],
                    str(result["settings"][recipe]["seed"] + model["seed"]),
                    cell([model]),
                    str(model["epochs"]),
                    *(_best_matrix(model["precision"], before, kind) for kind in KINDS),
                ]
            )
    return ResultTable(
        "dna-seeds",
        "Best matrices of all models",
        ["recipe", "tested on", "seed", "energy / force MAE", "epochs", *KINDS.values()],
        lines,
        "Average precision of the best matrix for each kind of bond, which matrix it is, and what the best "
        "matrix of the same network had before training (on every tenth of the random frames). "
        "Models tested on random frames were trained on "
        "random frames, the same for all seeds; those tested on a trajectory never seen, on whole other "
        "trajectories. Models of the same seed began with the same weights.",
        labels=3,
    )


def _best_matrix(
    precision: Mapping[str, Mapping[str, Sequence[float]]], before: Mapping[str, float], kind: str
) -> str:
    label, found = strongest(precision, kind)
    return f"{found:.2f} ({label}" + (f"; before {before[kind]:.2f})" if before else ")")


def _stand_in_note(result: Mapping[str, Any]) -> str:
    """A caveat for every number that was not measured on the trajectory."""
    if not result["settings"].get("stand_in"):
        return ""
    return (
        f"{DATA} was not found: 70 frames of the dimer that ship with the package are used instead, so these "
        "numbers only show that the experiment runs. "
    )


def _precision_table(result: Mapping[str, Any], recipe: str, value: Mapping[str, Any]) -> ResultTable:
    control, before = result["controls"], before_training(result, recipe)
    lines = [
        [label, *(f"{values[kind][0]:.3f} ± {values[kind][1]:.3f}" for kind in KINDS)]
        for label, values in value["precision"].items()
    ]
    found = [control["length"][kind] for kind in KINDS]
    lines.append(["|d − d₀|, best d₀ (control)", *(f"{mean:.3f} ± {sd:.3f}" for mean, sd, _ in found)])
    untrained = [control["untrained"][kind] for kind in KINDS]
    lines.append([f"{len(untrained[0])} untrained, median", *(f"{np.median(u):.3f}" for u in untrained)])
    lines.append([f"{len(untrained[0])} untrained, largest", *(f"{max(u):.3f}" for u in untrained)])
    own = ""
    if before:
        lines.append(
            ["the same network before training (best matrix)", *(f"{before[kind]:.3f}" for kind in KINDS)]
        )
        seed = result["settings"][recipe]["seed"]
        own = f" The same network before training is the one of them with the seed of this model, {seed}."
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
        f"{len(untrained[0])} networks with random weights, {control['frames'][1]} frames.{own}",
    )


EXPERIMENT = Dna()
