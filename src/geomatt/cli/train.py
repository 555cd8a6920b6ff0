"""`geomatt train` and `geomatt transfer`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from geomatt.cli.console import console, note, output
from geomatt.cli.generated import from_anywhere, with_settings
from geomatt.cli.options import Dask, Processes, set_up
from geomatt.errors import GeomAttError
from geomatt.training.config import OPTIM, RUN

if TYPE_CHECKING:
    from geomatt.data.splits import Split
    from geomatt.data.structures import Dataset
    from geomatt.evaluation import EvaluationResult
    from geomatt.training import TrainConfig, TrainResult


def _option(flag: str, text: str, panel: str = RUN) -> Any:
    return typer.Option(flag, help=text, rich_help_panel=panel, show_default=False)


Data = Annotated[
    list[str] | None,
    typer.Argument(help="Files, or names such as md17/ethanol; several are joined.", show_default=False),
]
Out = Annotated[Path, _option("--out", "Folder for the model and all that belongs to it.")]
Config = Annotated[Path | None, _option("--config", "Take settings from a run's config.toml.")]
Resume = Annotated[bool, _option("--resume", "Continue the run in --out, bit by bit.")]
Every = Annotated[float, _option("--checkpoint-every", "Seconds between checkpoints; 0: every epoch.")]
Board = Annotated[bool, _option("--tensorboard", "Write curves for TensorBoard, too.")]
Report = Annotated[
    bool, typer.Option("--report/--no-report", help="Write report.html at the end.", rich_help_panel=RUN)
]
Compare = Annotated[
    bool,
    typer.Option(
        "--compare/--no-compare",
        help="Train from scratch on the same frames, too, and say which is better.",
        rich_help_panel=RUN,
    ),
]
Unfreeze = Annotated[
    list[str] | None, _option("--unfreeze", "Train this part too, or all (repeatable).", OPTIM)
]


@with_settings(networks=True)
def train(
    out: Out,
    settings: dict[str, Any],
    data: Data = None,
    config: Config = None,
    resume: Resume = False,
    checkpoint_every: Every = 30.0,
    tensorboard: Board = False,
    workers: Processes = 1,
    dask: Dask = None,
    report: Report = True,
) -> None:
    """Train a force field on a trajectory or any labelled structures.

    Leaves model.safetensors (the best epoch, usable while training goes on),
    history.csv, config.toml, pictures and report.html in --out. Ctrl-C saves; --resume continues.

    A finished run goes on with --resume and more --epochs. A cosine then rises and
    falls once more over the new epochs, to a --learning-rate of your choice.
    """
    settings |= _files(data or [])
    how = _Manner(out, resume, checkpoint_every, tensorboard, report, workers, dask)
    _run(settings, _stored(out, config, resume), how)


@with_settings(networks=False, leave_out=("member", "model", "engine"))
def transfer(
    model: Annotated[
        Path, typer.Argument(help="The base: a model file, a run, or md17/benzene.", show_default=False)
    ],
    data: Annotated[
        list[str], typer.Argument(help="Files, or names such as md17/ethanol.", show_default=False)
    ],
    out: Out,
    settings: dict[str, Any],
    unfreeze: Unfreeze = None,
    resume: Resume = False,
    checkpoint_every: Every = 30.0,
    tensorboard: Board = False,
    report: Report = True,
    compare: Compare = True,
) -> None:
    """Carry a model over to new data: all of it stays fixed but the readout, as in the paper.

    It pays where the new molecules are much like those of the base and labels are few:
    bonds and angles the base never saw are not learned by the readout. With more data,
    train from scratch, or --unfreeze all. To see which is better, a network is trained
    from scratch on the same frames, for as many epochs, in scratch/ (--no-compare leaves
    it out). The elements of the new data must be among those of the base. The
    normalisation is fitted anew. By default the paper's recipe for 1000 epochs.
    """
    from geomatt.training.recipes import TRANSFER_EPOCHS
    from geomatt.training.start import base_settings, load_base

    stored = _stored(out, None, resume)
    given = {**settings, **_files(data), "base": from_anywhere(str(model))}
    if unfreeze:
        given["unfreeze"] = tuple(unfreeze)
    if stored is None:
        base = load_base(given["base"])
        given = {"recipe": "paper", "epochs": TRANSFER_EPOCHS, **given, **base_settings(base)}
    _run(given, stored, _Manner(out, resume, checkpoint_every, tensorboard, report, compare=compare))


def _files(data: Sequence[str]) -> dict[str, Any]:
    """The settings for the data files, if there are any."""
    names = tuple(map(from_anywhere, data))
    return {"data": names[0], "more_data": names[1:]} if names else {}


def _stored(out: Path, config: Path | None, resume: bool) -> dict[str, Any] | None:
    """Settings to start from: those of the run to resume, or of the configuration file."""
    from geomatt.training.config import read_settings
    from geomatt.training.members import stored_settings

    if resume and config is not None:
        raise GeomAttError("--resume takes the settings of the run itself: leave --config out.")
    if resume:
        return stored_settings(out)
    return None if config is None else read_settings(config)


@dataclass(frozen=True)
class _Manner:
    """How a run is carried out: none of this is a setting of the model."""

    out: Path
    resume: bool
    checkpoint_every: float
    tensorboard: bool
    report: bool
    workers: int = 1
    dask: str | None = None
    compare: bool = False  # a transfer with training from scratch

    @property
    def spread(self) -> bool:
        """True if members are trained in other processes."""
        return self.workers > 1 or self.dask is not None


def _run(given: dict[str, Any], stored: dict[str, Any] | None, how: _Manner) -> None:
    """Resolve the settings, join other processes if there are any, train and report."""
    import torch

    from geomatt.training import resolve
    from geomatt.training.team import join

    if not how.checkpoint_every >= 0:
        raise GeomAttError(f"--checkpoint-every must not be negative, not {how.checkpoint_every}.")
    if stored is None:
        given.setdefault("device", "cuda" if torch.cuda.is_available() else "cpu")
    config = resolve(given, stored)
    with join(config.device) as us:
        if not us.leads:
            console.quiet = output.quiet = True
        _train_and_report(config, how, us.leads, fresh=stored is None)


def _train_and_report(config: TrainConfig, how: _Manner, leads: bool, fresh: bool) -> None:
    """Read the data, train, and report the result and the next command."""
    from geomatt.cli.train_display import announce, live_progress
    from geomatt.training import Interrupted, TrainProgress, train_members
    from geomatt.training.dataset import (
        check_tests,
        load_dataset,
        make_splits,
        resolve_inputs,
        resolve_sizes,
        unwanted,
    )
    from geomatt.training.folder import refuse_used
    from geomatt.training.start import fresh_network, load_base
    from geomatt.training.team import team
    from geomatt.training.tensorboard import tensorboard_callback

    out, resume = how.out, how.resume
    if leads:
        refuse_used(out, resume)  # before time is spent on reading
    dataset, parts = load_dataset(config)
    announce(dataset)
    config = resolve_sizes(config, parts.data)
    if fresh:
        asked, config = config.network, resolve_inputs(config, dataset)
        if config.network.get("radius") != asked.get("radius"):
            note(f"The data is periodic: interactions end at {config.network['radius']:g} Å (--radius).")
        if config.network.get("electrons") != asked.get("electrons"):
            note("The data has charges or unpaired electrons: they are inputs of the network (--electrons).")
    splits = make_splits(config, parts, unwanted(config, dataset))
    base = load_base(config.base) if config.base else None
    check_tests(dataset, splits, base)  # not after hours of training
    board = tensorboard_callback(out) if how.tensorboard and leads else None
    _describe(config, splits, out)
    set_up(fresh_network(config, (1,), 0).engine(config.engine), config.device)
    try:
        if how.spread:
            _spread(config, how)
            resume = True
        with live_progress() as show:

            def tell(progress: TrainProgress) -> None:
                show(progress)
                if board is not None:
                    board(progress)

            results = train_members(
                dataset,
                splits,
                config,
                out,
                resume=resume,
                base=base,
                callback=tell,
                checkpoint_every=how.checkpoint_every,
            )
        if config.base and how.compare and team().size == 1:
            _compare(dataset, splits[0], config, results[0], how)
    except Interrupted as stopped:
        note(
            f"Stopped after {stopped.epoch} epochs; everything is saved. Continue with:\n"
            f"  geomatt {_command(config, how)} --out {out} --resume"
        )
        raise typer.Exit(128 + stopped.signal_number) from None
    if leads:
        _report(results, dataset, splits, config, how)


def _command(config: TrainConfig, how: _Manner) -> str:
    """The command that continues a run."""
    if not (config.base and how.compare):
        return "train"
    return " ".join(["transfer", config.base, config.data, *config.more_data])


def _compare(
    dataset: Dataset, split: Split, config: TrainConfig, transferred: TrainResult, how: _Manner
) -> None:
    """Train from scratch and say whether the transfer paid."""
    from geomatt.cli.train_display import comparison_table, live_progress
    from geomatt.training.scratch import SCRATCH, compare_with_scratch

    folder = transferred.folder / SCRATCH
    note(f"For comparison from scratch, in {folder} (--no-compare leaves it out)")
    with live_progress() as show:
        found = compare_with_scratch(
            dataset, split, config, transferred, callback=show, checkpoint_every=how.checkpoint_every
        )
    if found is None:
        return
    output.print(comparison_table(found, transferred.unit))
    if found.paid:
        note("The transfer paid: it is better than training from scratch for as many epochs.")
    elif found.from_scratch < found.zero_forces:
        note(f"Training from scratch is better here: use {folder}/model.safetensors.", style="yellow")
    else:
        note("Neither is better than no forces at all: train longer, or on more frames.", style="yellow")


def _spread(config: TrainConfig, how: _Manner) -> None:
    """Train members in other processes."""
    from geomatt.cli.console import rate_bar
    from geomatt.data.make import open_workers
    from geomatt.training.spread import spread_members

    total = config.epochs * config.member_count
    try:
        with (
            open_workers(how.workers, how.dask) as pool,
            rate_bar("training", total, "epochs") as advance,
        ):
            every = how.checkpoint_every
            spread_members(config, how.out, pool, resume=how.resume, checkpoint_every=every, progress=advance)
    except KeyboardInterrupt:
        note(f"Stopped; members are saved. Continue with:\n  geomatt train --out {how.out} --resume")
        raise typer.Exit(130) from None


def _describe(config: TrainConfig, splits: Sequence[Split], out: Path) -> None:
    first = splits[0]
    members = f", {config.member_count} members" if config.has_members else ""
    note(
        f"Training on {len(first.train)}, validating on {len(first.validation)} structures "
        f"({first.kind} split{members}); recipe {config.recipe}, up to {config.epochs} epochs, "
        f"{config.device}, {config.dtype}; output in {out}"
    )


def _report(
    results: Sequence[TrainResult],
    dataset: Dataset,
    splits: Sequence[Split],
    config: TrainConfig,
    how: _Manner,
) -> None:
    """The closing table, and the next command."""
    import numpy as np

    from geomatt.cli.train_display import duration, peak_memory_text, summary_table

    for result in results:
        if result.already_finished:
            note(
                f"{result.folder} is finished: {result.finished} after {result.epochs} epochs. "
                "To go on, --resume with more --epochs."
            )
    chosen = list(splits) if config.has_members else [splits[config.member or 0]]
    tested = [_test(r, dataset, split) for r, split in zip(results, chosen, strict=True)]
    output.print(summary_table(results, [_both(t) for t in tested]))
    last = results[-1]
    if len(results) == 1 and not last.already_finished:
        note(f"Ended because of: {last.finished}; {last.epochs} epochs in {duration(last.seconds)}.")
    if peak := peak_memory_text(results):
        note(peak)
    used = np.unique(np.concatenate([np.concatenate([s.train, s.validation]) for s in chosen]))
    target = how.out if config.has_members else last.folder / "model.safetensors"
    commands = _next_commands(config, target, untested=len(used) < len(dataset))
    if how.report:
        _write_reports(results, dataset, chosen, tested, commands, how.out)
    if len(used) == len(dataset):
        note(
            "All structures were used to train and validate, so none is left to test on. "
            "Name other data with --test-data, or leave some out with --train and --val."
        )
    lines = "\n  ".join(commands)
    note(f"Next:\n  {lines}")


def _next_commands(config: TrainConfig, target: Path, *, untested: bool) -> list[str]:
    """What to run next; `untested` if there are frames that were not used in training."""
    asked = [("--energy-unit", config.energy_unit), ("--length-unit", config.length_unit)]
    asked += [("--force-unit", config.force_unit)]
    asked += [("--key", f"{name}={key}") for name, key in config.keys.items()]
    options = "".join(f" {flag} {value}" for flag, value in asked if value)
    files = " ".join(config.test_data[:1]) or config.data
    evaluate = [f"geomatt evaluate {target} {files}{options}"] if untested else []
    return [*evaluate, f"geomatt explain {target} YOUR_MOLECULE.xyz -o explain.html"]


def _write_reports(
    results: Sequence[TrainResult],
    dataset: Dataset,
    splits: Sequence[Split],
    tested: Sequence[EvaluationResult | None],
    commands: Sequence[str],
    out: Path,
) -> None:
    """A page for every model, and one for all members of a run."""
    from geomatt.cli.explain import progress_of_page
    from geomatt.model import Committee, load
    from geomatt.pages import members_report, run_report
    from geomatt.pages.reports import REPORT

    try:
        with progress_of_page() as tell:
            for number, (result, split, errors) in enumerate(zip(results, splits, tested, strict=True)):
                page = run_report(
                    result, dataset, split, errors, commands=commands, dynamics=number == 0, progress=tell
                )
                path = page.save(result.folder / REPORT)
            committee = load(out) if results[0].folder != out else None
            if isinstance(committee, Committee):
                page = members_report(
                    committee, results, dataset, splits, tested, commands=commands, progress=tell
                )
                path = page.save(out / REPORT)
    except GeomAttError as error:  # the models are there all the same
        note(f"No report was written: {error}", style="yellow")
    else:
        note(f"Report: {path}")


def _test(result: TrainResult, dataset: Dataset, split: Split) -> EvaluationResult | None:
    """Errors on the test structures, with a parity plot in the run's folder."""
    from geomatt.cli.console import progress_bar
    from geomatt.evaluation import evaluate, parity_plot

    if not len(split.test):
        return None
    with progress_bar("testing", len(split.test)) as advance:
        tested = evaluate(result.potential, dataset, indices=split.test, unit=result.unit, progress=advance)
    parity_plot(tested, result.folder / "parity.png")
    return tested


def _both(tested: EvaluationResult | None) -> tuple[float, float] | None:
    """Energy and force MAE, eV and eV/Å."""
    if tested is None:
        return None
    energy, forces = tested.overall.energy_mae, tested.overall.forces_mae
    return math.nan if energy is None else energy, math.nan if forces is None else forces
