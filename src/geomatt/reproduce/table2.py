"""Table 2: a model of one molecule transferred to another by training only its readout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from geomatt.model import Normalisation, Potential
from geomatt.reproduce.frame import Experiment, ExperimentSettings, ProgressBar
from geomatt.reproduce.inputs import MD17, STAND_IN, frames_note
from geomatt.reproduce.md17 import UNTRAINED, Md17Study, Member
from geomatt.reproduce.published import (
    TRANSFER,
    errors_of,
    left_table,
    means,
    no_worse,
    pair,
    spread_pair,
    tested_on,
    title,
)  # fmt: skip
from geomatt.reproduce.table import ResultTable


class Table2(Experiment):
    name = "table2"
    title = "Table 2: transfer between molecules"
    description = (
        "The paper keeps the attention learned on one molecule and retrains only the readout on another. "
        "Here with three controls: training from scratch, the base model as it is, and a readout on features "
        "of a network that was never trained."
    )
    parts: ClassVar[tuple[str, ...]] = ("transfers", "untrained", "seeds", *MD17)

    def run(self, settings: ExperimentSettings, progress: ProgressBar) -> dict[str, Any]:
        study = Md17Study(settings, progress)
        # Without MD17 there is only one molecule: the experiment runs, but means nothing.
        pairs = [("ethanol", "ethanol")] if study.stand_in else list(TRANSFER)
        wanted = [both for both in pairs if set(both) <= set(study.molecules)]
        needed = [m for m in study.molecules if any(m in both for both in wanted)]
        study.train(study.chosen("transfers", [Member(m) for m in needed if not study.ships(m)]))
        done = {molecule: study.scratch(molecule) for molecule in needed}
        plan = _plan(wanted, study.size.seeds)
        for part, members in plan.items():
            ready = [m for m in study.chosen(part, members) if m.base == UNTRAINED or done.get(m.base or "")]
            study.train(ready)
        found = {part: study.results(members) for part, members in plan.items()}
        moved = {**found["transfers"], **found["seeds"]}
        seeds = range(study.size.seeds)
        rows = [
            {
                "base": base,
                "target": target,
                "transfer": moved.get(Member(target, base=base)),
                "seeds": _present(moved, [Member(target, base=base, seed=s) for s in seeds]),
                "untrained": _present(
                    found["untrained"], [Member(target, base=UNTRAINED, seed=s) for s in seeds]
                ),
                "scratch": done[target],
                "untouched": _untouched(study, base, target) if done[base] else None,
            }
            for base, target in wanted
        ]
        missing = {part: len(members) - len(found[part]) for part, members in plan.items()}
        return {**study.about(), "rows": rows, "missing": missing}

    def tables(self, result: Mapping[str, Any]) -> list[ResultTable]:
        rows = result["rows"]
        published = {} if result["settings"]["stand_in"] else TRANSFER
        lines = [
            [
                f"{title(row['base'])} → {title(row['target'])}",
                pair(published.get((row["base"], row["target"]))),
                spread_pair(row["seeds"]),
                pair(errors_of(row["scratch"])),
                spread_pair(row["untrained"]),
                pair(errors_of(row["untouched"])),
            ]
            for row in rows
        ]
        epochs = result["settings"]["epochs"]
        counts = [
            "–".join(map(str, sorted({len(row[kind]) for row in rows if row[kind]}))) or "no"
            for kind in ("seeds", "untrained")
        ]
        table = ResultTable(
            "table2",
            "Transfer",
            [
                "transfer",
                "published",
                "readout retrained",
                "from scratch",
                "untrained features",
                "base untouched",
            ],
            lines,
            "MAE of energies (kcal/mol) / forces (kcal/mol/Å) "
            f"{tested_on(value for row in rows for value in row['seeds'])}. Readout retrained for "
            f"{epochs['transfer']} epochs ({counts[0]} seeds of the order of the data, the same base), from "
            f"scratch {epochs['paper']} epochs (table 1, fold 0). Untrained features: a readout trained for "
            f"as many epochs on the frozen features of a network with random weights ({counts[1]} seeds). ± "
            "is the population standard deviation over seeds. The untouched base keeps its weights and its "
            "scale; only the mean energy of the target's training and validation frames is fitted. "
            + frames_note(result),
        )
        return [table, left_table(result["missing"], "geomatt reproduce table2 --part {} --device cuda")]

    def summary(self, result: Mapping[str, Any]) -> str:
        rows = [row for row in result["rows"] if row["transfer"] is not None]
        if result["settings"]["stand_in"]:
            return STAND_IN
        sentences = []
        if rows:
            good = sum(no_worse(means(r["seeds"]) or (), TRANSFER[r["base"], r["target"]]) for r in rows)
            sentences.append(f"{good} of {2 * len(rows)} errors are no worse than the published ones.")
        for row in rows:
            moved = means(row["seeds"])
            if row["scratch"] is None or moved is None:
                continue
            untrained = means(row["untrained"])
            frozen = "" if untrained is None else (
                f", {untrained[1] / moved[1]:.1f} times smaller than those with untrained features"
            )  # fmt: skip
            sentences.append(
                f"{title(row['base'])} → {title(row['target'])}: force errors "
                f"{moved[1] / row['scratch']['force_mae']:.1f} times those of training from scratch{frozen}, "
                f"{row['untouched']['force_mae'] / moved[1]:.1f} times smaller than those of the untouched "
                "base."
            )
        return " ".join(sentences) or "Not run yet."


def _plan(pairs: Sequence[tuple[str, str]], seeds: int) -> dict[str, list[Member]]:
    """The members of each part, the most informative parts first."""
    targets = dict.fromkeys(target for _, target in pairs)
    return {
        "transfers": [Member(target, base=base) for base, target in pairs],
        "untrained": [Member(t, base=UNTRAINED, seed=s) for s in range(seeds) for t in targets],
        "seeds": [Member(target, base=base, seed=s) for s in range(1, seeds) for base, target in pairs],
    }


def _present(found: Mapping[Member, dict[str, Any]], members: Sequence[Member]) -> list[dict[str, Any]]:
    """The results of those members that are finished, with their seeds."""
    return [{"seed": member.seed, **found[member]} for member in members if member in found]


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
