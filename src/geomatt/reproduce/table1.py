"""Table 1: energy and force errors for eight molecules of MD17, five folds, with the published numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from statistics import mean
from typing import Any, ClassVar

from geomatt.errors import GeomAttError
from geomatt.reproduce.frame import Experiment, ExperimentSettings, ProgressBar
from geomatt.reproduce.inputs import STAND_IN
from geomatt.reproduce.md17 import SCHNET_EPOCHS, Md17Study, Member
from geomatt.reproduce.published import (
    ERRORS,
    GEOMATT,
    NOT_RUN,
    SCHNET,
    column_mean,
    errors_of,
    left_table,
    means,
    no_worse,
    pair,
    spread,
    title,
)  # fmt: skip
from geomatt.reproduce.table import ResultTable

WEIGHTED = ("ethanol", "aspirin")  # trained with both weightings of the loss
PUBLISHED = GEOMATT["2,3,4"]


class Table1(Experiment):
    name = "table1"
    title = "Table 1: MD17, eight molecules"
    description = (
        "The paper reports energy and force errors for eight molecules after 2000 epochs on 800 + 200 "
        "frames. Here: the same recipe, a faster one, and SchNet on the same frames, tested on other frames."
    )
    parts: ClassVar[tuple[str, ...]] = ("paper", "fast", "weighting", "schnet", "folds", "fast-folds")

    def run(self, settings: ExperimentSettings, progress: ProgressBar) -> dict[str, Any]:
        study = Md17Study(settings, progress)
        plan = _plan(study)
        for part, members in plan.items():
            if settings.wants(part) and (part != "schnet" or _has_schnet(settings)):
                study.train(members)
        rows: dict[str, dict[str, Any]] = {"paper": {}, "fast": {}, "formula": {}}
        schnet, missing = {}, {}
        for part, members in plan.items():
            found = study.results(members)
            missing[part] = len(members) - len(found)
            for member, value in found.items():
                if part == "schnet":
                    schnet[member.molecule] = value
                    continue
                row = member.recipe if member.weighting is None else "formula"
                rows[row].setdefault(member.molecule, []).append({"fold": member.fold, **value})
        return {
            **study.about(),
            "molecules": study.molecules,
            "rows": rows,
            "schnet": schnet,
            "missing": {part: count for part, count in missing.items() if count},
        }

    def tables(self, result: Mapping[str, Any]) -> list[ResultTable]:
        return [
            _errors(result, 0, "Energies of MD17", "MAE of energies, kcal/mol"),
            _errors(result, 1, "Forces of MD17", "MAE of force components, kcal/mol/Å"),
            _weighting(result),
            left_table(result["missing"], "geomatt reproduce table1 --part {} --device cuda"),
        ]

    def summary(self, result: Mapping[str, Any]) -> str:
        rows = result["rows"]
        if result["settings"]["stand_in"]:
            return STAND_IN
        sentences = []
        for recipe in ("paper", "fast"):
            done = {m: means(rows[recipe].get(m)) for m in result["molecules"]}
            pairs = [(found, PUBLISHED[m]) for m, found in done.items() if found is not None]
            if pairs:
                good = sum(no_worse(*both) for both in pairs)
                sentences.append(
                    f"With the {recipe} recipe {good} of {2 * len(pairs)} errors are no worse than the "
                    f"published ones{_others(rows[recipe])}."
                )
        for molecule, found in result["schnet"].items():
            sentences.append(
                f"SchNet on the same {title(molecule)} frames reaches {found['energy_mae']:.2f} / "
                f"{found['force_mae']:.2f} after {found['epochs']} epochs of its own schedule (lowest "
                f"validation loss in epoch {found['best_epoch']})."
            )
        return " ".join(sentences) or "Not run yet."


def _plan(study: Md17Study) -> dict[str, list[Member]]:
    """The members of each part, the most informative parts first."""

    def members(recipe: str, folds: range) -> list[Member]:
        return [Member(m, fold, recipe=recipe) for fold in folds for m in study.molecules]

    later = range(1, study.size.folds)
    return {
        "paper": members("paper", range(1)),
        "fast": members("fast", range(1)),
        "weighting": [Member(m, weighting="paper") for m in WEIGHTED if m in study.molecules],
        "schnet": [Member(m, recipe="schnet") for m in sorted(SCHNET_EPOCHS) if m in study.molecules],
        "folds": members("paper", later),
        "fast-folds": members("fast", later),
    }


def _has_schnet(settings: ExperimentSettings) -> bool:
    """True if SchNet can be trained here; an error if it was asked for and cannot."""
    found = find_spec("torch_geometric") is not None
    if not found and settings.parts:
        raise GeomAttError("SchNet needs PyTorch Geometric. Install it with: pip install 'geomatt[bench]'")
    return found


def _errors(result: Mapping[str, Any], kind: int, headline: str, what: str) -> ResultTable:
    """Energy (kind 0) or force (kind 1) errors."""
    molecules, rows, schnet = result["molecules"], result["rows"], result["schnet"]
    error = ERRORS[kind]
    published = [{} if result["settings"]["stand_in"] else numbers for numbers in (PUBLISHED, SCHNET)]
    lines = [
        [
            title(m),
            _cell(published[0].get(m), kind),
            spread(rows["paper"].get(m), error),
            spread(rows["fast"].get(m), error),
            _cell(published[1].get(m), kind),
            _cell(errors_of(schnet.get(m)), kind),
        ]
        for m in molecules
    ]
    columns = [
        column_mean(published[0].get(m) for m in molecules),
        *(column_mean(means(rows[r].get(m)) for m in molecules) for r in ("paper", "fast")),
        column_mean(published[1].get(m) for m in molecules),
    ]
    lines.append(["mean", *(_cell(column, kind) for column in columns), ""])
    done = [fold for r in ("paper", "fast") for folds in rows[r].values() for fold in folds]
    tested = "–".join(map(str, sorted({fold["frames"] for fold in done}))) or "no"
    folds = sorted({len(folds) for r in ("paper", "fast") for folds in rows[r].values()})
    return ResultTable(
        f"table1-{('energy', 'forces')[kind]}",
        headline,
        ["molecule", "published", "paper recipe", "fast recipe", "SchNet, published", "SchNet, ours"],
        lines,
        f"{what}, on {tested} frames that were not trained or validated on; mean over the folds "
        f"({', '.join(map(str, folds)) or 'none'} done of 5) ± their (population) standard deviation. The "
        f"folds divide one draw of {result['split']['points']} frames. Loss: that of the authors' code for "
        "the paper recipe, the formula printed in the paper for the fast one.",
        strong=frozenset({len(lines) - 1}),
    )


def _cell(errors: Sequence[float] | None, kind: int) -> str:
    return NOT_RUN if errors is None else f"{errors[kind]:.2f}"


def _weighting(result: Mapping[str, Any]) -> ResultTable:
    rows = result["rows"]
    lines = []
    for m in (m for m in WEIGHTED if m in result["molecules"]):
        own = next((fold for fold in rows["paper"].get(m, []) if fold["fold"] == 0), None)
        lines.append(
            [title(m), pair(PUBLISHED[m]), pair(errors_of(own)), pair(means(rows["formula"].get(m)))]
        )
    return ResultTable(
        "weighting",
        "The two weightings of the loss",
        ["molecule", "published", "authors' code", "paper's formula"],
        lines,
        "Energy / force MAE, one fold, paper recipe. The authors' released code divides the force term "
        "by a further 3N, which weighs energies 3N times more than the formula in the paper.",
    )


def _others(row: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """The errors that are worse than published, as the end of a sentence."""
    worse = [
        f"{title(molecule)} {('energies', 'forces')[kind]} {spread(folds, ERRORS[kind])} against {value:.2f}"
        for molecule, folds in row.items()
        for kind, value in enumerate(PUBLISHED[molecule])
        if not no_worse([mean(fold[ERRORS[kind]] for fold in folds)], [value])
    ]
    return f"; the others are {', '.join(worse)}" if worse else ""


EXPERIMENT = Table1()
