"""Table 2: a model of one molecule transferred to another by training only its readout."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from geomatt.model import Normalisation, Potential
from geomatt.reproduce.frame import Experiment, ExperimentSettings, ProgressBar
from geomatt.reproduce.inputs import STAND_IN
from geomatt.reproduce.md17 import Md17Study, Member
from geomatt.reproduce.published import TRANSFER, errors_of, left_table, no_worse, pair, title
from geomatt.reproduce.table import ResultTable


class Table2(Experiment):
    name = "table2"
    title = "Table 2: transfer between molecules"
    description = (
        "The paper keeps the attention learned on one molecule and retrains only the readout on another. "
        "Here with two controls: training from scratch, and the base model as it is."
    )

    def run(self, settings: ExperimentSettings, progress: ProgressBar) -> dict[str, Any]:
        study = Md17Study(settings, progress)
        # Without MD17 there is only one molecule: the experiment runs, but means nothing.
        wanted = [("ethanol", "ethanol")] if study.stand_in else list(TRANSFER)
        needed = {molecule for both in wanted for molecule in both}
        scratch = [Member(molecule) for molecule in study.molecules if molecule in needed]
        study.train(scratch)
        done = study.results(scratch)
        transfers = [Member(target, base=base) for base, target in wanted if Member(base) in done]
        study.train(transfers)
        moved = study.results(transfers)
        rows = [
            {
                "base": base,
                "target": target,
                "transfer": moved.get(Member(target, base=base)),
                "scratch": done.get(Member(target)),
                "untouched": _untouched(study, base, target) if Member(base) in done else None,
            }
            for base, target in wanted
        ]
        return {**study.about(), "rows": rows}

    def tables(self, result: Mapping[str, Any]) -> list[ResultTable]:
        lines = [
            [
                f"{title(row['base'])} → {title(row['target'])}",
                pair(TRANSFER.get((row["base"], row["target"]))),
                *(pair(errors_of(row[kind])) for kind in ("transfer", "scratch", "untouched")),
            ]
            for row in result["rows"]
        ]
        epochs = result["settings"]["epochs"]
        table = ResultTable(
            "table2",
            "Transfer",
            ["transfer", "published", "readout retrained", "from scratch", "base untouched"],
            lines,
            "MAE of energies (kcal/mol) / forces (kcal/mol/Å) on frames of the target that were not trained "
            f"or validated on. Readout retrained for {epochs['transfer']} epochs, from scratch "
            f"{epochs['paper']} epochs (table 1, fold 0). The untouched base keeps its weights and its "
            "scale; only the mean energy of the target's training and validation frames is fitted.",
        )
        left = sum(row["transfer"] is None for row in result["rows"])
        return [table, left_table({"transfers": left}, "geomatt reproduce table2 --device cuda")]

    def summary(self, result: Mapping[str, Any]) -> str:
        rows = [row for row in result["rows"] if row["transfer"] is not None]
        if result["settings"]["stand_in"]:
            return STAND_IN
        sentences = []
        if rows:
            good = sum(
                no_worse(errors_of(r["transfer"]) or (), TRANSFER[r["base"], r["target"]]) for r in rows
            )
            sentences.append(f"{good} of {2 * len(rows)} errors are no worse than the published ones.")
        for row in rows:
            if row["scratch"] is not None:
                ratio = row["transfer"]["force_mae"] / row["scratch"]["force_mae"]
                gain = row["untouched"]["force_mae"] / row["transfer"]["force_mae"]
                sentences.append(
                    f"{title(row['base'])} → {title(row['target'])}: force errors {ratio:.1f} times those "
                    f"of training from scratch, {gain:.1f} times smaller than those of the untouched base."
                )
        return " ".join(sentences) or "Not run yet."


def _untouched(study: Md17Study, base: str, target: str) -> dict[str, Any]:
    """Errors of the base model with its own weights; only the mean energy is fitted to the target."""

    def compute() -> dict[str, Any]:
        model, split = study.model(base), study.split(Member(target))
        seen = study.data[target].select(np.concatenate([split.train, split.validation]))
        assert seen.energies is not None
        potential = Potential(model.network, Normalisation(0.0, model.normalisation.scale))
        potential.to(study.settings.device)
        predicted = np.array([p.energy for p in potential.predict(list(seen), forces=False)])
        shift = float((seen.energies - predicted).mean())
        potential.normalisation = replace(potential.normalisation, shift=shift)
        return study.errors(potential, target, split)

    inputs = {**study.inputs(Member(target, base=base)), "control": "untouched base"}
    result: dict[str, Any] = study.pieces.get(f"untouched-{base}-{target}", inputs, compute)
    return result


EXPERIMENT = Table2()
