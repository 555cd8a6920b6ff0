"""One model under training: its folder, counters, history and best weights. The loop reports steps to it."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from geomatt.arguments import require
from geomatt.data.dataset import Dataset
from geomatt.data.mapped import excerpt
from geomatt.data.splits import Split
from geomatt.errors import GeomAttError
from geomatt.model import Normalisation, Potential, save
from geomatt.model.bounds import bounds_of
from geomatt.model.calibration import Calibration
from geomatt.model.domain import Domain
from geomatt.model.files import error_bars
from geomatt.model.surroundings import Estimate
from geomatt.training import checkpoint
from geomatt.training.checkpoint import Checkpoint, Counters
from geomatt.training.config import TrainConfig
from geomatt.training.dataset import check_data, elements_of, report_unit_of
from geomatt.training.error_bars import with_error_bars
from geomatt.training.folder import CONFIG, MODEL, PLOT, write_safely
from geomatt.training.history import EpochRow, History, rows_from_tensor
from geomatt.training.history_plot import plot_history
from geomatt.training.record import data_record, peak_memory, run_record
from geomatt.training.resume import check_elements, check_resume, run_identity
from geomatt.training.start import fresh_network, starting_network
from geomatt.training.targets import training_targets
from geomatt.training.transfer import hardly_better, never_seen
from geomatt.training.zero import energy_zero, with_zero

ALL_DONE = "all epochs done"
FAR = 5.0  # a force error on validation this many times the best: training went astray
WILD = 1e4  # the same for the loss, where no forces were learned
SLOWDOWNS = 4  # returns to the best weights, each with half the learning rate, before training gives up
SURE = 0.5  # a network whose force error was below this share of the mean force had learned something


@dataclass(frozen=True)
class Job:
    """Data, settings and output folder of one model."""

    dataset: Dataset
    split: Split
    config: TrainConfig
    folder: Path
    base: Potential | None = None  # a model to start from, all but its readout held fixed
    keep_units: bool = False  # of the base, whose weights belong to them, instead of fitting them to the data


@dataclass(frozen=True)
class TrainResult:
    """A trained model, the best by validation loss."""

    potential: Potential
    folder: Path
    finished: str  # why training ended
    epochs: int
    best_epoch: int
    best_errors: dict[str, float]  # MAEs on the validation set, eV and eV/Å
    seconds: float
    unit: str
    already_finished: bool = False  # nothing was done: the run had ended before


class Diverged(GeomAttError):
    """Training lost what it had learned, or never learned anything, and ended."""

    def __init__(self, reason: str, kept: str) -> None:
        super().__init__(
            f"Training diverged: {reason}. {kept} "
            "Check the labels with geomatt data info; train into a new folder with a lower `learning_rate`."
        )
        self.reason = reason


class Run:
    """A job that has started."""

    def __init__(self, job: Job, elements: Sequence[int], atoms: int, device: torch.device) -> None:
        """`elements` and `atoms`: of all structures trained side by side, so that shapes agree."""
        self.config, self.folder, self.split = job.config, job.folder, job.split
        self.seed = job.config.own_seed
        self.origin = data_record(job.dataset, job.split)
        self.identity = run_identity(self.origin["data"]["fingerprint"], job.split, job.base)
        self.unit = report_unit_of(job.dataset, job.config)
        validation = excerpt(job.dataset, job.split.validation)
        seen = job.dataset.select(np.concatenate([excerpt(job.dataset, job.split.train), validation]))
        reference = {int(z): e for z, e in job.config.reference.items()} or None
        self.seen, self.seen_validation, self.device = seen, len(validation), device
        self.domain = Domain.measure(seen)
        self.base = None if job.base is None else job.base.network
        if job.base is not None and (unseen := never_seen(job.base, seen)):
            warnings.warn(unseen, stacklevel=4)
        known = elements_of(job.dataset, job.split)
        network = starting_network(job.config, known, job.base, self.seed)
        extensive = network.radius is not None
        if job.base is not None and job.keep_units:
            self.normalisation = job.base.normalisation
        else:
            self.normalisation = Normalisation.fit(seen, reference, job.config.scale, extensive)
        self.elements = network.config.elements
        self.network = network.with_elements(elements).to(device)  # the weights before the first step
        self.padded = self.network.config.elements  # of the weights in `best`

        self.training, self.validation = (
            training_targets(
                job.dataset,
                indices,
                self.normalisation,
                dtype=job.config.torch_dtype,
                device=device,
                atoms=atoms,
                use_forces=not job.config.energy_only,
            )
            for indices in (job.split.train, job.split.validation)
        )
        self.mean_force = _mean_force(self._validation_excerpt(), self.normalisation.scale, job.config)
        # Energies of atoms that were given stay as they are.
        self.counters = Counters(energy_zero=None if reference else {}, error_bars={})
        self.best: dict[str, Tensor] = {}
        self.saved_epoch = 0  # the best epoch whose model is on disk
        self.state: dict[str, Tensor] | None = None  # of the stepper, where a run is continued

    def open(self, resume: bool) -> None:
        """Start in the folder, which is there and locked, or take up the run in it."""
        found = checkpoint.read(self.folder) if resume and checkpoint.exists(self.folder) else None
        rows: list[EpochRow] = []
        if found is not None:
            extended = check_resume(found, self.config, self.identity, self.folder)
            self.counters, self.best, self.state = found.counters, found.best, found.stepper
            self.padded = tuple(found.elements) or self.padded
            rows = rows_from_tensor(found.history)
            if extended:
                if self.config.schedule != "step" or self.counters.finished != ALL_DONE:
                    self.counters.cycles.append(self.counters.epoch)
                self.counters.finished = ""
                self.counters.energy_zero = None if self.counters.energy_zero is None else {}
                self.counters.error_bars = {}
            if self.counters.finished and {} not in (self.counters.energy_zero, self.counters.error_bars):
                return
        check_elements(self.padded, self.network.config.elements, self.folder)
        write_safely(self.folder / CONFIG, self.config.to_toml().encode())
        self.history = History(self.folder, self.unit, rows)
        self.seconds_before, self.started = self.counters.seconds, time.monotonic()

    @property
    def place(self) -> tuple[int, int, int]:
        """The epoch at which the schedule began, completed epochs, and steps of the current one."""
        return self.counters.cycle_start, self.counters.epoch, self.counters.step

    def add_steps(self, end: int, sums: Sequence[float]) -> None:
        """Steps up to `end` of this epoch are done, with these sums of errors."""
        self.counters.sums = [a + b for a, b in zip(self.counters.sums, sums, strict=True)]
        self.counters.step = end
        self.counters.seconds = self.seconds_before + time.monotonic() - self.started

    def end_epoch(
        self, rate: float, validation: Sequence[float] | None, weights: dict[str, Tensor] | None
    ) -> bool:
        """Write the row and keep the best weights. True if training went astray: it must return to `best`.

        `validation` holds sums of errors and `weights` those validated; None if there was no validation.
        """
        counters = self.counters
        epoch = counters.epoch + 1
        train_loss, train_energy, train_force = self._means(counters.sums)
        val_loss = val_energy = val_force = math.nan
        if validation is not None:
            val_loss, val_energy, val_force = self._means(validation)
        reason = ""
        if not math.isfinite(train_loss) or (validation is not None and not math.isfinite(val_loss)):
            reason = f"the loss is not a finite number in epoch {epoch}"
        elif validation is not None:
            reason = self._astray(val_loss, val_force)
        if reason and (not self.best or counters.slowdowns == SLOWDOWNS):
            self._diverged(reason)
        counters.epoch, counters.step, counters.sums = epoch, 0, [0.0] * 5
        counters.seconds = self.seconds_before + time.monotonic() - self.started
        errors = (train_energy, train_force, val_energy, val_force)
        self.history.append(
            EpochRow(epoch, rate * self.pace, train_loss, val_loss, *errors, counters.seconds)
        )
        if weights is not None and val_loss < counters.best_loss:
            counters.best_loss, counters.best_epoch = val_loss, epoch
            counters.best_errors = {"energy_mae": val_energy}
            if math.isfinite(val_force):
                counters.best_errors["force_mae"] = val_force
            self.best = {n: t.detach().clone() for n, t in weights.items()}
        if reason:
            counters.slowdowns += 1
            warnings.warn(
                f"Training went astray: {reason}. It returns to the weights of epoch {counters.best_epoch} "
                f"and continues with {self.pace:g} times the learning rate.",
                stacklevel=4,
            )
        if epoch >= self.config.epochs:
            counters.finished = ALL_DONE
        elif 0 < self.config.patience <= epoch - max(counters.best_epoch, counters.cycle_start):
            counters.finished = f"no better validation loss for {self.config.patience} epochs"
        return bool(reason)

    @property
    def pace(self) -> float:
        """The factor on the learning rate."""
        return 0.5**self.counters.slowdowns

    def _astray(self, loss: float, force_error: float) -> str:
        """Why a validation means that training has lost what it had learned; empty if it has not."""
        mean_force = self.normalisation.scale * self.mean_force
        best = self.counters.best_errors.get("force_mae", math.inf)
        if best < SURE * mean_force:  # forces were learned
            if 0.999 * mean_force <= force_error < 1.01 * mean_force:  # those of a constant energy
                return "the network predicts no forces any more, only a constant energy"
            if force_error > FAR * best:
                return f"the force error is {force_error:.3g} eV/Å, its best was {best:.3g}"
        if loss > WILD * self.counters.best_loss:
            return f"the validation loss is {loss:.3g}, its best was {self.counters.best_loss:.3g}"
        return ""

    def _means(self, sums: Sequence[float]) -> tuple[float, float, float]:
        """Loss, energy MAE (eV) and force MAE (eV/Å) from sums of errors."""
        loss, energy, forces, structures, components = sums
        scale = self.normalisation.scale
        force_mae = scale * forces / components if components else math.nan
        return loss / structures, scale * energy / structures, force_mae

    def _diverged(self, reason: str) -> None:
        kept = "No model was kept."
        if self.best:
            self._complete()
            path = self.folder / MODEL
            kept = f"The best model, of epoch {self.counters.best_epoch}, is kept in {path}."
        if self.history.rows:
            self.plot()
        raise Diverged(reason, kept)

    def write(self, state: dict[str, Tensor]) -> None:
        """Update model and checkpoint on disk; a state that is not finite is never written."""
        for name, size in peak_memory(self.config.device).items():
            self.counters.peak_memory[name] = max(size, self.counters.peak_memory.get(name, 0))
        if self.best and self.saved_epoch != self.counters.best_epoch:
            self._save_model()
        self.state = state
        if checkpoint.all_finite(state):
            Checkpoint(
                self.config.to_dict(), self.identity, self.counters, state, self.best, self.history.tensor(),
                self.network.config.elements,
            ).write(self.folder)  # fmt: skip

    def finalise(self) -> None:
        """After the last epoch: bounds, the zero of the energy and error bars, and the final model."""
        error = self.counters.best_errors.get("force_mae") if self.base is not None else None
        if error is not None and (message := hardly_better(error, self._validation_excerpt())):
            warnings.warn(message, stacklevel=4)
        if {} in (self.counters.energy_zero, self.counters.error_bars) and self.best:
            self._complete()
            if self.state is not None:
                self.write(self.state)

    def _complete(self) -> None:
        """Give the best model what is not trained, and write it."""
        counters = self.counters
        self.best.update(bounds_of(self._potential().network.to(self.device), self.seen, self.base))
        if counters.energy_zero == {}:
            zero = energy_zero(self._potential().to(self.device), self.seen, self.seen_validation)
            counters.energy_zero = zero
            counters.best_errors["energy_mae"] = zero["validation_energy_mae"]
        if counters.error_bars == {}:
            training = self.seen.select(np.arange(len(self.seen) - self.seen_validation))
            potential = self._potential().to(self.device)
            counters.error_bars = error_bars(with_error_bars(potential, training, self._validation_excerpt()))
        self._save_model()

    def _validation_excerpt(self) -> Dataset:
        """Validation structures; some of them if the data is mapped."""
        return self.seen.select(np.arange(len(self.seen))[-self.seen_validation :])

    def plot(self) -> None:
        plot_history(self.history.rows, self.unit, self.folder / PLOT)

    def _save_model(self) -> None:
        save(self._potential(), self.folder / MODEL)
        self.saved_epoch = self.counters.best_epoch

    def _potential(self) -> Potential:
        """The best model so far, on the CPU, with its record."""
        network = fresh_network(self.config, self.padded, seed=0)
        network.load_tensors(self.best)
        record = {
            **self.origin,
            **run_record(self.config, self.counters, self.unit),
            "base": self.identity["base"] or None,
        }
        normalisation, zero = self.normalisation, self.counters.energy_zero
        if zero:
            normalisation, record["energy_zero"] = with_zero(normalisation, zero), zero
        bars = self.counters.error_bars
        return Potential(
            network.with_elements(self.elements),
            normalisation,
            record,
            self.domain,
            estimate=Estimate.from_dict(bars["estimate"]) if bars else None,
            calibration=Calibration.from_dict(bars["calibration"]) if bars else None,
        )

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


def _mean_force(data: Dataset, scale: float, config: TrainConfig) -> float:
    """Mean absolute force component in units of the network; infinite if none are trained on."""
    if config.energy_only or data.forces is None or not np.isfinite(data.forces).any():
        return math.inf
    return float(np.nanmean(np.abs(data.forces))) / scale


def check_job(job: Job) -> None:
    """Raise an error for invalid data or settings, before anything is written."""
    for name, value, kind, how in (
        ("data", job.dataset, Dataset, "geomatt.read(FILE)"),
        ("split", job.split, Split, "geomatt.random_split(2000, 800, 200)"),
        ("config", job.config, TrainConfig, 'geomatt.resolve({"epochs": 100})'),
    ):
        require(name, value, kind, how)
    check_data(job.dataset, job.split, job.config)
