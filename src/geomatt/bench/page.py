"""The documentation page on performance, made from result files: no number in it is typed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from geomatt.bench import words

HEAD = """\
# Performance

This page is generated from the result files of `geomatt bench` ({files}) by
`scripts/make_performance_page.py`; no number is typed by hand. To measure on your machine:

    pip install geomatt[bench]
    geomatt bench --json mine.json --plot scaling.png

**How.** Contenders run in turns within one process, and every time stands beside a baseline of the same
round. Times are medians with quartiles; a ratio says how many times faster than the baseline. The baseline is
PyTorch Geometric's SchNet: 128 features, 128 filters, 3 interactions, 50 Gaussians, cutoff 5 Å, eager, its
pairs computed ahead, the same loss and Adam. "Literal" is the paper's equations written down as they stand,
with automatic differentiation and with denormal numbers as they come. Precision is float32 unless a table
says otherwise.

**On what.** Aspirin (21 atoms) at its GFN2-xTB minimum with 0.05 Å of noise on every coordinate, and random
C, H, O and N at 0.1 atoms/Å³ with no two atoms closer than 0.9 Å, in open space; models of random matter have
no bias unless a table says otherwise. Both are made by the benchmark itself. The molecules of the members'
row have the sizes of the paper's Table 1 and are cut from aspirin.

**The floor.** Operations and bytes are counted, not guessed: the algebra with k = 2 collapsed, every pair
once and all basis functions (`geomatt/bench/floor.py`), against a large matrix product and a large copy
in float32 measured in the same run. "Over floor" is the measured time over the larger of the two times. Bytes
are only those that must move if every intermediate number stayed in the caches. Tensor cores can do a float32
product as three bfloat16 ones, and could go below this floor; each machine's ceilings say by how much. So
could a CPU, where overlap functions are interpolated between nodes, with fewer operations than are counted.
"""


def performance_page(results: dict[str, dict[str, Any]], plot: str, curves: str) -> str:
    """The page from result dictionaries by the names of their files, and the names of its pictures."""
    parts = [HEAD.format(files=", ".join(f"`{name}`" for name in results))]
    for name, result in results.items():
        parts.append(_section(name, result))
    if any(r["scaling"] for r in results.values()):
        parts.append(
            "## Scaling\n\nTime and peak memory per atom; bands are quartiles.\n\n"
            f"![Time and memory per atom against the number of atoms]({plot})\n"
        )
    learned = learning(results.values())
    if learned is not None:
        parts.append(
            "## Learning\n\nThe embedded ethanol trained twice from the same weights on the same batches: by "
            "the fast path, and by the\nliteral equations with automatic differentiation and torch's Adam. "
            f"{_sentence(words.curves(learned))}.\n\n![Validation errors over epochs]({curves})\n"
        )
    return "\n".join(parts)


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]


def learning(results: Iterable[dict[str, Any]]) -> dict[str, Any] | None:
    """The first result that compares trainings."""
    return next((r for r in results if r.get("curves")), None)


def _section(name: str, result: dict[str, Any]) -> str:
    lines = [f"## {result['machine']['hardware']}", ""]
    lines += [f"- machine: {words.machine(result)}", f"- ceilings: {words.ceilings(result)}"]
    lines += [f"- TF32 in torch's products: {'on' if result['machine']['tf32'] else 'off'}"]
    lines += [f"- result file: `{name}`", f"- targets: {words.targets(result)}"]
    lines += [f"- note: {note}" for note in result["notes"]]
    lines += ["", *_rows(result["rows"])]
    if result["exactness"]:
        lines += [
            "",
            "Exactness: the energy's largest relative error, and the largest error of a force over their",
        ]
        lines += ["root mean square. For a training step: of the loss, and of the gradient in norm.", ""]
        lines += _exactness(result["exactness"])
    if result["scaling"]:
        lines += [
            "",
            "Random matter, energy and forces. Setup is the neighbour search, done once for many steps.",
            "",
        ]
        lines += _table(words.SCALING, map(words.scaling, result["scaling"]))
    work = [row for row in result["rows"] if row["floor"]]
    if work:
        lines += ["", "Operations and bytes of a step:", "", *_work(work)]
    return "\n".join(lines) + "\n"


def _rows(rows: Sequence[dict[str, Any]]) -> list[str]:
    head = ("what", "geomatt", "baseline", "", "faster by", "target", "over floor", "kernels")
    return _table(
        head,
        (
            (
                row["what"] + (f" ({row['note']})" if row["note"] else ""),
                words.timing(row["ours"]),
                row["baseline"]["name"],
                words.timing(row["baseline"]),
                words.ratio(row["ratio"]),
                "; ".join(map(words.check, row["checks"])) or "–",
                words.floor(row["floor"]),
                words.kernels(row["ours"]),
            )
            for row in rows
        ),
    )


def _exactness(entries: Sequence[dict[str, Any]]) -> list[str]:
    def verdict(checks: list[dict[str, Any]]) -> tuple[str, str]:
        if not checks:
            return "–", "–"
        return f"{checks[0]['goal']:.0e}", "met" if all(c["met"] for c in checks) else "missed"

    rows = ((*words.exactness(e), *verdict(e["checks"])) for e in entries)
    return _table((*words.EXACTNESS, "target", ""), rows)


def _work(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Each kind of step once: rows differ by their baselines."""
    distinct = {row["what"]: row["floor"] for row in rows}
    head = ("what", "operations", "of which", "bytes", "floor")

    def shares(operations: dict[str, float]) -> str:
        total = sum(operations.values())
        return ", ".join(f"{part} {100 * count / total:.0f} %" for part, count in operations.items())

    return _table(
        head,
        (
            (
                what,
                f"{sum(floor['work']['operations'].values()):.3g}",
                shares(floor["work"]["operations"]),
                f"{sum(floor['work']['bytes'].values()):.3g}",
                words.seconds(floor["seconds"]),
            )
            for what, floor in distinct.items()
        ),
    )


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)]
