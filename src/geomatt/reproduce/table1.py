"""Table 1: energy and force errors for eight molecules of MD17, five folds, with the published numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from statistics import mean
from typing import Any, ClassVar

from geomatt.reproduce.frame import Experiment, ExperimentSettings, ProgressBar
from geomatt.reproduce.inputs import MD17, STAND_IN, frames_note, noted
from geomatt.reproduce.md17 import SCHNET_EPOCHS, Md17Study, Member
from geomatt.reproduce.published import (
    ERRORS,
    GEOMATT,
    SCHNET,
    WORDS,
    Models,
    cell,
    error_table,
    left_table,
    means,
    no_worse,
    tested_on,
    title,
)
from geomatt.reproduce.ranges import measured_ranges, ranges_table
from geomatt.reproduce.study import UNIT
from geomatt.reproduce.table import NOT_RUN, ResultTable

REPEATED = ("ethanol", "aspirin")  # trained on several draws of frames, and SchNet with several seeds
PUBLISHED = GEOMATT["2,3,4"]
RECIPES = ("paper", "fast")
ELSEWHERE = "†"  # a time on another machine than most


class Table1(Experiment):
    name = "table1"
    title = "Table 1: MD17, eight molecules"
    description = (
        "The paper reports energy and force errors for eight molecules after 2000 epochs on 800 + 200 "
        "frames. Here: the same recipe, a faster one, and SchNet on the same frames, tested on other frames."
    )
    parts: ClassVar[tuple[str, ...]] = (
        "paper", "fast", "weighting", "schnet-all", "draws", "schnet-seeds", "folds", "fast-folds", *MD17,
    )  # fmt: skip

    def run(self, settings: ExperimentSettings, progress: ProgressBar) -> dict[str, Any]:
        study = Md17Study(settings, progress)
        plan = _plan(study)
        study.train_plan(plan)
        rows: dict[str, dict[str, Any]] = {
            kind: {} for kind in ("paper", "fast", "formula", "draws", "schnet-all")
        }
        for members in plan.values():
            for member, value in study.results(members).items():
                rows[_row(member)].setdefault(member.molecule, []).append({**_which(member), **value})
        # Models from before there was one schedule for all; they are not trained any more.
        fitted = _fitted_zeros(study, progress)
        before = [Member(m, recipe="schnet") for m in SCHNET_EPOCHS if m in study.molecules]
        schnet = {member.molecule: value for member, value in study.results(before).items()}
        return {
            **study.about(),
            "molecules": study.molecules,
            "rows": rows,
            "fitted_zero": fitted,
            "schnet": {m: value for m, value in schnet.items() if m not in rows["schnet-all"]},
            "ranges": {m: measured_ranges(dataset, UNIT) for m, dataset in study.data.items()},
            "missing": study.missing(plan),
        }

    def tables(self, result: Mapping[str, Any]) -> list[ResultTable]:
        measured = [
            *(_errors(result, kind) for kind in (0, 1)),
            _weighting(result),
            _zero(result),
            _draws(result),
            _times(result),
            ranges_table("ranges", {title(m): found for m, found in result["ranges"].items()}),
        ]
        return [*noted(result, measured), left_table(result)]

    def summary(self, result: Mapping[str, Any]) -> str:
        rows = result["rows"]
        if result["settings"]["stand_in"]:
            return STAND_IN
        sentences = []
        for recipe in RECIPES:
            good, count = no_worse((models, PUBLISHED[m]) for m, models in rows[recipe].items())
            if count:
                sentences.append(
                    f"With the {recipe} recipe {good} of {count} errors are no worse than the published "
                    f"ones{_others(rows[recipe])}."
                )
        for molecule, model in result["schnet"].items():
            sentences.append(
                f"SchNet on the same {title(molecule)} frames reaches {cell([model])} after "
                f"{model['epochs']} epochs of its own schedule (lowest validation loss in epoch "
                f"{model['best_epoch']})."
            )
        pairs = [(means(rows["paper"].get(m)), means(models)) for m, models in rows["schnet-all"].items()]
        both = [s[i] < o[i] for o, s in pairs if o is not None and s is not None for i in (0, 1)]
        if both:
            sentences.append(
                f"SchNet with one schedule for all molecules has smaller errors than the paper recipe in "
                f"{sum(both)} of {len(both)} cases."
            )
        return " ".join(sentences) or "Not run yet."


def _plan(study: Md17Study) -> dict[str, list[Member]]:
    """The members of each part, the most informative parts first."""

    def members(recipe: str, folds: range) -> list[Member]:
        return [Member(m, fold, recipe=recipe) for fold in folds for m in study.molecules]

    later = range(1, study.size.folds)
    repeated = [m for m in study.molecules if m in REPEATED]
    again = range(1, study.size.seeds)
    return {
        "paper": members("paper", range(1)),
        "fast": members("fast", range(1)),
        "weighting": [Member(m, weighting="paper") for m in study.molecules],
        "schnet-all": [Member(m, recipe="schnet-all") for m in study.molecules],
        "draws": [Member(m, draw=d) for d in again for m in repeated],
        "schnet-seeds": [Member(m, recipe="schnet-all", seed=s) for s in again for m in repeated],
        "folds": members("paper", later),
        "fast-folds": members("fast", later),
    }


def _fitted_zeros(study: Md17Study, progress: ProgressBar) -> dict[str, dict[str, Any]]:
    """By recipe and molecule: errors of fold 0 with a fitted zero of the energy."""
    members = [Member(m, recipe=recipe) for recipe in RECIPES for m in study.molecules]
    members = [member for member in members if study.finished(member)]
    found: dict[str, dict[str, Any]] = {recipe: {} for recipe in RECIPES}
    with progress("zero of the energy", len(members)) as advance:
        for member in members:
            errors = study.fitted_zero(member)
            if errors is not None:
                found[member.recipe][member.molecule] = errors
            advance(1)
    return found


def _row(member: Member) -> str:
    """The row of the result a member belongs to."""
    if member.draw:
        return "draws"
    return member.recipe if member.weighting is None else "formula"


def _which(member: Member) -> dict[str, int]:
    """The fields that distinguish a member from others of its row and molecule."""
    if member.draw:
        return {"draw": member.draw}
    return {"seed": member.seed} if member.is_schnet else {"fold": member.fold}


def _published(result: Mapping[str, Any], numbers: Mapping[str, Models]) -> Mapping[str, Models]:
    """Nothing beside other data than MD17."""
    return {} if result["settings"]["stand_in"] else numbers


def _schnet(result: Mapping[str, Any]) -> dict[str, Models]:
    """Our SchNet models by molecule: those with the schedule for all, else the one from before."""
    return {m: [model] for m, model in result["schnet"].items()} | result["rows"]["schnet-all"]


def _first(row: Mapping[str, Any]) -> dict[str, Models]:
    """The models of fold 0."""
    return {m: [model for model in models if model["fold"] == 0] for m, models in row.items()}


def _errors(result: Mapping[str, Any], kind: int) -> ResultTable:
    """Energy (kind 0) or force (kind 1) errors."""
    rows, schnet = result["rows"], _schnet(result)
    done = [models for recipe in RECIPES for models in rows[recipe].values()]
    folds = sorted({len(models) for models in done})
    epochs = sorted({model["epochs"] for models in schnet.values() for model in models})
    what = ("MAE of energies, kcal/mol", "MAE of force components, kcal/mol/Å")[kind]
    return error_table(
        f"table1-{('energy', 'forces')[kind]}",
        f"{WORDS[kind].capitalize()} of MD17",
        {
            "published": _published(result, PUBLISHED),
            "paper recipe": rows["paper"],
            "fast recipe": rows["fast"],
            "SchNet, published": _published(result, SCHNET),
            "SchNet, ours": schnet,
        },
        result["molecules"],
        f"{what}, {tested_on(model for models in done for model in models)}; mean over the folds "
        f"({', '.join(map(str, folds)) or 'none'} done of 5) ± their (population) standard deviation. The "
        f"folds divide one draw of {result['split']['points']} frames. Loss: that of the authors' code for "
        "the paper recipe, the formula printed in the paper for the fast one."
        + (f" SchNet, ours: {' or '.join(map(str, epochs))} epochs, ± over seeds." if epochs else "")
        + f" {frames_note(result)}",
        error=ERRORS[kind],
    )


def _weighting(result: Mapping[str, Any]) -> ResultTable:
    formula = result["rows"]["formula"]
    return error_table(
        "weighting",
        "The two weightings of the loss",
        {
            "published": _published(result, PUBLISHED),
            "authors' code": _first(result["rows"]["paper"]),
            "paper's formula": formula,
        },
        result["molecules"],
        f"Energy / force MAE, {tested_on(model for models in formula.values() for model in models)}; fold "
        "0, paper recipe. The authors' released code divides the force term by a further 3N, which weighs "
        "energies 3N times more than the formula in the paper.",
    )


def _zero(result: Mapping[str, Any]) -> ResultTable:
    """Energies as training leaves them, and with the zero that `geomatt train` fits afterwards."""
    columns: dict[str, Mapping[str, Models]] = {"published": _published(result, PUBLISHED)}
    for recipe in RECIPES:
        columns[f"{recipe} recipe"] = _first(result["rows"][recipe])
        fitted = result["fitted_zero"][recipe]
        columns[f"{recipe}, fitted zero"] = {m: [model] for m, model in fitted.items()}
    models = [model for own in result["fitted_zero"].values() for model in own.values()]
    return error_table(
        "zero",
        "The zero of the energy",
        columns,
        result["molecules"],
        f"MAE of energies, kcal/mol, {tested_on(models)}; fold 0. Fitted zero: the mean error on the "
        f"{result['split']['points']} frames of training and validation is subtracted. Forces are the same.",
        error=ERRORS[0],
    )


def _draws(result: Mapping[str, Any]) -> ResultTable:
    """Fold 0 of several draws of frames, with the spread over the folds of the first draw."""
    rows, lines = result["rows"], []
    for m in (m for m in REPEATED if m in result["molecules"]):
        models = [*_first(rows["paper"]).get(m, []), *rows["draws"].get(m, [])]
        each = [models[i : i + 1] for i in range(3)]
        for error, what in zip(ERRORS, WORDS, strict=True):
            over = [cell(models if len(models) > 1 else None, error), cell(rows["paper"].get(m), error)]
            lines.append([title(m), what, *(cell(model, error) for model in each), *over])
    return ResultTable(
        "draws",
        "Draws of the training frames",
        ["molecule", "", "draw 1", "draw 2", "draw 3", "over draws", "over folds of draw 1"],
        lines,
        f"MAE, kcal/mol and kcal/mol/Å; fold 0 of each draw of {result['split']['points']} frames, paper "
        "recipe; mean ± population standard deviation.",
        labels=2,
    )


def _times(result: Mapping[str, Any]) -> ResultTable:
    """The table of training times. Models of another machine than most are marked."""
    rows, published = result["rows"], not result["settings"]["stand_in"]
    columns = {"paper": rows["paper"], "fast": rows["fast"], "schnet": _schnet(result)}
    together = sorted({f["together"] for r in RECIPES for fs in rows[r].values() for f in fs})
    trained = {
        (recipe, m): [_hardware(result, m, recipe, model) for model in models]
        for recipe, column in columns.items()
        for m, models in column.items()
    }
    machines = Counter(machine for several in trained.values() for machine in several).most_common()
    usual, others = [name for name, _ in machines[:1]], [name for name, _ in machines[1:]]

    def time(molecule: str, recipe: str) -> str:
        mark = f" {ELSEWHERE}" * bool(set(trained.get((recipe, molecule), ())) & set(others))
        return _seconds(columns[recipe].get(molecule, [])) + mark

    return ResultTable(
        "times",
        "Training time",
        ["molecule", "paper recipe", "fast recipe", "SchNet"],
        [[title(m), *(time(m, recipe) for recipe in columns)] for m in result["molecules"]],
        f"Seconds for one model, mean over the folds (shortest–longest), on {', '.join(usual) or 'nothing'}"
        + (f"; {ELSEWHERE}: with models trained on {'; '.join(others)}" if others else "")
        + ". Models of several folds and molecules were trained side by side "
        f"({', '.join(map(str, together)) or 'none'} at a time) and share the time equally; not all parts "
        "were run with the same version."
        + (" The paper: 3 to 6 hours for one molecule on a GTX 1080." if published else ""),
    )


def _hardware(result: Mapping[str, Any], molecule: str, recipe: str, model: Mapping[str, Any]) -> str:
    """What a model of the table of times was trained on."""
    if recipe == "schnet" and molecule not in result["schnet"]:
        member = Member(molecule, recipe="schnet-all", seed=model["seed"])
    else:
        member = Member(molecule, model.get("fold", 0), recipe=recipe)
    hardware: str = result["pieces"][member.name]["hardware"]
    return hardware


def _seconds(models: Models) -> str:
    each = [model["seconds"] / model.get("together", 1) for model in models]
    spread = f" ({min(each):.0f}–{max(each):.0f})" if len(each) > 1 else ""
    return f"{mean(each):.0f}{spread}" if each else NOT_RUN


def _others(row: Mapping[str, Models]) -> str:
    """The errors that are worse than published, as the end of a sentence."""
    worse = [
        f"{title(molecule)} {what} {cell(models, error)} against {cell(PUBLISHED[molecule], error)}"
        for molecule, models in row.items()
        for error, what in zip(ERRORS, WORDS, strict=True)
        if not no_worse([(models, PUBLISHED[molecule])], error)[0]
    ]
    return f"; the others are {', '.join(worse)}" if worse else ""


EXPERIMENT = Table1()
