"""The training loop: epochs, validation and checkpoints, for one model or several side by side."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from geomatt.arguments import path_of
from geomatt.data.dataset import Dataset
from geomatt.errors import GeomAttError
from geomatt.model import Potential
from geomatt.model.devices import check_device
from geomatt.settings import typed
from geomatt.training.config import TrainConfig
from geomatt.training.dataset import elements_of
from geomatt.training.folder import locked
from geomatt.training.history import EpochRow
from geomatt.training.interruption import Interrupted, StopRequest, stop_on_signal
from geomatt.training.loss import Loss
from geomatt.training.recipes import learning_rates
from geomatt.training.run import Job, Run, TrainResult, check_job
from geomatt.training.start import load_base
from geomatt.training.step import Stepper
from geomatt.training.targets import stacked

if TYPE_CHECKING:
    from geomatt.data.splits import Split

SEGMENT = 50  # steps between checks of the clock and of stop requests

# Settings in which models trained side by side may differ.
_OWN = {"data", "member", "seed", "split_seed", "report_unit", "reference", "energy_unit", "length_unit",
        "force_unit", "keys", "base", "train_indices", "val_indices", "test_indices", "test", "more_data",
        "val_data", "test_data"}  # fmt: skip


@dataclass(frozen=True)
class TrainProgress:
    """State of a run, given to callbacks after every segment of steps and, with a new row, every epoch."""

    epoch: int  # completed
    epochs: int
    fraction: float  # of the whole run
    row: EpochRow | None  # the latest
    new_row: bool
    best_epoch: int
    seconds: float
    seconds_left: float
    unit: str
    member: int = 0
    members: int = 1


# A callback that returns True asks the run to stop: it saves and raises `Interrupted`, as at Ctrl-C.
TrainCallback = Callable[[TrainProgress], bool | None]


def train(
    dataset: Dataset,
    split: Split,
    config: TrainConfig,
    out: str | Path,
    *,
    resume: bool = False,
    base: Potential | str | Path | None = None,
    callback: TrainCallback | None = None,
    checkpoint_every: float = 30.0,
) -> TrainResult:
    """Train one model into the folder `out`; with `resume`, continue what is there bit by bit.

    `base` is a model to start from, or its file, with all but its readout (and `config.unfreeze`) held
    fixed.
    """
    start = base if base is None or isinstance(base, Potential) else load_base(base)
    job = Job(dataset, split, config, path_of("out", out), start)
    return train_together([job], resume=resume, callback=callback, checkpoint_every=checkpoint_every)[0]


def train_together(
    jobs: Sequence[Job],
    *,
    resume: bool = False,
    callback: TrainCallback | None = None,
    checkpoint_every: float = 30.0,
) -> list[TrainResult]:
    """Train several models as one program; they share settings and set sizes, not data or seed.

    Every one has its own folder and checkpoint, so any of them can be continued alone, or beside others, if
    the elements of all those together are the same: weights are padded to them.
    """
    typed("checkpoint_every", checkpoint_every, float)
    for job in jobs:
        check_job(job)
    _check_alike(jobs)
    device = check_device(jobs[0].config.device)
    elements = sorted({z for job in jobs for z in _elements(job)})
    atoms = max(
        int(job.dataset.sizes[np.concatenate([job.split.train, job.split.validation])].max()) for job in jobs
    )
    runs = [Run(job, elements, atoms, device) for job in jobs]
    with ExitStack() as locks:
        for run in runs:
            locks.enter_context(locked(run.folder, resume))
            run.open(resume)
        return _train(runs, device, callback, checkpoint_every)


def _train(
    runs: list[Run], device: torch.device, callback: TrainCallback | None, checkpoint_every: float
) -> list[TrainResult]:
    """Train runs in folders that are open and locked."""
    done = {id(run) for run in runs if run.counters.finished}
    with stop_on_signal() as stop:
        # A crash between two checkpoints leaves models at different epochs: each epoch is a group.
        for place in sorted({run.place for run in runs if id(run) not in done}):
            group = [run for run in runs if run.place == place and id(run) not in done]
            _Group(group, device, checkpoint_every).loop(callback, stop)
    for run in runs:
        run.finalise()
    return [run.result(already_finished=id(run) in done) for run in runs]


class _Group:
    """Runs at the same place of the same schedule, sharing one stepper."""

    def __init__(self, runs: list[Run], device: torch.device, checkpoint_every: float) -> None:
        self.runs, self.device, self.checkpoint_every = runs, device, checkpoint_every
        self.config = runs[0].config
        self.count = len(runs[0].training)
        self.steps = math.ceil(self.count / self.config.batch)
        self.loss = Loss(
            self.config.weighting, self.config.rho, self.config.stress_weight, self.config.loss_per_atom
        )
        self.validation = stacked([run.validation for run in runs])
        self.stepper = Stepper(
            [run.network for run in runs],
            stacked([run.training for run in runs]),
            self.loss,
            ema_decay=self.config.ema_decay,
            clip=self.config.clip,
            optimiser=self.config.optimiser,
            engine=self.config.engine,
        )
        fresh = all(run.state is None for run in runs)
        for member, run in enumerate(runs):
            if run.state is not None:
                self.stepper.adam.load_state(member, run.state)
            self.stepper.adam.pace[member] = run.pace
        self.start, self.epoch, self.step = runs[0].place
        self.fraction_before = self._fraction()
        self.last_write = self.started = time.monotonic()
        if fresh:
            self._write(runs)

    def loop(self, callback: TrainCallback | None, stop: StopRequest) -> None:
        """Epoch after epoch until all runs have ended or a stop is requested."""
        while active := [run for run in self.runs if not run.counters.finished]:
            new_row = self._segment(active)
            ended = [run for run in active if run.counters.finished]
            for member, run in enumerate(self.runs):  # after an epoch all members, between epochs the first
                if callback is not None and run in (active if new_row else active[:1]):
                    stop.requested |= bool(callback(self._progress(run, member, new_row)))
            # Read once: a request that arrives after saving is handled in the next round.
            stopping = self.stepper.team.any(bool(stop))
            overdue = time.monotonic() - self.last_write >= self.checkpoint_every
            if stopping or (overdue and (new_row or self.checkpoint_every > 0)):
                self._write(active)
            elif ended:
                self._write(ended)
            for run in active if stopping else ended:
                if self.stepper.team.leads:
                    run.plot()
            if stopping and len(ended) < len(active):
                raise Interrupted(self.runs[0].folder, self.epoch, stop.signal)

    def _segment(self, active: list[Run]) -> bool:
        """The next steps of the epoch under way; True if they completed it."""
        config = self.config
        order = torch.stack([epoch_order(self.count, run.seed, self.epoch) for run in self.runs])
        rates = learning_rates(config, self.epoch, self.steps, self.start)
        end = min(self.step + SEGMENT, self.steps)
        chosen = slice(self.step * config.batch, end * config.batch)
        sums = self.stepper.run_epoch(order[:, chosen], config.batch, rates[self.step : end])
        for run, own in zip(self.runs, sums.per_member(), strict=True):
            if run in active:
                run.add_steps(end, own)
        self.step = end
        if end < self.steps:
            return False
        self._end_epoch(active, rates[-1])
        return True

    def _end_epoch(self, active: list[Run], rate: float) -> None:
        """Validate, and report to every run."""
        self.epoch, self.step = self.epoch + 1, 0
        results: list[list[float]] | None = None
        if self.epoch % self.config.validate_every == 0 or self.epoch == self.config.epochs:
            results = self.stepper.validate(self.validation).per_member()
        for member, run in enumerate(self.runs):
            if run in active:
                weights = None if results is None else self.stepper.kept_weights(member)
                if run.end_epoch(rate, None if results is None else results[member], weights):
                    self.stepper.adam.restart(member, run.best)
                    self.stepper.adam.pace[member] = run.pace

    def _write(self, runs: list[Run]) -> None:
        for member, run in enumerate(self.runs):
            if run in runs:
                run.write(self.stepper.adam.state(member))
        self.last_write = time.monotonic()

    def _fraction(self) -> float:
        return (self.epoch + self.step / self.steps) / self.config.epochs

    def _progress(self, run: Run, member: int, new_row: bool) -> TrainProgress:
        fraction = self._fraction()
        ended = all(run.counters.finished for run in self.runs)
        pace = (time.monotonic() - self.started) / max(fraction - self.fraction_before, 1e-12)
        return TrainProgress(
            epoch=self.epoch,
            epochs=self.config.epochs,
            fraction=fraction,
            row=run.history.rows[-1] if run.history.rows else None,
            new_row=new_row,
            best_epoch=run.counters.best_epoch,
            seconds=run.counters.seconds,
            seconds_left=0.0 if ended else pace * (1.0 - fraction),
            unit=run.unit,
            member=member,
            members=len(self.runs),
        )


def epoch_order(count: int, seed: int, epoch: int) -> Tensor:
    """The order of the data in an epoch, a function of seed and epoch alone: resuming needs no state."""
    (mixed,) = np.random.SeedSequence([seed, epoch]).generate_state(1, np.uint64)
    return torch.randperm(count, generator=torch.Generator().manual_seed(int(mixed >> np.uint64(1))))


def _elements(job: Job) -> Sequence[int]:
    """Elements the job's network must have."""
    if job.base is not None:
        return job.base.elements
    return elements_of(job.dataset, job.split)


def _check_alike(jobs: Sequence[Job]) -> None:
    """Raise an error unless the jobs take the same steps."""
    first = jobs[0]
    for job in jobs[1:]:
        ours, theirs = first.config.to_dict(), job.config.to_dict()
        differ = [name for name in ours if name not in _OWN and ours[name] != theirs[name]]
        sizes = [(len(j.split.train), len(j.split.validation)) for j in (first, job)]
        if differ or sizes[0] != sizes[1]:
            what = ", ".join(differ) or "the sizes of training and validation sets"
            raise GeomAttError(f"Models trained side by side must agree in: {what}. Train them apart.")
