"""`geomatt train` and `geomatt transfer`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from geomatt.cli.console import console, note, output, rate_bar
from geomatt.cli.generated import from_anywhere, network_options, options_of, with_flags, with_options
from geomatt.cli.options import Dask, Processes, argument, open_pool, option, out_option, set_up_training
from geomatt.errors import GeomAttError
from geomatt.settings import setting
from geomatt.training.config import OPTIM, RUN, TrainConfig

if TYPE_CHECKING:
    from geomatt.data.dataset import Dataset
    from geomatt.data.splits import Split
    from geomatt.training import TrainResult


@dataclass(frozen=True)
class Manner:
    """Options of a run that are no settings of training."""

    out: Path = setting(None, "folder of the run", option=False)
    resume: bool = setting(False, "continue the run in --out, bit by bit", group=RUN)
    checkpoint_every: float = setting(30.0, "seconds between checkpoints; 0: every epoch", group=RUN)
    tensorboard: bool = setting(False, "also write curves for TensorBoard", group=RUN)
    report: bool = setting(True, "write report.html at the end", group=RUN)
    compare: bool = setting(
        True, "also train from scratch on the same frames, and say which is better", group=RUN
    )
    workers: int = setting(1, "processes that train members", option=False)
    dask: str | None = setting(None, "Dask cluster that trains members", option=False)


Out = Annotated[Path, out_option("Folder for the model and all that belongs to it.", RUN)]
# The settings of a run come first, and are not replaced by those of a network with the same name.
SETTINGS = options_of(TrainConfig) | network_options() | options_of(TrainConfig)


@with_options(settings=SETTINGS, manner=options_of(Manner, leave_out=("compare",)))
def train(
    out: Out,
    settings: dict[str, Any],
    manner: dict[str, Any],
    data: Annotated[
        list[str] | None, argument("Files, or names such as md17/ethanol; several are joined.")
    ] = None,
    config: Annotated[
        Path | None, option("Take settings from a run's config.toml.", rich_help_panel=RUN)
    ] = None,
    workers: Processes = 1,
    dask: Dask = None,
) -> None:
    """Train a force field on a trajectory or any labelled structures.

    Leaves model.safetensors (the best epoch, usable while training goes on),
    history.csv, config.toml, pictures and report.html in --out. Ctrl-C saves; --resume continues.

    A finished run goes on with --resume and more --epochs. The cosine schedule then
    starts again for the new epochs, with --learning-rate as its maximum.
    """
    settings |= _files(data or [])
    how = Manner(**{**manner, "out": out, "workers": workers, "dask": dask, "compare": False})
    _run(settings, _stored(out, config, how.resume), how)


@with_options(
    settings=options_of(TrainConfig, leave_out=("member", "model", "engine")), manner=options_of(Manner)
)
def transfer(
    model: Annotated[Path, argument("The base: a model file, a run, or md17/benzene.")],
    data: Annotated[list[str], argument("Files, or names such as md17/ethanol.")],
    out: Out,
    settings: dict[str, Any],
    manner: dict[str, Any],
    unfreeze: Annotated[
        list[str] | None, option("Train this part too, or all (repeatable).", rich_help_panel=OPTIM)
    ] = None,
) -> None:
    """Train the readout of a model on new data; the rest of the model stays fixed, as in the paper.

    This helps where the new molecules are similar to those of the base and labels are few:
    the readout cannot learn bonds and angles that the base never saw. With more data,
    train from scratch, or --unfreeze all. For comparison, a network is trained from scratch
    on the same frames, for as many epochs, in scratch/ (--no-compare leaves it out). The
    elements of the new data must be among those of the base. The normalisation is fitted
    again. The recipe is that of the base's network by default; the paper's own transfers have
    --recipe paper --epochs 1000.
    """
    from geomatt.training.start import base_settings, load_base

    how = Manner(**{**manner, "out": out})
    stored = _stored(out, None, how.resume)
    given = {**settings, **_files(data), "base": from_anywhere(model)}
    if unfreeze:
        given["unfreeze"] = tuple(unfreeze)
    if stored is None:
        given |= base_settings(load_base(given["base"]))
    _run(given, stored, how)


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


def _run(given: dict[str, Any], stored: dict[str, Any] | None, how: Manner) -> None:
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


def _train_and_report(config: TrainConfig, how: Manner, leads: bool, fresh: bool) -> None:
    """Read the data, train, and report the result and the next command."""
    from geomatt.cli.train_display import FINISHING, announce, live_progress
    from geomatt.cli.train_report import report_run
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
    from geomatt.training.start import check_base, load_base
    from geomatt.training.team import team
    from geomatt.training.tensorboard import tensorboard_callback

    out, resume = how.out, how.resume
    if leads:
        refuse_used(out, resume)  # before time is spent on reading
    dataset, parts = load_dataset(config)
    announce(dataset)
    config = resolve_sizes(config, parts.data)
    base = load_base(config.base) if config.base else None
    if base is not None:
        check_base(base, dataset)
    elif fresh:
        config = resolve_inputs(config, dataset, tell=lambda text: note(with_flags(text)))
    splits = make_splits(config, parts, unwanted(config, dataset))
    check_tests(dataset, splits, base)  # not after hours of training
    board = tensorboard_callback(out) if how.tensorboard and leads else None
    _describe(config, splits[0], out)
    set_up_training(config)
    trained: list[int] = []  # epochs of each member, by workers
    try:
        if how.workers > 1 or how.dask is not None:
            trained = _spread(config, how)
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
        for k, epochs in enumerate(trained):
            if epochs:
                results[k] = replace(results[k], already_finished=False)
        if config.base and how.compare and team().size == 1:
            _compare(dataset, splits[0], config, results[0], how)
    except Interrupted as stopped:
        note(
            f"Stopped after {stopped.epoch} epochs; everything is saved. The model of the best epoch can be "
            f"used, but {FINISHING} are added at the end. Continue with:\n"
            f"  geomatt {_command(config, how)} --out {out} --resume"
        )
        raise typer.Exit(128 + stopped.signal_number) from None
    if leads:
        report_run(results, dataset, splits, config, out, pages=how.report)


def _describe(config: TrainConfig, split: Split, out: Path) -> None:
    members = f", {config.member_count} members" if config.has_members else ""
    note(
        f"Training on {len(split.train)}, validating on {len(split.validation)} structures "
        f"({split.kind} split{members}); recipe {config.recipe}, up to {config.epochs} epochs, "
        f"{config.device}, {config.dtype}; output in {out}"
    )


def _command(config: TrainConfig, how: Manner) -> str:
    """The command that continues a run."""
    if not (config.base and how.compare):
        return "train"
    return " ".join(["transfer", config.base, config.data, *config.more_data])


def _spread(config: TrainConfig, how: Manner) -> list[int]:
    """Train members in other processes; the epochs of each."""
    from geomatt.training.spread import spread_members

    total, every = config.epochs * config.member_count, how.checkpoint_every
    again = f"Continue with:\n  geomatt train --out {how.out} --resume"
    with (
        open_pool(how.workers, how.dask, again=again) as pool,
        rate_bar("training", total, "epochs") as advance,
    ):
        return spread_members(
            config, how.out, pool, resume=how.resume, checkpoint_every=every, progress=advance
        )


def _compare(
    dataset: Dataset, split: Split, config: TrainConfig, transferred: TrainResult, how: Manner
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
