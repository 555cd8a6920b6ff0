"""Models that an experiment trains: each once, kept as a piece, continued after an interruption.

A member of a study is one model: what it is trained on and how. Missing members are trained in groups, each
group as one program. Every member has its own checkpoint and, when it is finished, its own piece, so an
interrupted run continues in any grouping.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import numpy as np

from geomatt.data import Dataset, Split
from geomatt.evaluation import evaluate
from geomatt.model import Potential, save
from geomatt.progress import silent
from geomatt.reproduce.frame import ExperimentSettings, Pieces, ProgressBar, provenance
from geomatt.reproduce.inputs import described, load_or_embedded
from geomatt.reproduce.spreading import spread
from geomatt.training import (
    Diverged,
    Interrupted,
    Job,
    TrainConfig,
    TrainProgress,
    TrainResult,
    train_together,
)
from geomatt.units import from_ev

UNIT = "kcal/mol"
LICENCE = "CC0 (MD17 labels as carried by the rMD17 files)"
STEPS = 1000  # of the progress bar of a training run
CHECKPOINT = "checkpoint.safetensors"  # in the folder of a run; removed when the run is finished


class StudyMember(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def data(self) -> str:
        """The name of its data, such as md17/aspirin."""


M = TypeVar("M", bound=StudyMember)


class Study(ABC, Generic[M]):
    """The data of an experiment, and the members trained on them."""

    name: ClassVar[str]  # of its pieces and its work folder

    def __init__(self, settings: ExperimentSettings, progress: ProgressBar) -> None:
        self.settings, self.progress = settings, progress
        self.pieces = Pieces(settings, self.name)
        self.data: dict[str, Dataset] = {}
        self.described: dict[str, Any] = {}  # by the names of the data
        self.stand_in = False  # True if embedded data are used in place of those asked for

    @property
    def work(self) -> Path:
        """The folder of training runs, and of models of a quick run."""
        return self.settings.work(self.name)

    def dataset(self, member: M) -> Dataset:
        """The data of a member, loaded when they are needed first."""
        if member.data not in self.data:
            found, self.stand_in = load_or_embedded(self.settings, [member.data], "embedded/ethanol")
            (self.data[member.data],) = found.values()
            self.described[member.data] = described(self.data[member.data])
        return self.data[member.data]

    @abstractmethod
    def config(self, member: M) -> TrainConfig:
        """All settings of a member."""

    @abstractmethod
    def split(self, member: M) -> Split: ...

    @abstractmethod
    def measure(self, member: M, job: Job, result: TrainResult) -> dict[str, Any]:
        """The numbers of a trained member that are kept beside those of `training_record`."""

    def beside(self, member: M) -> dict[str, Any]:
        """Further values that the numbers of a member depend on, beside settings and data."""
        return {}

    def base(self, member: M) -> Potential | None:
        """The model a member starts from."""
        return None

    def can_train(self, member: M) -> bool:
        return True

    def groups(self, members: Sequence[M]) -> list[list[M]]:
        """Members that are trained as one program."""
        return [[member] for member in members]

    def inputs(self, member: M) -> dict[str, Any]:
        """Everything the numbers of a member depend on."""
        settings = self.config(member).to_dict()
        settings.pop("device")
        self.dataset(member)
        data = self.described[member.data]["fingerprint"]
        return {"settings": settings, "data": data, **self.beside(member)}

    def find(self, member: M) -> dict[str, Any] | None:
        """The numbers of a member, if it is finished."""
        found: dict[str, Any] | None = self.pieces.find(member.name, self.inputs(member))
        return found

    def finished(self, member: M) -> bool:
        return self.find(member) is not None

    def results(self, members: Iterable[M]) -> dict[M, dict[str, Any]]:
        """The numbers of those members that are finished."""
        return {member: found for member in members if (found := self.find(member)) is not None}

    def missing(self, plan: Mapping[str, Sequence[M]]) -> dict[str, int]:
        """The number of unfinished members of each part that has any."""
        left = {part: sum(not self.finished(m) for m in members) for part, members in plan.items()}
        return {part: count for part, count in left.items() if count}

    def train_all(self, parts: Iterable[Sequence[M]]) -> None:
        """Train the members of several parts, the first parts first; with workers all of them at once."""
        every = list(parts)
        if self.settings.workers is not None:
            every = [[member for part in every for member in part]]
        for part in every:
            self.train(part)

    def train(self, members: Sequence[M]) -> None:
        """Train those members that are missing, until the deadline."""
        missing = [member for member in members if not self.finished(member) and self.can_train(member)]
        if self.settings.workers is not None:
            tasks = [(type(self), task) for task in self.tasks(missing)]
            spread(self.settings, self.progress, "training", train_in_worker, tasks)
            return
        for group in self.groups(missing):
            if self.settings.out_of_time:
                return
            self.train_group(group)

    def tasks(self, members: Sequence[M]) -> list[list[M]]:
        """The units of work for workers: a model on a CPU; on a GPU models that are trained side by side."""
        return self.groups(members) if self.settings.device != "cpu" else [[member] for member in members]

    def train_group(self, group: Sequence[M]) -> None:
        """Train, test and keep members that are trained as one program."""
        for member, job, result in zip(group, *self.run_group(group), strict=False):
            value = {**self.measure(member, job, result), **training_record(result)}
            value["together"] = len(group)
            # The time of training, shared by the members of the group.
            made = provenance(self.settings, result.seconds / len(group))
            self.pieces.put(member.name, self.inputs(member), value, made)
            (job.folder / CHECKPOINT).unlink(missing_ok=True)

    def run_group(self, group: Sequence[M]) -> tuple[list[Job], list[TrainResult]]:
        """The jobs of a group and their results; none if the deadline passed before they were finished."""
        jobs = [
            Job(self.dataset(m), self.split(m), self.config(m), self.work / m.name, self.base(m))
            for m in group
        ]
        title = f"{group[0].name}, {len(group)} models" if len(group) > 1 else group[0].name
        return jobs, train_jobs(self.settings, self.progress, title, jobs)

    def errors(
        self, potential: Potential, data: Dataset, rows: np.ndarray, unit: str = UNIT, **options: Any
    ) -> dict[str, Any]:
        """Errors on some of the frames, of energies in `unit` and forces in `unit`/Å."""
        batch = 256 if self.settings.device.startswith("cuda") else 32
        potential.to(self.settings.device)
        found = evaluate(potential, data, indices=rows, unit="eV", batch_size=batch, **options)
        potential.to("cpu")
        overall = found.overall.scaled(1000.0 if unit == "meV" else from_ev(unit))
        return {
            "energy_mae": overall.energy_mae,
            "energy_rmse": overall.energy_rmse,
            "force_mae": overall.forces_mae,
            "force_rmse": overall.forces_rmse,
            "unit": unit,
            "frames": len(found.data),
            "left_out": found.trained,
        }

    def model_path(self, file: str) -> Path:
        """Where a model is kept."""
        return (self.work if self.settings.quick else self.settings.out) / "models" / file

    def keep_model(self, file: str, potential: Potential, errors: Mapping[str, Any], command: str) -> None:
        """Write a model file that names its errors and its origin."""
        test = {name: errors[name] for name in ("energy_mae", "force_mae", "frames", "unit")}
        potential.record |= {"test": test, "licence": LICENCE, "made_by": command}
        save(potential, self.model_path(file))


class TolerantStudy(Study[M]):
    """Members whose divergence is a result, with the reason as `diverged` instead of errors."""

    def train_group(self, group: Sequence[M]) -> None:
        started = time.monotonic()
        try:
            super().train_group(group)
        except Diverged as error:
            made = provenance(self.settings, time.monotonic() - started)
            for member in group:  # one
                self.pieces.put(member.name, self.inputs(member), {"diverged": error.reason}, made)


def same_steps(config: TrainConfig, **changes: int) -> TrainConfig:
    """Another `batch` or `train` and as many steps: what is counted in epochs changes in proportion."""
    after = config.replace(**changes)
    ratio = epoch_steps(config) / epoch_steps(after)
    counted = {name: getattr(config, name) for name in ("epochs", "warmup", "validate_every")}
    return after.replace(**{n: max(1, round(ratio * value)) for n, value in counted.items() if value})


def epoch_steps(config: TrainConfig) -> int:
    """Steps of an epoch, of settings that name the number of training frames."""
    assert config.train is not None
    return math.ceil(config.train / config.batch)


def training_record(result: TrainResult) -> dict[str, Any]:
    """The record kept of every training run."""
    return {
        "validation": result.best_errors,
        "epochs": result.epochs,
        "best_epoch": result.best_epoch,
        "finished": result.finished,
        "returns": result.potential.record.get("slowdowns", 0),
        "seconds": result.seconds,
        "parameters": sum(p.numel() for p in result.potential.network.parameters()),
    }


def train_in_worker(settings: ExperimentSettings, task: tuple[type[Study[Any]], Sequence[Any]]) -> None:
    """Train members of a study; their numbers are pieces in the folder of the settings."""
    study, members = task
    study(settings, silent).train(members)


def progress_teller(advance: Callable[[int], None]) -> Callable[[TrainProgress], None]:
    """A callback of training that advances a bar of STEPS."""
    shown = 0

    def tell(state: TrainProgress) -> None:
        nonlocal shown
        reached = max(shown, int(STEPS * state.fraction))
        advance(reached - shown)
        shown = reached

    return tell


def train_jobs(
    settings: ExperimentSettings, progress: ProgressBar, title: str, jobs: Sequence[Job]
) -> list[TrainResult]:
    """Train models side by side, or continue; nothing if the deadline passed before they were finished."""
    with progress(title, STEPS) as advance:
        tell = progress_teller(advance)

        def report(state: TrainProgress) -> bool:
            tell(state)
            return settings.out_of_time

        try:
            return train_together(jobs, resume=True, callback=report, checkpoint_every=60.0)
        except Interrupted as stop:
            if stop.signal_number:  # the user's, not ours
                raise
            return []
