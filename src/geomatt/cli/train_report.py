"""The end of a training run: errors on test structures, tables, pages, and what to run next."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from geomatt.cli.console import bars, duration, note, output, progress_bar
from geomatt.cli.train_display import peak_memory_text, summary_table
from geomatt.errors import GeomAttError
from geomatt.evaluation import EvaluationResult, evaluate, parity_plot

if TYPE_CHECKING:
    from geomatt.data.dataset import Dataset
    from geomatt.data.splits import Split
    from geomatt.training import TrainConfig, TrainResult


def report_run(
    results: Sequence[TrainResult],
    dataset: Dataset,
    splits: Sequence[Split],
    config: TrainConfig,
    out: Path,
    *,
    pages: bool,
) -> None:
    """The closing table, HTML pages if asked for, and the next command."""
    for result in results:
        if result.already_finished:
            note(
                f"{result.folder} is finished: {result.finished} after {result.epochs} epochs. "
                "To go on, --resume with more --epochs."
            )
    chosen = list(splits) if config.has_members else [splits[config.member or 0]]
    tested = [_test(r, dataset, split) for r, split in zip(results, chosen, strict=True)]
    output.print(summary_table(results, tested))
    last = results[-1]
    if len(results) == 1 and not last.already_finished:
        note(f"Ended because of: {last.finished}; {last.epochs} epochs in {duration(last.seconds)}.")
    if peak := peak_memory_text(results):
        note(peak)
    used = np.unique(np.concatenate([part for s in chosen for part in (s.train, s.validation)]))
    target = out if config.has_members else last.folder / "model.safetensors"
    commands = _next_commands(config, target, untested=len(used) < len(dataset))
    if pages:
        _write_pages(results, dataset, chosen, tested, commands, out)
    if len(used) == len(dataset):
        note(
            "All structures were used to train and validate, so none is left to test on. "
            "Name other data with --test-data, or leave some out with --train and --val."
        )
    note("\n  ".join(["next:", *commands]))


def _test(result: TrainResult, dataset: Dataset, split: Split) -> EvaluationResult | None:
    """Errors on the test structures, with a parity plot in the run's folder."""
    if not len(split.test):
        return None
    with progress_bar("testing", len(split.test)) as advance:
        tested = evaluate(result.potential, dataset, indices=split.test, unit=result.unit, progress=advance)
    parity_plot(tested, result.folder / "parity.png")
    return tested


def _next_commands(config: TrainConfig, target: Path, *, untested: bool) -> list[str]:
    """Commands to run next; `untested` if there are frames that were not used in training."""
    asked = [(f"--{what}-unit", getattr(config, f"{what}_unit")) for what in ("energy", "length", "force")]
    asked += [("--key", f"{name}={key}") for name, key in config.keys.items()]
    options = "".join(f" {flag} {value}" for flag, value in asked if value)
    files = (config.test_data or (config.data, *config.more_data)) if untested else ()
    evaluations = [f"geomatt evaluate {target} {name}{options}" for name in files]
    return [*evaluations, f"geomatt explain {target} YOUR_MOLECULE.xyz -o explain.html"]


def _write_pages(
    results: Sequence[TrainResult],
    dataset: Dataset,
    splits: Sequence[Split],
    tested: Sequence[EvaluationResult | None],
    commands: Sequence[str],
    out: Path,
) -> None:
    """A page for every model, and one for all members of a run."""
    from geomatt.model import load
    from geomatt.pages import members_report, run_report
    from geomatt.pages.reports import REPORT

    try:
        with bars() as tell:
            for number, (result, split, errors) in enumerate(zip(results, splits, tested, strict=True)):
                page = run_report(
                    result, dataset, split, errors, commands=commands, dynamics=number == 0, progress=tell
                )
                path = page.save(result.folder / REPORT)
            if results[0].folder != out:  # a run with members
                page = members_report(
                    load(out), results, dataset, splits, tested, commands=commands, progress=tell
                )
                path = page.save(out / REPORT)
    except GeomAttError as error:  # the models are there all the same
        note(f"No report was written: {error}", style="yellow")
    else:
        note(f"Report: {path}")
