"""Table 3: orders of attention of the streams, with (nearly) the same number of parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from geomatt.model import new_network
from geomatt.reproduce.frame import Experiment, ExperimentSettings, ProgressBar
from geomatt.reproduce.inputs import STAND_IN
from geomatt.reproduce.md17 import Md17Study, Member
from geomatt.reproduce.published import (
    ERRORS,
    GEOMATT,
    MEANS,
    column_mean,
    errors_of,
    left_table,
    no_worse,
    pair,
    title,
)  # fmt: skip
from geomatt.reproduce.table import ResultTable

ORDERS = ("2,2,2", "2,3,3", "2,3,4")


class Table3(Experiment):
    name = "table3"
    title = "Table 3: orders of attention"
    description = (
        "The paper finds that streams of orders 2, 3, 4 have smaller errors than 2,3,3 and 2,2,2 with as "
        "many parameters. Here: one fold of table 1 for each, paper recipe."
    )
    parts: ClassVar[tuple[str, ...]] = ("234", "222", "233")

    def run(self, settings: ExperimentSettings, progress: ProgressBar) -> dict[str, Any]:
        study = Md17Study(settings, progress)
        plan = {
            orders: [Member(m, orders=tuple(map(int, orders.split(",")))) for m in study.molecules]
            for orders in ORDERS
        }
        for part in self.parts:
            if settings.wants(part):
                study.train(plan[",".join(part)])
        rows = {
            orders: {member.molecule: value for member, value in study.results(members).items()}
            for orders, members in plan.items()
        }
        return {**study.about(), "molecules": study.molecules, "rows": rows}

    def tables(self, result: Mapping[str, Any]) -> list[ResultTable]:
        molecules, rows = result["molecules"], result["rows"]
        stand_in = result["settings"]["stand_in"]
        published = {o: [None if stand_in else GEOMATT[o][m] for m in molecules] for o in ORDERS}
        ours = {o: [errors_of(rows[o].get(m)) for m in molecules] for o in ORDERS}
        columns = [column for o in ORDERS for column in (published[o], ours[o])]
        means = [mean for o in ORDERS for mean in (None if stand_in else MEANS[o], column_mean(ours[o]))]
        lines = [[title(m), *(pair(c[i]) for c in columns)] for i, m in enumerate(molecules)]
        lines.append(["mean", *map(pair, means)])
        sizes = {orders: {v["parameters"] for v in rows[orders].values()} for orders in ORDERS}
        counts = [f"{o}: {min(s):,}–{max(s):,}" for o, s in sizes.items() if s]
        table = ResultTable(
            "table3",
            "Stream orders",
            ["molecule", *(f"{orders} {who}" for orders in ORDERS for who in ("published", "ours"))],
            lines,
            "MAE of energies (kcal/mol) / forces (kcal/mol/Å), one fold, paper recipe, loss of the authors' "
            "code; published means as printed. Overlap functions per module (F_I): 128 for order 2, 64 for "
            "3, 32 for 4, as in the paper; order k has k − 1 modules. Parameters of the overlap modules of "
            f"one layer: {_overlap_parameters()}. " + (f"All: {'; '.join(counts)}." if counts else ""),
            strong=frozenset({len(lines) - 1}),
        )
        missing = {part: len(molecules) - len(rows[",".join(part)]) for part in ("222", "233", "234")}
        return [table, left_table(missing, "geomatt reproduce table3 --part {} --device cuda")]

    def summary(self, result: Mapping[str, Any]) -> str:
        molecules, rows = result["molecules"], result["rows"]
        if result["settings"]["stand_in"]:
            return STAND_IN
        sentences = []
        averages = {o: column_mean(errors_of(rows[o].get(m)) for m in molecules) for o in ORDERS}
        whole = {o: found for o, found in averages.items() if found is not None}
        if len(whole) < len(ORDERS):
            done = ", ".join(whole) or "none"
            return f"Order sets finished for all molecules: {done}."
        for i, what in enumerate(("energies", "forces")):
            values = [whole[o][i] for o in ORDERS]
            holds = "falls" if values[0] > values[1] > values[2] else "does not fall steadily"
            shown = " → ".join(f"{v:.2f}" for v in values)
            sentences.append(f"The mean error of {what} {holds} from 2,2,2 to 2,3,3 to 2,3,4: {shown}.")
        cells = [(m, key) for m in molecules for key in ERRORS]
        others = [o for o in ORDERS if o != "2,3,4"]
        worse = [
            f"{title(m)} {'energies' if key == ERRORS[0] else 'forces'}"
            for m, key in cells
            if rows["2,3,4"][m][key] > min(rows[o][m][key] for o in others)
        ]
        good = sum(no_worse(errors_of(rows[o][m]) or (), GEOMATT[o][m]) for o in ORDERS for m in molecules)
        sentences.append(
            f"The paper finds 2,3,4 best in every cell but the energies of benzene; here it is best in "
            f"{len(cells) - len(worse)} of {len(cells)}, not for {', '.join(worse) or 'none'}. {good} of "
            f"{3 * len(cells)} cells are no worse than the published ones."
        )
        return " ".join(sentences)


def _overlap_parameters() -> str:
    """Numbers of parameters of the overlap modules of one layer, by order."""
    counts = []
    for order in (2, 3, 4):
        network = new_network("geomatt", {"orders": (order,), "layers": 1}, (1,))
        count = sum(p.numel() for name, p in network.named_parameters() if name.startswith("overlaps."))
        counts.append(f"{count:,} (k={order})")
    return ", ".join(counts)


EXPERIMENT = Table3()
