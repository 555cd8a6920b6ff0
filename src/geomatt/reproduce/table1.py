"""Table 1: energy and force errors for eight molecules of MD17, five folds, beside the published rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Any, ClassVar

from geomatt.reproduce.frame import Experiment, Progress, Settings
from geomatt.reproduce.md17 import Bench, Member
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
)
from geomatt.reproduce.schnet import EPOCHS as SCHNET_EPOCHS
from geomatt.reproduce.schnet import run_schnet
from geomatt.reproduce.table import ResultTable

WEIGHTED = ("ethanol", "aspirin")  # both loss weightings are tried on these
PUBLISHED = GEOMATT["2,3,4"]


class Table1(Experiment):
    name = "table1"
    title = "Table 1: MD17, eight molecules"
    description = (
        "The paper reports energy and force errors for eight molecules after 2000 epochs on 800 + 200 "
        "points. The same recipe, a faster one, and SchNet on the same frames, tested on other frames."
    )
    parts: ClassVar[tuple[str, ...]] = ("paper", "fast", "weighting", "schnet", "folds", "fast-folds")

    def run(self, settings: Settings, progress: Progress) -> dict[str, Any]:
        bench = Bench(settings, progress)
        plan = self._plan(bench)
        for part, members in plan.items():
            if not settings.parts or part in settings.parts:
                bench.train(members)
        schnet = run_schnet(bench, train=not settings.parts or "schnet" in settings.parts)
        rows: dict[str, dict[str, list[dict[str, Any]]]] = {"paper": {}, "fast": {}, "formula": {}}
        for members in plan.values():
            for member, value in bench.results(members).items():
                row = member.recipe if member.weighting is None else "formula"
                rows[row].setdefault(member.molecule, []).append({"fold": member.fold, **value})
        missing = {part: len(members) - len(bench.results(members)) for part, members in plan.items()}
        missing["schnet"] = len(SCHNET_EPOCHS.keys() & set(bench.molecules)) - len(schnet)
        return {
            **bench.about(),
            "molecules": bench.molecules,
            "rows": rows,
            "schnet": schnet,
            "missing": {part: count for part, count in missing.items() if count},
        }

    def _plan(self, bench: Bench) -> dict[str, list[Member]]:
        """What to train, the most telling first."""

        def members(recipe: str, folds: range) -> list[Member]:
            return [Member(m, fold, recipe=recipe) for fold in folds for m in bench.molecules]

        later = range(1, bench.scale.folds)
        return {
            "paper": members("paper", range(1)),
            "fast": members("fast", range(1)),
            "weighting": [Member(m, weighting="paper") for m in WEIGHTED if m in bench.molecules],
            "folds": members("paper", later),
            "fast-folds": members("fast", later),
        }

    def tables(self, result: Mapping[str, Any]) -> list[ResultTable]:
        return [
            self._errors(result, 0, "Energies of MD17", "MAE of energies, kcal/mol"),
            self._errors(result, 1, "Forces of MD17", "MAE of force components, kcal/mol/Å"),
            self._weighting(result),
            left_table(
                [
                    [part, str(count), f"geomatt reproduce table1 --part {part} --device cuda"]
                    for part, count in result["missing"].items()
                ]
            ),
        ]

    def _errors(self, result: Mapping[str, Any], kind: int, headline: str, what: str) -> ResultTable:
        molecules, rows, schnet = result["molecules"], result["rows"], result["schnet"]
        error = ERRORS[kind]
        lines = [
            [
                title(m),
                f"{PUBLISHED[m][kind]:.2f}",
                spread(rows["paper"].get(m), error),
                spread(rows["fast"].get(m), error),
                f"{SCHNET[m][kind]:.2f}",
                f"{schnet[m][error]:.2f}" if m in schnet else NOT_RUN,
            ]
            for m in molecules
        ]
        columns = [
            column_mean(PUBLISHED[m] for m in molecules),
            *(column_mean(means(rows[r].get(m)) for m in molecules) for r in ("paper", "fast")),
            column_mean(SCHNET[m] for m in molecules),
        ]
        lines.append(["mean", *(f"{c[kind]:.2f}" if c else NOT_RUN for c in columns), ""])
        folds = sorted({len(folds) for r in ("paper", "fast") for folds in rows[r].values()})
        return ResultTable(
            f"table1-{('energy', 'forces')[kind]}",
            headline,
            ["molecule", "published", "paper recipe", "fast recipe", "SchNet, published", "SchNet, ours"],
            lines,
            f"{what}, on frames outside the 1000; mean ± standard deviation where there are several folds "
            f"({', '.join(map(str, folds)) or 'none'} done of 5). Loss: that of the authors' code for "
            "the paper recipe, the paper's formula for the fast one.",
            strong=frozenset({len(lines) - 1}),
        )

    def _weighting(self, result: Mapping[str, Any]) -> ResultTable:
        rows = result["rows"]
        first = {
            m: next((f for f in rows["paper"].get(m, []) if f["fold"] == 0), None)
            for m in WEIGHTED
            if m in result["molecules"]
        }
        lines = [
            [title(m), pair(PUBLISHED[m]), pair(errors_of(own)), pair(means(rows["formula"].get(m)))]
            for m, own in first.items()
        ]
        return ResultTable(
            "weighting",
            "The two weightings of the loss",
            ["molecule", "published", "authors' code", "paper's formula"],
            lines,
            "Energy / force MAE, one fold, paper recipe. The authors' released code divides the force term "
            "by a further 3N, which weighs energies 3N times more than the formula in the paper.",
        )

    def summary(self, result: Mapping[str, Any]) -> str:
        rows = result["rows"]
        sentences = []
        if result["settings"]["stand_in"]:
            sentences.append(
                "**MD17 was not found: the package's own ethanol data (GFN2-xTB) stand in for it**, so "
                "that nothing here can be compared with published numbers."
            )
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
