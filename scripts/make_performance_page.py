"""Write docs/performance.md and its pictures from results/bench_*.json: no number in it is typed.

python scripts/make_performance_page.py
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from geomatt.bench import read_result, words
from geomatt.bench.plot import curves_plot, scaling_plot
from geomatt.bench.workbench import FASTER, STEP, target_checks

ROOT = Path(__file__).resolve().parents[1]
PLOT, CURVES = "scaling.png", "learning.png"

HEAD = """\
# Performance

This page is generated from the result files of `geomatt bench` ({files}) by
`scripts/make_performance_page.py`; no number is typed by hand. To measure on your machine:

    pip install 'geomatt[bench]'
    geomatt bench --json mine.json --plot scaling.png

**How.** Contenders run in turns within one process, and every time stands beside a baseline of the same
round. Times are medians with quartiles; a ratio is the number of times faster than the baseline. The baseline
is PyTorch Geometric's SchNet: 128 features, 128 filters, 3 interactions, 50 Gaussians, cutoff 5 Å, eager, its
pairs computed ahead, the same loss and Adam. "Literal" is the network as the paper writes it, with automatic
differentiation. Precision is float32 unless a table says otherwise; on a GPU training steps of pair states
multiply in TF32, which is what their exactness shows. Pair states are timed without the bounds that training
adds at its end. Measured are `geomatt`, the paper's
network, and pair states in size S (`pair:channels=64`), M (`pair`) and L (`pair:rounds=5`); MACE and NequIP
beside them where they are installed. Targets are those of the current version, applied to the measured times.

**On what.** Aspirin (21 atoms) at its GFN2-xTB minimum with 0.05 Å of noise on every coordinate, and random
C, H, O and N at 0.1 atoms/Å³ with no two atoms closer than 0.9 Å, in open space or, for pair states, in a
periodic cell; for random matter the paper's network has no bias unless a table says otherwise, and pair
states a radius of 5 Å. The benchmark makes both. The molecules of the row on members have the sizes of the
paper's Table 1 and are cut from aspirin.

**The floor.** Operations and bytes are counted: the algebra with k = 2 collapsed, every pair once and all
basis functions (`geomatt/model/geometric_attention/work.py`),
against a large matrix product and a large copy in float32
measured in the same run. "Over floor" is the measured time over the larger of the two times. Bytes are only
those that must move if every intermediate number stayed in the caches. Tensor cores can do a float32 product
as three bfloat16 ones, and could go below this floor; each machine's ceilings say by how much. So could a
CPU, where overlap functions are interpolated between nodes, with fewer operations than are counted.
"""
EXACTNESS = """\
Exactness: the largest relative error of an energy, and the largest error of a force over their root mean
square. For a training step: of the loss, and of the gradient in norm.
"""
SCALING = """\
Random matter, energy and forces. Setup is the neighbour search, done once for many steps. "Dynamics" are
whole steps in a periodic cell as `geomatt md` does them, with the neighbour search.
"""
LEARNING = """\
## Learning

The embedded ethanol trained twice from the same weights on the same batches: by the fast engine, and by
automatic differentiation of the network. {result}.

![Validation errors over epochs]({picture})
"""


def main() -> None:
    results = committed_results()
    (ROOT / "docs" / "performance.md").write_text(performance_page(results), encoding="utf-8")
    if any(result["scaling"] for result in results.values()):
        scaling_plot(list(results.values()), ROOT / "docs" / PLOT)
    if learned := learning(results.values()):
        curves_plot(learned, ROOT / "docs" / CURVES)
    print(f"docs/performance.md from {len(results)} result files")


def committed_results() -> dict[str, dict[str, Any]]:
    """Result dictionaries by the names of their files."""
    files = sorted((ROOT / "results").glob("bench_*.json"))
    return {f"results/{path.name}": with_targets(read_result(path)) for path in files}


def with_targets(result: dict[str, Any]) -> dict[str, Any]:
    """The result with today's targets of its rows: some are newer than the measurement."""
    device = result["settings"]["device"].partition(":")[0]
    rows = []
    for row in result["rows"]:
        ours, other = row["ours"], row["baseline"]["name"]
        today = target_checks(
            ours["name"], device, row["suite"], other, ours["median"], row["ratio"]["median"]
        )
        measured = [check for check in row["checks"] if check["what"] not in (STEP, FASTER)]
        rows.append({**row, "checks": [*map(asdict, today), *measured]})
    return {**result, "rows": rows}


def performance_page(results: dict[str, dict[str, Any]]) -> str:
    """The page from result dictionaries by the names of their files."""
    parts = [HEAD.format(files=", ".join(f"`{name}`" for name in results))]
    parts += [_section(name, result) for name, result in results.items()]
    if any(r["scaling"] for r in results.values()):
        parts.append(
            "## Scaling\n\nTime and peak memory per atom; bands are quartiles.\n\n"
            f"![Time and memory per atom against the number of atoms]({PLOT})\n"
        )
    learned = learning(results.values())
    if learned is not None:
        said = words.curves(learned)
        parts.append(LEARNING.format(result=said[0].upper() + said[1:], picture=CURVES))
    return "\n".join(parts)


def learning(results: Iterable[dict[str, Any]]) -> dict[str, Any] | None:
    """The first result that compares trainings."""
    return next((r for r in results if r.get("curves")), None)


def _section(name: str, result: dict[str, Any]) -> str:
    lines = [
        f"## {result['machine']['hardware']}",
        "",
        f"- machine: {words.machine_line(result)}",
        f"- ceilings: {words.ceilings(result)}",
        f"- TF32 in torch's products: {'on' if result['machine']['tf32'] else 'off'}",
        f"- result file: `{name}`",
        f"- targets: {words.targets(result)}",
        *(f"- note: {note}" for note in result["notes"]),
        "",
        *_rows(result["rows"]),
    ]
    if result["exactness"]:
        lines += ["", EXACTNESS, *_table(words.EXACTNESS, map(words.exactness, result["exactness"]))]
    if result["scaling"]:
        lines += ["", SCALING, *_table(words.SCALING, map(words.scaling, result["scaling"]))]
    work = [row for row in result["rows"] if row["floor"]]
    if work:
        lines += ["", "Operations and bytes of a step:", "", *_work(work)]
    return "\n".join(lines) + "\n"


def _rows(rows: Sequence[dict[str, Any]]) -> list[str]:
    cells = [words.row(row) for row in rows]
    for row, own in zip(rows, cells, strict=True):
        own["what"] += f" ({row['note']})" if row["note"] else ""
        own["target"] = "; ".join(map(words.check, row["checks"])) or "–"
    return _table(list(cells[0]) if cells else [], [list(own.values()) for own in cells])


def _work(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Each kind of step once: rows differ by their baselines."""
    distinct = {(row["ours"]["name"], row["what"]): row["floor"] for row in rows}
    head = ("what", "measured", "operations", "of which", "bytes", "floor")

    def shares(operations: dict[str, float]) -> str:
        total = sum(operations.values())
        return ", ".join(f"{part} {100 * count / total:.0f} %" for part, count in operations.items())

    return _table(
        head,
        (
            (
                what,
                name,
                f"{sum(floor['work']['operations'].values()):.3g}",
                shares(floor["work"]["operations"]),
                f"{sum(floor['work']['bytes'].values()):.3g}",
                words.seconds(floor["seconds"]),
            )
            for (name, what), floor in distinct.items()
        ),
    )


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)]


if __name__ == "__main__":
    main()
