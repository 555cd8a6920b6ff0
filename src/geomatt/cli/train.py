"""`geomatt train` and `geomatt transfer`."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from geomatt.cli.console import compile_fast_code, console, output
from geomatt.cli.options import PANEL as DATA
from geomatt.cli.options import EnergyUnit, ForceUnit, Key, LengthUnit, option, parse_keys, parse_pairs
from geomatt.errors import GeomAttError

if TYPE_CHECKING:
    from geomatt.data.splits import Split
    from geomatt.data.structures import Dataset
    from geomatt.training import TrainConfig, TrainResult


SPLIT, OPTIM, MODEL, RUN = "Split and members", "Optimisation", "Model", "Run"

Reference = Annotated[
    list[str] | None, option("--reference", "Energy of an isolated atom in eV: H=-13.6 (repeatable).", DATA)
]
Unit = Annotated[str | None, option("--unit", "Energy unit of reports; the data's by default.", DATA)]
EnergyOnly = Annotated[
    bool | None, option("--energy-only", "Train on energies alone, whether or not there are forces.", DATA)
]
Train = Annotated[
    int | None, option("--train", "Structures to train on (800 where there are enough).", SPLIT)
]
Val = Annotated[int | None, option("--val", "Structures to choose the best epoch by (200).", SPLIT)]
Test = Annotated[int | None, option("--test", "Structures to test on at the end (up to 1000).", SPLIT)]
SplitKind = Annotated[
    str | None, option("--split", "random, or blocked: stretches of consecutive frames.", SPLIT)
]
SplitSeed = Annotated[int | None, option("--split-seed", "Which random split (0).", SPLIT)]
TrainIndices = Annotated[Path | None, option("--train-indices", "File of frame numbers to train on.", SPLIT)]
ValIndices = Annotated[Path | None, option("--val-indices", "File of frame numbers to validate on.", SPLIT)]
TestIndices = Annotated[Path | None, option("--test-indices", "File of frame numbers to test on.", SPLIT)]
Folds = Annotated[int | None, option("--folds", "Train one model for each fold of the data.", SPLIT)]
Members = Annotated[int | None, option("--members", "Train so many models that differ by seed.", SPLIT)]
Member = Annotated[int | None, option("--member", "Train only this one of them, from 0.", SPLIT)]
Recipe = Annotated[str | None, option("--recipe", "fast (default), or paper: Frank & Chmiela (2021).", OPTIM)]
TransferRecipe = Annotated[str | None, option("--recipe", "paper (default, 1000 epochs), or fast.", OPTIM)]
Epochs = Annotated[int | None, option("--epochs", "Passes over the training data.", OPTIM)]
BatchSize = Annotated[int | None, option("--batch", "Structures in a step.", OPTIM)]
Rate = Annotated[float | None, option("--learning-rate", "Adam's learning rate at its highest.", OPTIM)]
Schedule = Annotated[str | None, option("--schedule", "step or cosine.", OPTIM)]
Ema = Annotated[
    float | None, option("--ema-decay", "Decay of the average of weights per step; 0: none.", OPTIM)
]
Patience = Annotated[
    int | None, option("--patience", "Stop after so many epochs without improvement; 0: never.", OPTIM)
]
ValidateEvery = Annotated[int | None, option("--validate-every", "Epochs between validations (1).", OPTIM)]
Weighting = Annotated[str | None, option("--weighting", "Loss as in the paper or the authors' code.", OPTIM)]
Rho = Annotated[float | None, option("--rho", "Weight of energies in the loss (0.01).", OPTIM)]
Orders = Annotated[str | None, option("--orders", "Attention orders, one stream each (2,3,4).", MODEL)]
Layers = Annotated[int | None, option("--layers", "Interactions in a stream (3).", MODEL)]
Features = Annotated[int | None, option("--features", "Width of an atom's features (128).", MODEL)]
Overlaps = Annotated[int | None, option("--overlap-features", "Overlap functions at k = 2 (128).", MODEL)]
Gamma = Annotated[float | None, option("--gamma", "Sharpness of the basis functions, 1/Å² (20).", MODEL)]
DMax = Annotated[float | None, option("--d-max", "End of the grid of distances, Å (5).", MODEL)]
Spacing = Annotated[float | None, option("--spacing", "Spacing of that grid, Å (0.05).", MODEL)]
Bias = Annotated[bool | None, option("--bias/--no-bias", "Bias in the overlap functions (yes).", MODEL)]
Seed = Annotated[int | None, option("--seed", "Seed of initial weights and data order (0).", RUN)]
Device = Annotated[str | None, option("--device", "cpu or cuda; cuda where there is one.", RUN)]
Dtype = Annotated[str | None, option("--dtype", "float32 (default) or float64.", RUN)]
Engine = Annotated[str | None, option("--engine", "auto, or dense: plain torch, no compiled code.", RUN)]
Out = Annotated[Path, option("--out", "Folder for the model and all that belongs to it.", RUN)]
Config = Annotated[Path | None, option("--config", "Take settings from a run's config.toml.", RUN)]
Resume = Annotated[bool, option("--resume", "Continue the run in --out, bit by bit.", RUN)]
Every = Annotated[float, option("--checkpoint-every", "Seconds between checkpoints; 0: every epoch.", RUN)]
Board = Annotated[bool, option("--tensorboard", "Write curves for TensorBoard, too.", RUN)]
Unfreeze = Annotated[
    list[str] | None,
    option("--unfreeze", "Train this too: embedding, overlaps, interactions, all (repeatable).", OPTIM),
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(epilog="Example: geomatt train md17/ethanol --out runs/ethanol --train 800 --val 200")(train)
    app.command(
        epilog="Example: geomatt transfer runs/aspirin/model.safetensors md17/toluene --out runs/toluene"
    )(transfer)


def train(
    ctx: typer.Context,
    out: Out,
    data: Annotated[
        str | None, typer.Argument(help="A file, or a name such as md17/ethanol.", show_default=False)
    ] = None,
    energy_unit: EnergyUnit = None,
    length_unit: LengthUnit = None,
    force_unit: ForceUnit = None,
    keys: Key = None,
    reference: Reference = None,
    report_unit: Unit = None,
    energy_only: EnergyOnly = None,
    train: Train = None,
    val: Val = None,
    test: Test = None,
    split: SplitKind = None,
    split_seed: SplitSeed = None,
    train_indices: TrainIndices = None,
    val_indices: ValIndices = None,
    test_indices: TestIndices = None,
    folds: Folds = None,
    members: Members = None,
    member: Member = None,
    recipe: Recipe = None,
    epochs: Epochs = None,
    batch: BatchSize = None,
    learning_rate: Rate = None,
    schedule: Schedule = None,
    ema_decay: Ema = None,
    patience: Patience = None,
    validate_every: ValidateEvery = None,
    weighting: Weighting = None,
    rho: Rho = None,
    orders: Orders = None,
    layers: Layers = None,
    features: Features = None,
    overlap_features: Overlaps = None,
    gamma: Gamma = None,
    d_max: DMax = None,
    spacing: Spacing = None,
    bias: Bias = None,
    seed: Seed = None,
    device: Device = None,
    dtype: Dtype = None,
    engine: Engine = None,
    config: Config = None,
    resume: Resume = False,
    checkpoint_every: Every = 30.0,
    tensorboard: Board = False,
) -> None:
    """Train a force field on a trajectory or any labelled structures.

    Leaves model.safetensors (the best epoch, usable while training goes on),
    history.csv, config.toml and pictures in --out. Ctrl-C saves; --resume continues.
    """
    stored = _stored(out, config, resume)
    _run(_settings(ctx.params), stored, out, resume, checkpoint_every, tensorboard)


def transfer(
    ctx: typer.Context,
    model: Annotated[
        Path, typer.Argument(help="The base: a model file, a run, or md17/benzene.", show_default=False)
    ],
    data: Annotated[str, typer.Argument(help="A file, or a name such as md17/ethanol.", show_default=False)],
    out: Out,
    unfreeze: Unfreeze = None,
    energy_unit: EnergyUnit = None,
    length_unit: LengthUnit = None,
    force_unit: ForceUnit = None,
    keys: Key = None,
    reference: Reference = None,
    report_unit: Unit = None,
    energy_only: EnergyOnly = None,
    train: Train = None,
    val: Val = None,
    test: Test = None,
    split: SplitKind = None,
    split_seed: SplitSeed = None,
    train_indices: TrainIndices = None,
    val_indices: ValIndices = None,
    test_indices: TestIndices = None,
    folds: Folds = None,
    members: Members = None,
    recipe: TransferRecipe = None,
    epochs: Epochs = None,
    batch: BatchSize = None,
    learning_rate: Rate = None,
    schedule: Schedule = None,
    ema_decay: Ema = None,
    patience: Patience = None,
    weighting: Weighting = None,
    rho: Rho = None,
    seed: Seed = None,
    device: Device = None,
    dtype: Dtype = None,
    resume: Resume = False,
    checkpoint_every: Every = 30.0,
    tensorboard: Board = False,
) -> None:
    """Carry a model over to new data: all of it stays fixed but the readout, as in the paper.

    The elements of the new data must be among those of the base.
    The normalisation is fitted anew.
    """
    from geomatt.training.prepare import base_settings, load_base
    from geomatt.training.recipes import TRANSFER_EPOCHS

    stored = _stored(out, None, resume)
    given = _settings(ctx.params)
    given["base"] = _from_anywhere(str(model))
    if stored is None:
        given = (
            {"recipe": "paper", "epochs": TRANSFER_EPOCHS} | given | base_settings(load_base(given["base"]))
        )
    _run(given, stored, out, resume, checkpoint_every, tensorboard)


def _from_anywhere(name: str) -> str:
    """A file by its whole path, so that the run can be repeated from anywhere; else it is a known name."""
    return str(Path(name).resolve()) if Path(name).exists() else name


def _settings(params: dict[str, Any]) -> dict[str, Any]:
    """What the user set, by the names of `TrainConfig`, in its types."""
    from geomatt.elements import atomic_number
    from geomatt.training import TrainConfig

    known = {f.name for f in dataclasses.fields(TrainConfig)}
    given = {n: v for n, v in params.items() if n in known and v not in (None, [], ())}
    for name in ("train_indices", "val_indices", "test_indices"):
        if name in given:
            given[name] = str(Path(given[name]).resolve())
    if "data" in given:
        given["data"] = _from_anywhere(given["data"])
    if "orders" in given:
        given["orders"] = _orders(given["orders"])
    if "keys" in given:
        given["keys"] = parse_keys(given["keys"])
    if "reference" in given:
        pairs = parse_pairs(given["reference"], "--reference", "H=-13.6")
        try:
            given["reference"] = {str(atomic_number(z)): float(e) for z, e in pairs.items()}
        except ValueError as error:
            raise GeomAttError(f"--reference needs energies in eV, such as H=-13.6 ({error}).") from None
    return given


def _orders(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise GeomAttError(f"--orders must be whole numbers such as 2,3,4, not {text!r}.") from None


def _stored(out: Path, config: Path | None, resume: bool) -> dict[str, Any] | None:
    """Settings to start from: those of the run to resume, or of the configuration file."""
    from geomatt.training.config import read_settings
    from geomatt.training.members import stored_settings

    if resume and config is not None:
        raise GeomAttError("--resume takes the settings of the run itself: leave --config out.")
    if resume:
        return stored_settings(out)
    return None if config is None else read_settings(config)


def _run(
    given: dict[str, Any],
    stored: dict[str, Any] | None,
    out: Path,
    resume: bool,
    checkpoint_every: float,
    tensorboard: bool,
) -> None:
    """Resolve, read, train, and say what came of it and what comes next."""
    import torch

    from geomatt.cli.train_display import announce, live_progress
    from geomatt.training import Interrupted, Progress, resolve, run
    from geomatt.training.prepare import load_base, load_dataset, make_splits, refuse_used, resolve_sizes
    from geomatt.training.tensorboard import tensorboard_callback

    if checkpoint_every < 0:
        raise GeomAttError(f"--checkpoint-every must not be negative, not {checkpoint_every}.")
    if stored is None:
        given.setdefault("device", "cuda" if torch.cuda.is_available() else "cpu")
    config = resolve(given, stored)
    refuse_used(out, resume)  # before time is spent on reading
    dataset = load_dataset(config)
    announce(dataset)
    config = resolve_sizes(config, len(dataset))
    splits = make_splits(config, len(dataset))
    base = load_base(config.base) if config.base else None
    board = tensorboard_callback(out) if tensorboard else None
    _describe(config, splits, out)
    if config.device == "cpu" and config.engine == "auto":
        compile_fast_code()
    try:
        with live_progress() as show:

            def tell(progress: Progress) -> None:
                show(progress)
                if board is not None:
                    board(progress)

            results = run(
                dataset,
                splits,
                config,
                out,
                resume=resume,
                base=base,
                callback=tell,
                checkpoint_every=checkpoint_every,
            )
    except Interrupted as stopped:
        console.print(
            f"Stopped after {stopped.epoch} epochs; everything is saved. Continue with:\n"
            f"  geomatt train --out {out} --resume",
            highlight=False,
            soft_wrap=True,
        )
        raise typer.Exit(128 + stopped.signal_number) from None
    _report(results, dataset, splits, config, out)


def _describe(config: TrainConfig, splits: Sequence[Split], out: Path) -> None:
    first = splits[0]
    members = f", {config.member_count} members" if config.has_members else ""
    console.print(
        f"Training on {len(first.train)}, validating on {len(first.validation)} structures "
        f"({first.kind} split{members}); recipe {config.recipe}, up to {config.epochs} epochs, "
        f"{config.device}, {config.dtype}; output in {out}",
        highlight=False,
        soft_wrap=True,
    )


def _report(
    results: Sequence[TrainResult], dataset: Dataset, splits: Sequence[Split], config: TrainConfig, out: Path
) -> None:
    """The closing table, and the next command."""
    from geomatt.cli.train_display import duration, summary_table

    for result in results:
        if result.already_finished:
            console.print(
                f"{result.folder} is finished: {result.finished} after {result.epochs} epochs.",
                highlight=False,
                soft_wrap=True,
            )
    chosen = list(splits) if config.has_members else [splits[config.member or 0]]
    tested = [_test(r, dataset, split) for r, split in zip(results, chosen, strict=True)]
    output.print(summary_table(results, tested))
    last = results[-1]
    if len(results) == 1 and not last.already_finished:
        console.print(
            f"Ended because of: {last.finished}; {last.epochs} epochs in {duration(last.seconds)}.",
            highlight=False,
            soft_wrap=True,
        )
    target = out if config.has_members else last.folder / "model.safetensors"
    asked = [("--energy-unit", config.energy_unit), ("--length-unit", config.length_unit)]
    asked += [("--force-unit", config.force_unit)]
    asked += [("--key", f"{name}={key}") for name, key in config.keys.items()]
    options = "".join(f" {flag} {value}" for flag, value in asked if value)
    console.print(
        f"Next:\n  geomatt evaluate {target} {config.data}{options}",
        highlight=False,
        soft_wrap=True,
        markup=False,
    )


def _test(result: TrainResult, dataset: Dataset, split: Split) -> tuple[float, float] | None:
    """Energy and force MAE on the test structures (eV), with a parity plot in the run's folder."""
    from geomatt.cli.console import progress_bar
    from geomatt.evaluation import evaluate, parity_plot

    if not len(split.test):
        return None
    with progress_bar("testing", len(split.test)) as advance:
        tested = evaluate(result.potential, dataset, indices=split.test, unit=result.unit, progress=advance)
    parity_plot(tested, result.folder / "parity.png")
    energy, forces = tested.overall.energy_mae, tested.overall.forces_mae
    return math.nan if energy is None else energy, math.nan if forces is None else forces
