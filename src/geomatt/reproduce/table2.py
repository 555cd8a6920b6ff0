"""Table 2: a model of one molecule transferred to another by retraining its readout alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from geomatt.model.normalisation import Normalisation
from geomatt.model.potential import Potential
from geomatt.reproduce.frame import Experiment, Progress, Settings
from geomatt.reproduce.md17 import Bench, Member
from geomatt.reproduce.published import TRANSFER, errors_of, left_table, no_worse, pair, title
from geomatt.reproduce.table import ResultTable


class Table2(Experiment):
    name = "table2"
    title = "Table 2: transfer between molecules"
    description = (
        "The paper keeps the attention learned on one molecule and retrains only the readout on another. "
        "Beside it two controls: training from scratch, and the base model as it is."
    )

    def run(self, settings: Settings, progress: Progress) -> dict[str, Any]:
        bench = Bench(settings, progress)
        # Without MD17 there is one molecule only: the machinery runs, the comparison means nothing.
        wanted = list(TRANSFER) if not bench.stand_in else [("ethanol", "ethanol")]
        needed = {molecule for both in wanted for molecule in both}
        scratch = {molecule: Member(molecule) for molecule in bench.molecules if molecule in needed}
        bench.train(list(scratch.values()))
        done = bench.results(scratch.values())
        members = {both: Member(both[1], base=both[0]) for both in wanted if scratch[both[0]] in done}
        bench.train(list(members.values()))
        moved = bench.results(members.values())
        rows = []
        for base, target in wanted:
            transfer = members.get((base, target))
            rows.append(
                {
                    "base": base,
                    "target": target,
                    "transfer": moved.get(transfer) if transfer else None,
                    "scratch": done.get(scratch[target]),
                    "untouched": _untouched(bench, base, target) if transfer else None,
                }
            )
        return {**bench.about(), "rows": rows}

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
        tables = [
            ResultTable(
                "table2",
                "Transfer",
                ["transfer", "published", "readout retrained", "from scratch", "base untouched"],
                lines,
                "MAE of energies (kcal/mol) / forces (kcal/mol/Å) on frames of the target outside its 1000 "
                f"points. Readout retrained for {epochs['transfer']} epochs, from scratch "
                f"{epochs['paper']} epochs (table 1, fold 0). The untouched base keeps its weights and its "
                "scale; only the mean energy of the target's 1000 points is given to it.",
            )
        ]
        count = sum(row["transfer"] is None for row in result["rows"])
        left = [["transfers", str(count), "geomatt reproduce table2 --device cuda"]] if count else []
        return [*tables, left_table(left)]

    def summary(self, result: Mapping[str, Any]) -> str:
        rows = [row for row in result["rows"] if row["transfer"] is not None]
        sentences = []
        if result["settings"]["stand_in"]:
            sentences.append("**MD17 was not found: the package's own ethanol data (GFN2-xTB) stand in.**")
        elif rows:
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


def _untouched(bench: Bench, base: str, target: str) -> dict[str, Any]:
    """Errors of the base model as it is, but for the mean energy, without which they would say nothing."""

    def compute() -> dict[str, Any]:
        model = bench.model(Member(base))
        split = bench.split(Member(target))
        seen = bench.data[target].select(np.concatenate([split.train, split.validation]))
        network = Potential(model.network, Normalisation(0.0, model.normalisation.scale))
        network.to(bench.settings.device)
        labels = seen.energies
        assert labels is not None
        predicted = np.array([p.energy for p in network.predict(list(seen), forces=False)])
        shift = float((labels - predicted).mean())
        network.normalisation = replace(network.normalisation, shift=shift)
        return bench.errors(network, target, split)

    inputs = {**bench.inputs(Member(target, base=base)), "control": "untouched base"}
    result: dict[str, Any] = bench.pieces.get(f"untouched-{base}-{target}", inputs, compute)
    return result


EXPERIMENT = Table2()
