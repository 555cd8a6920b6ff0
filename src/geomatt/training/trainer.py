"""Training one model: epochs, validation, checkpoints, resuming. How a step is done is up to `step.py`."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from geomatt.data.batch import collate
from geomatt.data.structures import Dataset
from geomatt.errors import GeomAttError
from geomatt.model.files import check_device, save
from geomatt.model.normalisation import Normalisation
from geomatt.model.potential import Potential
from geomatt.training import checkpoint
from geomatt.training.checkpoint import Checkpoint, Counters
from geomatt.training.config import TrainConfig
from geomatt.training.history import History, Row, plot_history, rows_from_tensor
from geomatt.training.interrupt import Interrupted, StopWish, stop_on_signal
from geomatt.training.loss import Loss
from geomatt.training.prepare import (
    check_data,
    check_resume,
    new_network,
    open_folder,
    report_unit_of,
    run_identity,
    starting_network,
)
from geomatt.training.recipes import learning_rates
from geomatt.training.record import data_record, run_record
from geomatt.training.step import ErrorSums, Stepper, Targets, validate

if TYPE_CHECKING:
    from geomatt.data.splits import Split

MODEL_FILE = "model.safetensors"
PLOT_FILE = "loss.png"
SEGMENT = 50  # steps between looks at the clock and at Ctrl-C
WILD = 1e4  # a validation loss this many times the best ...
WILD_VALIDATIONS = 5  # ... so many times in a row is divergence


@dataclass(frozen=True)
class Progress:
    """What a callback learns: after every segment of steps, and with a new row after every epoch."""

    epoch: int  # completed
    epochs: int
    fraction: float  # of the whole run
    row: Row | None  # the latest
    new_row: bool
    best_epoch: int
    seconds: float
    seconds_left: float
    unit: str
    member: int = 0
    members: int = 1


@dataclass(frozen=True)
class TrainResult:
    """A trained model, the best by validation loss, and how it got there."""

    potential: Potential
    folder: Path
    finished: str  # why training ended
    epochs: int
    best_epoch: int
    best_errors: dict[str, float]  # MAEs on the validation set, eV and eV/Å
    seconds: float
    unit: str
    already_finished: bool = False  # nothing was done: the run had ended before


def train(
    dataset: Dataset,
    split: Split,
    config: TrainConfig,
    out: str | Path,
    *,
    resume: bool = False,
    base: Potential | None = None,
    callback: Callable[[Progress], None] | None = None,
    checkpoint_every: float = 30.0,
) -> TrainResult:
    """Train one model into the folder `out`; with `resume`, continue what is there bit by bit.

    `base` is a model to start from, with all but its readout (and `config.unfreeze`) held fixed.
    """
    check_data(dataset, split, config)
    run = _Run(dataset, split, config, Path(out), base, checkpoint_every)
    done = run.open(resume)
    if not done:
        with stop_on_signal() as stop:
            run.loop(callback, stop)
    return run.result(already_finished=done)


class _Run:
    """One training run in one folder."""

    def __init__(
        self,
        dataset: Dataset,
        split: Split,
        config: TrainConfig,
        folder: Path,
        base: Potential | None,
        checkpoint_every: float,
    ) -> None:
        self.dataset, self.split, self.config, self.folder = dataset, split, config, folder
        self.checkpoint_every = checkpoint_every
        self.seed = config.own_seed
        self.origin = data_record(dataset, split)
        self.identity = run_identity(self.origin["data"]["fingerprint"], split, base)
        self.unit = report_unit_of(dataset, config)
        self.device = check_device(config.device)
        seen = dataset.select(np.concatenate([split.train, split.validation]))
        reference = {int(z): e for z, e in config.reference.items()} or None
        self.normalisation = Normalisation.fit(seen, reference)
        self.network = starting_network(config, seen, base, self.seed, self.device)
        # Validation runs on a copy, so that averaged weights never touch the ones being trained.
        self.judged = starting_network(config, seen, base, self.seed, self.device)
        self.loss = Loss(config.weighting, config.rho)  # type: ignore[arg-type]
        self.validation = self._targets(split.validation)
        self.stepper = Stepper(
            self.network, self._targets(split.train), self.loss, ema_decay=config.ema_decay or None
        )
        self.steps = math.ceil(len(split.train) / config.batch)
        self.counters = Counters()
        self.best: dict[str, Tensor] = {}
        self.saved_epoch = 0  # the best epoch whose model is on disk

    def _targets(self, indices: np.ndarray) -> Targets:
        structures = [self.dataset[int(i)] for i in indices]
        batch = collate(structures, self.config.torch_dtype, self.device)
        return Targets.from_batch(batch, self.normalisation, use_forces=not self.config.energy_only)

    def open(self, resume: bool) -> bool:
        """Make the folder, or take up the run in it; True if that run had ended already."""
        found = checkpoint.read(self.folder) if resume and checkpoint.exists(self.folder) else None
        rows: list[Row] = []
        if found is None:
            open_folder(self.folder, resume)
        else:
            check_resume(found, self.config, self.identity, self.folder)
            self.counters, self.best = found.counters, found.best
            rows = rows_from_tensor(found.history)
            if self.counters.finished == "all epochs done" and self.counters.epoch < self.config.epochs:
                self.counters.finished = ""  # epochs were added
            if self.counters.finished:
                return True
            self.stepper.load_state(found.stepper)
        checkpoint.write_atomically(self.folder / "config.toml", self.config.to_toml().encode())
        self.history = History(self.folder, self.unit, rows)
        self.seconds_before = self.counters.seconds
        self.fraction_before = self._fraction()
        self.started = self.last_write = time.monotonic()
        if found is None:
            self._write()
        return False

    def loop(self, callback: Callable[[Progress], None] | None, stop: StopWish) -> None:
        """Epoch after epoch until the end, early stopping, divergence, or Ctrl-C."""
        counters = self.counters
        while not counters.finished:
            new_row = self._segment()
            if counters.epoch >= self.config.epochs:
                counters.finished = "all epochs done"
            elif new_row and 0 < self.config.patience <= counters.epoch - counters.best_epoch:
                counters.finished = f"no better validation loss for {self.config.patience} epochs"
            stopping = bool(stop)  # looked at once: a wish that comes after saving waits for the next round
            overdue = time.monotonic() - self.last_write >= self.checkpoint_every
            if counters.finished or stopping or (overdue and (new_row or self.checkpoint_every > 0)):
                self._write()
            if callback is not None:
                callback(self._progress(new_row))
            if counters.finished or stopping:
                plot_history(self.history.rows, self.unit, self.folder / PLOT_FILE)
            if stopping and not counters.finished:
                raise Interrupted(self.folder, counters.epoch, stop.signal)

    def _segment(self) -> bool:
        """The next steps of the epoch under way; True if they completed it."""
        config, counters = self.config, self.counters
        order = epoch_order(len(self.split.train), self.seed, counters.epoch).to(self.device)
        rates = learning_rates(config, counters.epoch, self.steps)
        end = min(counters.step + SEGMENT, self.steps)
        sums = self.stepper.run_epoch(
            order[counters.step * config.batch : end * config.batch], config.batch, rates[counters.step : end]
        )
        counters.sums = [a + b for a, b in zip(counters.sums, _floats(sums), strict=True)]
        counters.step = end
        counters.seconds = self.seconds_before + time.monotonic() - self.started
        if end < self.steps:
            return False
        self._end_epoch(rates[-1])
        return True

    def _end_epoch(self, rate: float) -> None:
        """Validate, keep the best, write the row, and see to it that the numbers are still numbers."""
        counters = self.counters
        epoch = counters.epoch + 1
        train_loss, train_energy, train_force = self._means(counters.sums)
        val_loss = val_energy = val_force = math.nan
        validated = epoch % self.config.validate_every == 0 or epoch == self.config.epochs
        if validated:
            self._load_judged()
            val_loss, val_energy, val_force = self._means(
                _floats(validate(self.judged, self.validation, self.loss))
            )
        if not math.isfinite(train_loss) or (validated and not math.isfinite(val_loss)):
            self._diverged(f"the loss is not a finite number in epoch {epoch}")
        counters.epoch, counters.step, counters.sums = epoch, 0, [0.0] * 5
        counters.seconds = self.seconds_before + time.monotonic() - self.started
        row = Row(
            epoch,
            rate,
            train_loss,
            val_loss,
            train_energy,
            train_force,
            val_energy,
            val_force,
            counters.seconds,
        )
        self.history.append(row)
        if validated:
            if val_loss < counters.best_loss:
                counters.best_loss, counters.best_epoch = val_loss, epoch
                counters.best_errors = {"energy_mae": val_energy}
                if math.isfinite(val_force):
                    counters.best_errors["force_mae"] = val_force
                self.best = {n: t.detach().clone() for n, t in self.judged.state_dict().items()}
            counters.wild = counters.wild + 1 if val_loss > WILD * counters.best_loss else 0
            if counters.wild >= WILD_VALIDATIONS:
                self._diverged(
                    f"the validation loss is {val_loss:.3g}, its best was {counters.best_loss:.3g}"
                )

    def _means(self, sums: list[float]) -> tuple[float, float, float]:
        """Loss, energy MAE (eV) and force MAE (eV/Å) from sums of errors."""
        loss, energy, forces, structures, components = sums
        scale = self.normalisation.scale
        return (
            loss / structures,
            scale * energy / structures,
            scale * forces / components if components else math.nan,
        )

    def _load_judged(self) -> None:
        """The weights to judge: averaged where there is an average, else the current ones."""
        prefix = "average." if self.config.ema_decay else "parameter."
        own = dict(self.judged.named_parameters())
        with torch.no_grad():
            for name, value in self.stepper.state().items():
                if name.startswith(prefix):
                    own[name.removeprefix(prefix)].copy_(value)

    def _diverged(self, reason: str) -> None:
        kept = "No model was kept."
        if self.best:
            self._save_model()
            kept = (
                f"The best model, of epoch {self.counters.best_epoch}, is kept in {self.folder / MODEL_FILE}."
            )
        if self.history.rows:
            plot_history(self.history.rows, self.unit, self.folder / PLOT_FILE)
        raise GeomAttError(
            f"Training diverged: {reason}. {kept} "
            "Check the labels with geomatt data info; train into a new folder with a lower --learning-rate."
        )

    def _write(self) -> None:
        """Bring model and checkpoint on disk up to date; a state that is not finite is never written."""
        if self.best and self.saved_epoch != self.counters.best_epoch:
            self._save_model()
        state = self.stepper.state()
        if checkpoint.all_finite(state):
            Checkpoint(
                self.config.to_dict(), self.identity, self.counters, state, self.best, self.history.tensor()
            ).write(self.folder)
        self.last_write = time.monotonic()

    def _save_model(self) -> None:
        save(self._potential(), self.folder / MODEL_FILE)
        self.saved_epoch = self.counters.best_epoch

    def _potential(self) -> Potential:
        """The best model so far, on the CPU, with its record."""
        network = new_network(self.config, self.judged.config.elements, seed=0)
        network.load_state_dict(self.best)
        record = {
            **self.origin,
            **run_record(self.config, self.counters, self.unit),
            "base": self.identity["base"] or None,
        }
        return Potential(network, self.normalisation, record)

    def result(self, already_finished: bool) -> TrainResult:
        counters = self.counters
        return TrainResult(
            self._potential(),
            self.folder,
            counters.finished,
            counters.epoch,
            counters.best_epoch,
            dict(counters.best_errors),
            counters.seconds,
            self.unit,
            already_finished,
        )

    def _fraction(self) -> float:
        return (self.counters.epoch + self.counters.step / self.steps) / self.config.epochs

    def _progress(self, new_row: bool) -> Progress:
        fraction, counters = self._fraction(), self.counters
        elapsed = counters.seconds - self.seconds_before
        pace = elapsed / max(fraction - self.fraction_before, 1e-12)
        return Progress(
            epoch=counters.epoch,
            epochs=self.config.epochs,
            fraction=fraction,
            row=self.history.rows[-1] if self.history.rows else None,
            new_row=new_row,
            best_epoch=counters.best_epoch,
            seconds=counters.seconds,
            seconds_left=0.0 if counters.finished else pace * (1.0 - fraction),
            unit=self.unit,
        )


def epoch_order(count: int, seed: int, epoch: int) -> Tensor:
    """The order of the data in an epoch: a function of seed and epoch alone, so resuming needs no state."""
    (mixed,) = np.random.SeedSequence([seed, epoch]).generate_state(1, np.uint64)
    return torch.randperm(count, generator=torch.Generator().manual_seed(int(mixed >> np.uint64(1))))


def _floats(sums: ErrorSums) -> list[float]:
    return [float(x) for x in (sums.loss, sums.energy, sums.forces, sums.structures, sums.components)]
