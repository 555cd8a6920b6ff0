"""Table 3: which orders of attention the streams have, at (nearly) the same number of parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from geomatt.reproduce.frame import Experiment, Progress, Settings
from geomatt.reproduce.md17 import Bench, Member
from geomatt.reproduce.published import GEOMATT, column_mean, errors_of, left_table, no_worse, pair, title
from geomatt.reproduce.table import ResultTable

ORDERS = ("2,2,2", "2,3,3", "2,3,4")


class Table3(Experiment):
    name = "table3"
    title = "Table 3: orders of attention"
    description = (
        "The paper finds that streams of orders 2, 3, 4 together beat 2,3,3 and 2,2,2 with as many "
        "parameters. One fold of table 1 for each, paper recipe."
    )
    parts: ClassVar[tuple[str, ...]] = ("234", "222", "233")

    def run(self, settings: Settings, progress: Progress) -> dict[str, Any]:
        bench = Bench(settings, progress)
        plan = {
            orders: [Member(m, orders=tuple(map(int, orders.split(",")))) for m in bench.molecules]
            for orders in ORDERS
        }
        for part in self.parts:
            if not settings.parts or part in settings.parts:
                bench.train(plan[",".join(part)])
        rows = {
            orders: {member.molecule: value for member, value in bench.results(members).items()}
            for orders, members in plan.items()
        }
        return {**bench.about(), "molecules": bench.molecules, "rows": rows}

    def tables(self, result: Mapping[str, Any]) -> list[ResultTable]:
        molecules, rows = result["molecules"], result["rows"]
        lines = []
        for m in molecules:
            cells = [(pair(GEOMATT[orders][m]), pair(errors_of(rows[orders].get(m)))) for orders in ORDERS]
            lines.append([title(m), *(cell for both in cells for cell in both)])
        last = []
        for orders in ORDERS:
            last.append(pair(column_mean(GEOMATT[orders][m] for m in molecules)))
            last.append(pair(column_mean(errors_of(rows[orders].get(m)) for m in molecules)))
        lines.append(["mean", *last])
        columns = [f"{orders} {who}" for orders in ORDERS for who in ("published", "ours")]
        sizes = {orders: {v["parameters"] for v in rows[orders].values()} for orders in ORDERS}
        counts = [f"{o}: {min(s):,}–{max(s):,}" for o, s in sizes.items() if s]
        note = (
            "MAE of energies (kcal/mol) / forces (kcal/mol/Å), one fold, paper recipe, loss of "
            "the authors' code. Overlap "
            "functions per module (F_I): 128 for order 2, 64 for 3, 32 for 4, as in the paper; order k has "
            "k − 1 modules. " + (f"Parameters: {'; '.join(counts)}." if counts else "")
        )
        tables = [
            ResultTable(
                "table3", "Stream orders", ["molecule", *columns], lines, note,
                strong=frozenset({len(lines) - 1}),
            )
        ]  # fmt: skip
        left = [
            [orders, str(count), f"geomatt reproduce table3 --part {orders.replace(',', '')} --device cuda"]
            for orders in ORDERS
            if (count := len(molecules) - len(rows[orders]))
        ]
        return [*tables, left_table(left)]

    def summary(self, result: Mapping[str, Any]) -> str:
        molecules, rows = result["molecules"], result["rows"]
        sentences = []
        if result["settings"]["stand_in"]:
            sentences.append("**MD17 was not found: the package's own ethanol data (GFN2-xTB) stand in.**")
        averages = {o: column_mean(errors_of(rows[o].get(m)) for m in molecules) for o in ORDERS}
        whole = {o: found for o, found in averages.items() if found is not None}
        if len(whole) < len(ORDERS):
            done = ", ".join(whole) or "none"
            return " ".join([*sentences, f"Order sets finished for all molecules: {done}."])
        energies, forces = ([whole[o][i] for o in ORDERS] for i in (0, 1))
        for what, values in (("energies", energies), ("forces", forces)):
            holds = "falls" if values[0] > values[1] > values[2] else "does not fall steadily"
            shown = " → ".join(f"{v:.2f}" for v in values)
            sentences.append(f"The mean error of {what} {holds} from 2,2,2 to 2,3,3 to 2,3,4: {shown}.")
        better = sum(
            rows["2,3,4"][m][key] < rows["2,2,2"][m][key]
            for m in molecules
            for key in ("energy_mae", "force_mae")
        )
        good = sum(no_worse(errors_of(rows[o][m]) or (), GEOMATT[o][m]) for o in ORDERS for m in molecules)
        sentences.append(
            f"2,3,4 is better than 2,2,2 in {better} of {2 * len(molecules)} cells; {good} of "
            f"{6 * len(molecules)} cells are no worse than the published ones."
        )
        return " ".join(sentences)


EXPERIMENT = Table3()
