"""The report of a run with several members: each beside the others, and what they are together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from geomatt.data.dataset import Dataset
from geomatt.data.splits import Split
from geomatt.evaluation import EvaluationResult, evaluate
from geomatt.model import AnyPotential
from geomatt.pages.error_blocks import error_blocks
from geomatt.pages.explorer import Progress, describe
from geomatt.pages.page import Block, Page, heading, next_steps, table
from geomatt.pages.reports import REPORT, attention_blocks, data_checks, learning_curves, typical_frame
from geomatt.training import TrainResult
from geomatt.training.folder import HISTORY
from geomatt.units import from_ev


def members_report(
    committee: AnyPotential,
    results: Sequence[TrainResult],
    dataset: Dataset,
    splits: Sequence[Split],
    tested: Sequence[EvaluationResult | None],
    *,
    commands: Sequence[str] = (),
    progress: Progress | None = None,
) -> Page:
    """The members of a run side by side, their mean on frames that none has seen, and its spread."""
    unit = results[0].unit
    together = _together(committee, dataset, splits, unit)
    blocks: list[Block] = [_table(results, tested, together)]
    links = {result.folder.name: f"{result.folder.name}/{REPORT}" for result in results}
    blocks.append({"kind": "links", "text": "Each member has a page of its own:", "items": links})
    histories = {result.folder.name: result.folder / HISTORY for result in results}
    blocks += learning_curves(histories, unit, committee.record.get("settings", {}))
    if together is not None:
        blocks.append(heading(f"The mean of the members on {len(together.data)} test frames"))
        blocks += error_blocks(together, dataset.select(splits[0].train))
    blocks += data_checks(dataset)
    attention, arrays = attention_blocks(committee, typical_frame(dataset, splits[0]), unit, progress)
    name = committee.record.get("data", {}).get("name") or "unnamed data"
    title = f"Training run: {name}, {len(results)} members"
    return Page(title, describe(committee), [*blocks, *attention, *next_steps(commands)], arrays)


def _together(
    committee: AnyPotential, dataset: Dataset, splits: Sequence[Split], unit: str
) -> EvaluationResult | None:
    """Errors of the mean on test frames that no member was trained or validated on."""
    used = np.concatenate([part for s in splits for part in (s.train, s.validation)])
    left = np.setdiff1d(np.concatenate([s.test for s in splits]), used)
    return evaluate(committee, dataset, indices=left, unit=unit) if len(left) else None


def _table(
    results: Sequence[TrainResult],
    tested: Sequence[EvaluationResult | None],
    together: EvaluationResult | None,
) -> Block:
    unit, factor = results[0].unit, from_ev(results[0].unit)
    rows: list[list[str]] = []

    def add(
        name: str, validation: tuple[float | None, float | None], errors: EvaluationResult | None
    ) -> None:
        test = (None, None) if errors is None else (errors.overall.energy_mae, errors.overall.forces_mae)
        rows.append([name, *("–" if v is None else f"{factor * v:.4g}" for v in (*validation, *test))])

    for result, errors in zip(results, tested, strict=True):
        best = result.best_errors
        add(result.folder.name, (best.get("energy_mae"), best.get("force_mae")), errors)
    if together is not None:
        add("their mean", (None, None), together)
    header = ["", f"validation: energy ({unit})", f"forces ({unit}/Å)", "test: energy", "forces"]
    note = "The last row is the committee: the mean of the predictions." if together is not None else ""
    strong = [len(rows) - 1] if together is not None else []
    return table("Mean absolute errors", header, rows, note=note, strong=strong)
