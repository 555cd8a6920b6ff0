"""Table 2: a model of one molecule transferred to another by training only its readout."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from geomatt.model import Normalisation, Potential
from geomatt.reproduce.frame import Experiment, ExperimentSettings, ProgressBar
from geomatt.reproduce.inputs import MD17, STAND_IN, frames_note, noted
from geomatt.reproduce.md17 import UNTRAINED, Md17Study, Member
from geomatt.reproduce.published import (
    TRANSFER,
    error_table,
    left_table,
    means,
    no_worse,
    tested_on,
    title,
)
from geomatt.reproduce.table import ResultTable
from geomatt.reproduce.table2_pair import PARTS, PairTransferStudy, pair_rows, pair_table


class Table2(Experiment):
    name = "table2"
    title = "Table 2: transfer between molecules"
    description = (
        "The paper keeps the attention learned on one molecule and retrains only the readout on another. "
        "Here with three controls: training from scratch, the base model as it is, and a readout on features "
        "of a network that was never trained. The same transfers with pair states."
    )
    parts: ClassVar[tuple[str, ...]] = ("transfers", "untrained", "seeds", *PARTS, *MD17)

    def run(self, settings: ExperimentSettings, progress: ProgressBar) -> dict[str, Any]:
        study = Md17Study(settings, progress)
        # Without MD17 there is only one molecule: the experiment runs, but means nothing.
        pairs = [("ethanol", "ethanol")] if study.stand_in else list(TRANSFER)
        wanted = [both for both in pairs if set(both) <= set(study.molecules)]
        needed = [m for m in study.molecules if any(m in both for both in wanted)]
        study.train_plan({"transfers": [Member(m) for m in needed if not study.ships(m)]})
        scratch = {molecule: study.scratch(molecule) for molecule in needed}
        seeds, targets = range(study.size.seeds), dict.fromkeys(target for _, target in wanted)
        plan = {
            "transfers": [Member(target, base=base) for base, target in wanted],
            "untrained": [Member(t, base=UNTRAINED, seed=s) for s in seeds for t in targets],
            "seeds": [Member(target, base=base, seed=s) for s in seeds[1:] for base, target in wanted],
        }
        study.train_plan(plan)

        def models(base: str, target: str) -> list[dict[str, Any]]:
            members = [Member(target, base=base, seed=s) for s in seeds]
            return [{"seed": member.seed, **value} for member, value in study.results(members).items()]

        rows = [
            {
                "base": base,
                "target": target,
                "transfer": study.find(Member(target, base=base)),
                "seeds": models(base, target),
                "untrained": models(UNTRAINED, target),
                "scratch": scratch[target],
                "untouched": _untouched(study, base, target) if scratch[base] else None,
            }
            for base, target in wanted
        ]
        pair = PairTransferStudy(settings, progress)
        for row, found in zip(rows, pair_rows(pair, wanted), strict=True):
            row["pair"] = found
        return {
            **study.about(),
            "rows": rows,
            "missing": {**study.missing(plan), **pair.missing(pair.plan(wanted))},
            "pieces": {**study.pieces.made, **pair.pieces.made},
        }

    def tables(self, result: Mapping[str, Any]) -> list[ResultTable]:
        rows = {f"{title(row['base'])} → {title(row['target'])}": row for row in result["rows"]}
        there = {name: row for name, row in rows.items() if not result["settings"]["stand_in"]}
        one = {
            kind: {name: [row[kind]] for name, row in rows.items() if row[kind] is not None}
            for kind in ("scratch", "untouched")
        }
        several = {kind: {n: row[kind] for n, row in rows.items()} for kind in ("seeds", "untrained")}
        counts = {kind: _seeds(column.values()) for kind, column in several.items()}
        epochs = result["settings"]["epochs"]
        table = error_table(
            "table2",
            "Transfer",
            {
                "published": {n: TRANSFER[row["base"], row["target"]] for n, row in there.items()},
                "readout retrained": several["seeds"],
                "from scratch": one["scratch"],
                "untrained features": several["untrained"],
                "base untouched": one["untouched"],
            },
            list(rows),
            "MAE of energies (kcal/mol) / forces (kcal/mol/Å) "
            f"{tested_on(model for row in rows.values() for model in row['seeds'])}. Readout retrained for "
            f"{epochs['transfer']} epochs ({counts['seeds']} of the order of the data, the same base), "
            f"from scratch {epochs['paper']} epochs (table 1, fold 0). Untrained features: a readout trained "
            "for as many epochs on the frozen features of a network with random weights "
            f"({counts['untrained']}). ± is the population standard deviation over seeds. The "
            "untouched base keeps its weights and its scale; only the mean energy of the target's training "
            f"and validation frames is fitted. {frames_note(result)}",
            with_mean=False,
            first="transfer",
        )
        pair = pair_table(result, {name: row["pair"] for name, row in rows.items()})
        return [*noted(result, [table, pair]), left_table(result)]

    def summary(self, result: Mapping[str, Any]) -> str:
        rows = [row for row in result["rows"] if row["transfer"] is not None]
        if result["settings"]["stand_in"]:
            return STAND_IN
        sentences = []
        if rows:
            good, count = no_worse((row["seeds"], TRANSFER[row["base"], row["target"]]) for row in rows)
            sentences.append(f"{good} of {count} errors are no worse than the published ones.")
        for row in rows:
            moved, untrained = means(row["seeds"]), means(row["untrained"])
            if row["scratch"] is None or moved is None:
                continue
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


def _seeds(rows: Iterable[Sequence[Any]]) -> str:
    """How many models each of the rows has that have any."""
    counts = sorted({len(models) for models in rows if models})
    return f"{'–'.join(map(str, counts)) or 'no'} seed{'' if counts == [1] else 's'}"


def _untouched(study: Md17Study, base: str, target: str) -> dict[str, Any]:
    """Errors of the base model with its own weights; only the mean energy is fitted to the target."""

    def compute() -> dict[str, Any]:
        model = study.model(base)
        alone = Potential(model.network, Normalisation(0.0, model.normalisation.scale))
        potential = study.refitted(alone, Member(target))
        return study.tested(potential, Member(target))

    inputs = {**study.inputs(Member(target, base=base)), "control": "untouched base"}
    result: dict[str, Any] = study.pieces.get(f"untouched-{base}-{target}", inputs, compute)
    return result


EXPERIMENT = Table2()
