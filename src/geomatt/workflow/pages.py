"""Pages of the workflows, from the parts of all reports."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from geomatt.evaluation import EvaluationResult
from geomatt.model import AnyPotential
from geomatt.pages import Block, Page, evaluation_report
from geomatt.pages.page import facts, heading, next_steps, notes, table, text_block
from geomatt.pages.reports import learning_curves
from geomatt.training.folder import HISTORY
from geomatt.workflow.report import ROUND_HEADINGS, dynamics_line, round_rows


def auto_page(
    model: AnyPotential,
    tested: EvaluationResult,
    folder: Path,
    data: Mapping[str, Any],
    warnings: Sequence[str],
    motion: Mapping[str, Any],
) -> Page:
    """A force field that was made from a molecule: data, learning curves, errors, attention, dynamics."""
    page = evaluation_report(model, tested)
    method = data.get("made_by", {}).get("method", {}).get("calculator", "a reference method")
    about = [["data", f"{data.get('frames', len(tested.data))} frames, labelled with {method}"]]
    blocks: list[Block] = [facts(about), *notes(warnings)]
    blocks += _curves(folder, model, tested.unit)
    blocks.append(heading(f"Errors on {len(tested.data)} frames of other stretches of the trajectories"))
    after: list[Block] = [
        heading("Dynamics at constant energy"),
        text_block(dynamics_line(dict(motion)), note=bool(motion.get("failure"))),
        *next_steps(
            [
                f"geomatt md {folder} MOLECULE.xyz --temperature 300 --time 10",
                f"geomatt explain {folder} MOLECULE.xyz -o explain.html",
                f"geomatt improve {folder} {folder.parent / 'data.npz'} --out BETTER",
            ]
        ),
    ]
    name = tested.data.name or "a molecule"
    return dataclasses.replace(page, title=f"A force field of {name}", blocks=[*blocks, *page.blocks, *after])


def improvement_page(
    model: AnyPotential, tested: EvaluationResult, folder: Path, rounds: Sequence[Mapping[str, Any]]
) -> Page:
    """The gains of the rounds of `improve`, and the errors of the last model."""
    page = evaluation_report(model, tested)
    note = "Frames that were not trained on. New frames are those the round has labelled."
    gained = table("Force MAE (meV/Å)", ROUND_HEADINGS, round_rows(rounds), note=note)
    errors = heading(f"Errors of the last model on {len(tested.data)} frames that no round was trained on")
    blocks: list[Block] = [gained, *_curves(folder, model, tested.unit), errors]
    steps = next_steps([f"geomatt explain {folder} MOLECULE.xyz -o explain.html"])
    name = tested.data.name or "a model"
    return dataclasses.replace(page, title=f"Improved: {name}", blocks=[*blocks, *page.blocks, *steps])


def _curves(folder: Path, model: AnyPotential, unit: str) -> list[Block]:
    """Learning curves of a run, or of its members."""
    own = {p.parent.name: p for p in sorted(folder.glob(f"member_*/{HISTORY}"))} or {"run": folder / HISTORY}
    return learning_curves(own, unit, model.record.get("settings", {}))
