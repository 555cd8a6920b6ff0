"""Table 1: energy and force errors for eight molecules of MD17, five folds, with the published numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from statistics import mean
from typing import Any, ClassVar

from geomatt.errors import GeomAttError
from geomatt.reproduce.frame import Experiment, ExperimentSettings, ProgressBar
from geomatt.reproduce.inputs import MD17, STAND_IN, frames_note
from geomatt.reproduce.md17 import SCHNET_EPOCHS, UNIT, Md17Study, Member
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
    tested_on,
    title,
)  # fmt: skip
from geomatt.reproduce.ranges import data_ranges, ranges_table
from geomatt.reproduce.table import ResultTable

REPEATED = ("ethanol", "aspirin")  # trained on several draws of frames, and SchNet with several seeds
PUBLISHED = GEOMATT["2,3,4"]


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
        wanted = [study.chosen(part, members) for part, members in plan.items()]
        study.train_all(part for part in wanted if part and (not part[0].is_schnet or _has_schnet(settings)))
        rows: dict[str, dict[str, Any]] = {
            kind: {} for kind in ("paper", "fast", "formula", "draws", "schnet-all")
        }
        missing = {}
        for part, members in plan.items():
            found = study.results(members)
            missing[part] = len(members) - len(found)
            for member, value in found.items():
                rows[_row(member)].setdefault(member.molecule, []).append({**_which(member), **value})
        # Models from before there was one schedule for all; they are not trained any more.
        before = [Member(m, recipe="schnet") for m in SCHNET_EPOCHS if m in study.molecules]
        schnet = {member.molecule: value for member, value in study.results(before).items()}
        return {
            **study.about(),
            "molecules": study.molecules,
            "rows": rows,
            "schnet": {m: value for m, value in schnet.items() if m not in rows["schnet-all"]},
            "ranges": {m: data_ranges(dataset, UNIT) for m, dataset in study.data.items()},
            "missing": {part: count for part, count in missing.items() if count},
        }

    def tables(self, result: Mapping[str, Any]) -> list[ResultTable]:
        return [
            _errors(result, 0, "Energies of MD17", "MAE of energies, kcal/mol"),
            _errors(result, 1, "Forces of MD17", "MAE of force components, kcal/mol/Å"),
            _weighting(result),
            _draws(result),
            _times(result),
            ranges_table(result["ranges"]),
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
        same = {m: means(folds) for m, folds in rows.get("schnet-all", {}).items()}
        ours = {m: means(rows["paper"].get(m)) for m in same}
        both = [(ours[m], found) for m, found in same.items() if found is not None and ours[m] is not None]
        if both:
            better = sum(s[i] < o[i] for o, s in both if o is not None for i in range(2))
            sentences.append(
                f"SchNet with one schedule for all molecules has smaller errors than the paper recipe in "
                f"{better} of {2 * len(both)} cases."
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


def _row(member: Member) -> str:
    """The row of the result a member belongs to."""
    if member.draw:
        return "draws"
    return member.recipe if member.weighting is None else "formula"


def _which(member: Member) -> dict[str, int]:
    """What tells a member from the others of its row and molecule."""
    if member.draw:
        return {"draw": member.draw}
    return {"seed": member.seed} if member.is_schnet else {"fold": member.fold}


def _has_schnet(settings: ExperimentSettings) -> bool:
    """True if SchNet can be trained here; an error if it was asked for and cannot."""
    found = find_spec("torch_geometric") is not None
    if not found and settings.parts:
        raise GeomAttError("SchNet needs PyTorch Geometric. Install it with: pip install 'geomatt[bench]'")
    return found


def _errors(result: Mapping[str, Any], kind: int, headline: str, what: str) -> ResultTable:
    """Energy (kind 0) or force (kind 1) errors."""
    molecules, rows = result["molecules"], result["rows"]
    error = ERRORS[kind]
    published = [{} if result["settings"]["stand_in"] else numbers for numbers in (PUBLISHED, SCHNET)]
    lines = [
        [
            title(m),
            _cell(published[0].get(m), kind),
            spread(rows["paper"].get(m), error),
            spread(rows["fast"].get(m), error),
            _cell(published[1].get(m), kind),
            spread(_schnet(result, m), error),
        ]
        for m in molecules
    ]
    columns = [
        column_mean(published[0].get(m) for m in molecules),
        *(column_mean(means(rows[r].get(m)) for m in molecules) for r in ("paper", "fast")),
        column_mean(published[1].get(m) for m in molecules),
        column_mean(means(_schnet(result, m)) for m in molecules),
    ]
    lines.append(["mean", *(_cell(column, kind) for column in columns)])
    done = [fold for r in ("paper", "fast") for folds in rows[r].values() for fold in folds]
    folds = sorted({len(folds) for r in ("paper", "fast") for folds in rows[r].values()})
    epochs = sorted({v["epochs"] for m in molecules for v in _schnet(result, m)})
    schnet = f" SchNet, ours: {' or '.join(map(str, epochs))} epochs, ± over seeds." if epochs else ""
    return ResultTable(
        f"table1-{('energy', 'forces')[kind]}",
        headline,
        ["molecule", "published", "paper recipe", "fast recipe", "SchNet, published", "SchNet, ours"],
        lines,
        f"{what}, {tested_on(done)}; mean over the folds "
        f"({', '.join(map(str, folds)) or 'none'} done of 5) ± their (population) standard deviation. The "
        f"folds divide one draw of {result['split']['points']} frames. Loss: that of the authors' code for "
        f"the paper recipe, the formula printed in the paper for the fast one.{schnet} {frames_note(result)}",
        strong=frozenset({len(lines) - 1}),
    )


def _schnet(result: Mapping[str, Any], molecule: str) -> list[Mapping[str, Any]]:
    """Our SchNet models of a molecule: those with the schedule for all, else the one from before."""
    before = result["schnet"].get(molecule)
    found: list[Mapping[str, Any]] = result["rows"]["schnet-all"].get(molecule, [])
    return found or ([] if before is None else [before])


def _cell(errors: Sequence[float] | None, kind: int) -> str:
    return NOT_RUN if errors is None else f"{errors[kind]:.2f}"


def _first(row: Mapping[str, Any], molecule: str) -> Mapping[str, Any] | None:
    """The model of fold 0."""
    return next((fold for fold in row.get(molecule, []) if fold["fold"] == 0), None)


def _weighting(result: Mapping[str, Any]) -> ResultTable:
    rows, molecules = result["rows"], result["molecules"]
    published = {} if result["settings"]["stand_in"] else PUBLISHED
    own = {m: errors_of(_first(rows["paper"], m)) for m in molecules}
    formula = {m: means(rows["formula"].get(m)) for m in molecules}
    lines = [[title(m), pair(published.get(m)), pair(own[m]), pair(formula[m])] for m in molecules]
    columns = (published, own, formula)
    lines.append(["mean", *(pair(column_mean(column.get(m) for m in molecules)) for column in columns)])
    done = [fold for folds in rows["formula"].values() for fold in folds]
    return ResultTable(
        "weighting",
        "The two weightings of the loss",
        ["molecule", "published", "authors' code", "paper's formula"],
        lines,
        f"Energy / force MAE, {tested_on(done)}; fold 0, paper recipe. The authors' released code divides "
        "the force term by a further 3N, which weighs energies 3N times more than the formula in the paper.",
        strong=frozenset({len(lines) - 1}),
    )


def _draws(result: Mapping[str, Any]) -> ResultTable:
    """Fold 0 of several draws of frames, with the spread over the folds of the first draw."""
    rows, lines = result["rows"], []
    for m in (m for m in REPEATED if m in result["molecules"]):
        first = _first(rows["paper"], m)
        models = [*([] if first is None else [first]), *rows["draws"].get(m, [])]
        for error, what in zip(ERRORS, ("energies", "forces"), strict=True):
            each = [f"{model[error]:.2f}" for model in models]
            each += [NOT_RUN] * (3 - len(each))
            over = [spread(models if len(models) > 1 else None, error), spread(rows["paper"].get(m), error)]
            lines.append([title(m), what, *each, *over])
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
    """How long training took."""
    rows, lines = result["rows"], []
    for m in result["molecules"]:
        cells = []
        for recipe in ("paper", "fast"):
            each = [fold["seconds"] / fold["together"] for fold in rows[recipe].get(m, [])]
            cells.append(f"{mean(each):.0f} ({min(each):.0f}–{max(each):.0f})" if each else NOT_RUN)
        schnet = [v["seconds"] / v.get("together", 1) for v in _schnet(result, m)]
        lines.append([title(m), *cells, f"{mean(schnet):.0f}" if schnet else NOT_RUN])
    together = sorted({f["together"] for r in ("paper", "fast") for fs in rows[r].values() for f in fs})
    return ResultTable(
        "times",
        "Training time",
        ["molecule", "paper recipe", "fast recipe", "SchNet"],
        lines,
        "Seconds for one model, mean over the folds (shortest–longest), on "
        f"{'; '.join(result['hardware'])}. Models of several folds and molecules were trained side by side "
        f"({', '.join(map(str, together)) or 'none'} at a time) and share the time equally; not all parts "
        "were run with the same version. The paper: 3 to 6 hours for one molecule on a GTX 1080.",
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
