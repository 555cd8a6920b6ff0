"""Members and folds of a run trained by several processes or a Dask cluster, each member by one of them."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

from geomatt.data.make.workers import Workers, single
from geomatt.errors import GeomAttError
from geomatt.training.config import TrainConfig
from geomatt.training.folder import CONFIG, HISTORY, locked, write_safely
from geomatt.training.members import member_folder

Progress = Callable[[int], None]


def spread_members(
    config: TrainConfig,
    out: Path,
    workers: Workers,
    *,
    resume: bool = False,
    checkpoint_every: float = 30.0,
    progress: Progress | None = None,
) -> list[int]:
    """Train all members in `out`; afterwards `train_members` with `resume` finds them finished.

    Workers read the data that `config` names and write into `out`, so they need the same file system. A
    member whose worker died is continued by another from its last checkpoint. `progress` is called with the
    number of epochs done since the last call. Returns the epochs that each member was trained for now.
    """
    if not config.has_members:
        raise GeomAttError("Only a run with `members` or `folds` is spread over workers: each trains one.")
    if config.base:
        raise GeomAttError("A transfer is not spread over workers: train its members one by one.")
    out = out.resolve()
    told = [0] * config.member_count
    before = [_epochs(member_folder(out, k)) for k in range(len(told))]

    def tell() -> None:
        now = [_epochs(member_folder(out, k)) for k in range(len(told))]
        if progress is not None and sum(now) > sum(told):
            progress(sum(now) - sum(told))
        told[:] = now

    with locked(out, resume):
        if not (resume and (out / CONFIG).exists()):
            write_safely(out / CONFIG, config.to_toml().encode())
        given = config.to_dict()
        members = range(config.member_count)
        workers.run((single(train_member, given, str(out), k, checkpoint_every) for k in members), tell)
        tell()
    return [now - earlier for now, earlier in zip(told, before, strict=True)]


def train_member(settings: dict[str, Any], out: str, member: int, checkpoint_every: float) -> int:
    """Train one member of a run, or continue to; its epochs. Runs in a worker."""
    from geomatt.training.dataset import load_dataset, make_splits, unwanted
    from geomatt.training.loop import train_together
    from geomatt.training.run import Job

    config = TrainConfig.from_dict(settings)
    dataset, parts = load_dataset(config)
    split = make_splits(config, parts, unwanted(config, dataset))[member]
    job = Job(dataset, split, config.replace(member=member), member_folder(out, member))
    return train_together([job], resume=True, checkpoint_every=checkpoint_every)[0].epochs


def _epochs(folder: Path) -> int:
    """Epochs in a member's history so far."""
    try:
        rows = list(csv.DictReader((folder / HISTORY).read_text(encoding="utf-8").splitlines()))
        return int(rows[-1]["epoch"]) if rows else 0
    except (OSError, ValueError, KeyError, TypeError):  # not there yet, or half written
        return 0
