"""Two stacked cytosine–guanine pairs: errors, and hydrogen bonds in the attention."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from geomatt.data import random_split
from geomatt.model import new_network
from geomatt.reproduce.dna_attention import CONTROL, KINDS, controls, strongest
from geomatt.reproduce.dna_models import (
    DATA,
    FULL,
    QUICK,
    RECIPES,
    SPLITS,
    control_inputs,
    dna_config,
    dna_inputs,
    plan,
    scored_frames,
    segment_split,
    segments,
    trained,
)
from geomatt.reproduce.frame import Drawing, Experiment, ExperimentSettings, Pieces, ProgressBar
from geomatt.reproduce.inputs import described, load_or_embedded
from geomatt.reproduce.published import ERRORS, NOT_RUN, errors_of, left_table, pair, tested_on
from geomatt.reproduce.spreading import do_part, spread
from geomatt.reproduce.table import ResultTable
from geomatt.training import Job


class Dna(Experiment):
    name = "dna"
    title = "DNA: two stacked cytosine–guanine pairs"
    description = (
        "The paper trains on a C-G dimer of 58 atoms and finds covalent and hydrogen bonds in its attention. "
        "Here: errors on random frames and on a trajectory never seen; average precision for both bonds."
    )
    parts: ClassVar[tuple[str, ...]] = (*RECIPES, *(f"{recipe}-seeds" for recipe in RECIPES))

    def run(self, settings: ExperimentSettings, progress: ProgressBar) -> dict[str, Any]:
        if settings.workers is not None:
            parts = [(self.name, part) for part in self.parts if settings.wants(part)]
            spread(settings, progress, "training", do_part, parts)
        size = QUICK if settings.quick else FULL
        data, stand_in = load_or_embedded(settings, [DATA], "embedded/dimer")
        ((name, dataset),) = data.items()
        about = described(dataset)
        splits = {
            "random": random_split(len(dataset), size.train, size.validation, size.test, settings.seed),
            "segments": segment_split(segments(dataset), size.train, size.validation, size.test),
        }
        pieces = Pieces(settings, self.name)
        work = settings.work("dna-stand-in" if stand_in else "dna")
        rows: dict[str, dict[str, Any]] = {}
        seeds: dict[str, list[Any]] = {}
        missing: dict[str, int] = {}
        for part, models in plan(size.seeds).items():
            jobs = {}
            for model in models:
                config = dna_config(settings, size, model.recipe, name, model.seed)
                job = Job(dataset, splits[model.split], config, work / model.folder)
                jobs[model] = job, dna_inputs(config, about, model.split, size)
            found = trained(settings, progress, pieces, part, jobs, size)
            missing[part] = sum(
                not found[m] or found[m]["epochs"] < j.config.epochs for m, (j, _) in jobs.items()
            )
            for model, value in found.items():
                if value and model.seed:
                    small = {k: v for k, v in value.items() if k not in ("matrices", "bonds")}
                    seeds.setdefault(model.recipe, []).append({"seed": model.seed, **small})
                elif value:
                    rows.setdefault(model.recipe, {})[model.split] = value
        configs = {recipe: dna_config(settings, size, recipe, name) for recipe in RECIPES}
        recipes = {recipe: config.to_dict() for recipe, config in configs.items()}
        config = configs["paper"]
        network = new_network(config.model, dict(config.network), tuple(dataset.elements))
        with progress("untrained networks", size.untrained) as advance:
            asked = control_inputs(config, about, size)
            scored = scored_frames(dataset, splits["random"], size)
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
            "seeds": seeds,
            "missing": missing,
            "controls": control,
            "pieces": pieces.made,
        }

    def tables(self, result: Mapping[str, Any]) -> list[ResultTable]:
        rows, lines = result["rows"], []
        for recipe in RECIPES:
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
            f"{_stand_in_note(result)}kcal/mol and kcal/mol/Å, {_tested(result)}. Late gain: "
            "how much the validation error of the forces fell over the last fifth of the epochs; if it is "
            "small, the error has settled.",
            labels=2,
        )
        precision = [_precision_table(r, v, result["controls"]) for r, v in _random(result).items()]
        return [
            errors,
            _seeds_table(result),
            *precision,
            left_table(result["missing"], "geomatt reproduce dna --part {} --device cuda --data DIR"),
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


def _random(result: Mapping[str, Any]) -> dict[str, Any]:
    """The models trained on random frames, as in the paper, by recipe."""
    return {recipe: row["random"] for recipe, row in result["rows"].items() if "random" in row}


def _seeds_table(result: Mapping[str, Any]) -> ResultTable:
    """Errors and the best matrices of the models that differ by the seed of their weights."""
    lines = []
    for recipe, value in _random(result).items():
        for model in [{"seed": 0, **value}, *result["seeds"].get(recipe, [])]:
            best = [strongest(model["precision"], kind) for kind in KINDS]
            lines.append(
                [
                    recipe,
                    str(model["seed"]),
                    pair(errors_of(model)),
                    str(model["epochs"]),
                    *(f"{ap:.2f} ({label})" for label, ap in best),
                ]
            )
    return ResultTable(
        "dna-seeds",
        "Seeds of the weights",
        ["recipe", "seed", "energy / force MAE", "epochs", *KINDS.values()],
        lines,
        "Trained on the same random frames. Average precision of the best matrix for each kind of bond, and "
        "which matrix it is.",
        labels=2,
    )


def _tested(result: Mapping[str, Any]) -> str:
    values = [value for row in result["rows"].values() for value in row.values()]
    return tested_on({"frames": value["test_frames"]} for value in values)


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
