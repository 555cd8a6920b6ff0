"""Several models in one run: folds of the data, or seeds. Each is a run of its own in `RUN/member_k`."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from geomatt.arguments import path_of
from geomatt.data.dataset import Dataset
from geomatt.data.mapped import excerpt
from geomatt.data.splits import Split
from geomatt.errors import GeomAttError
from geomatt.model import Potential
from geomatt.model.devices import check_device
from geomatt.training import checkpoint
from geomatt.training.config import TrainConfig, read_settings
from geomatt.training.error_bars import calibrate
from geomatt.training.folder import CONFIG, locked, write_safely
from geomatt.training.loop import TrainCallback, train_together
from geomatt.training.resume import extends
from geomatt.training.run import Job, TrainResult
from geomatt.training.team import own_folder, team


def member_folder(out: str | Path, member: int) -> Path:
    return Path(out) / f"member_{member}"


def train_members(
    dataset: Dataset,
    splits: Sequence[Split],
    config: TrainConfig,
    out: str | Path,
    *,
    resume: bool = False,
    base: Potential | None = None,
    callback: TrainCallback | None = None,
    checkpoint_every: float = 30.0,
) -> list[TrainResult]:
    """Train one model in `out`, or one per member or fold in folders below it.

    `resume` skips finished members and continues the unfinished. Processes that have joined (`team.join`)
    share the work of every step.
    """
    if isinstance(splits, Split) or not isinstance(splits, Sequence):
        raise GeomAttError("Give a list of splits, one for each member: train_members(data, [split], …).")
    us = team()
    if not us.leads:
        callback, checkpoint_every = None, math.inf
    with own_folder(path_of("out", out), us) as folder:
        if not config.has_members:
            job = Job(dataset, splits[config.member or 0], config, folder, base)
            return train_together([job], resume=resume, callback=callback, checkpoint_every=checkpoint_every)
        if len(splits) != config.member_count:
            raise GeomAttError(f"{config.member_count} members need as many splits, not {len(splits)}.")
        jobs = [
            Job(dataset, split, config.replace(member=member), member_folder(folder, member), base)
            for member, split in enumerate(splits)
        ]
        for job in jobs if resume else []:  # before one of them is extended
            if checkpoint.exists(job.folder):
                extends(checkpoint.read(job.folder), job.config, job.folder)
        # One program for all fills a GPU; on a CPU sharing gains nothing.
        groups = [jobs] if check_device(config.device).type == "cuda" else [[job] for job in jobs]
        results: list[TrainResult] = []
        with locked(folder, resume):
            if not (resume and (folder / CONFIG).exists()):
                write_safely(folder / CONFIG, config.to_toml().encode())
            for group in groups:
                tell = callback if len(group) == len(jobs) else _numbered(callback, len(results), len(jobs))
                results += train_together(
                    group, resume=resume, callback=tell, checkpoint_every=checkpoint_every
                )
            if config.members > 1:  # folds have no frames that no member was trained on
                validation = dataset.select(excerpt(dataset, splits[0].validation))
                calibrate([r.potential for r in results], validation, folder)
        return results


def _numbered(callback: TrainCallback | None, member: int, members: int) -> TrainCallback | None:
    """A callback for one of several models that are trained one after the other."""
    if callback is None:
        return None
    return lambda progress: callback(dataclasses.replace(progress, member=member, members=members))


def spread(results: Sequence[TrainResult], error: str) -> tuple[float, float]:
    """Mean and standard deviation over members of a validation error (eV, eV/Å)."""
    values = [r.best_errors[error] for r in results]
    return float(np.mean(values)), float(np.std(values))


def stored_settings(out: str | Path) -> dict[str, object]:
    """The settings of the run in a folder, to resume it."""
    folder = Path(out)
    if folder.is_file():
        raise GeomAttError(f"{folder} is a file. To `resume` a run, name its folder as `out`.")
    if not (folder / CONFIG).is_file():
        raise GeomAttError(
            f"There is no run to resume in {folder} (no config.toml). Start one without `resume`."
        )
    first = member_folder(folder, 0) / CONFIG  # of members; newer if the run was extended
    settings = read_settings(first if first.is_file() else folder / CONFIG)
    return {name: value for name, value in settings.items() if not first.is_file() or name != "member"}
