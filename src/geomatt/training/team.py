"""Processes that train one model together, started by torchrun: each computes a share of every batch.

All of them hold the same weights and take the same decisions. Only the first writes into the run's folder;
the others work in temporary ones.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as distributed
from torch import Tensor

from geomatt.errors import GeomAttError
from geomatt.training.folder import CHECKPOINT, CONFIG


@dataclass(frozen=True)
class Team:
    """This process among those that train together; alone by default."""

    rank: int = 0
    size: int = 1
    joined: bool = False  # True if there is a group to communicate in, even one of a single process

    @property
    def leads(self) -> bool:
        return self.rank == 0

    def share(self, index: Tensor) -> Tensor:
        """This process's part of the structures (M, B) of a batch; it may be empty."""
        return index[:, self.rank :: self.size] if self.size > 1 else index

    def sum_(self, values: Tensor) -> Tensor:
        """The sum over all processes, in place; bit by bit the same in each of them."""
        if self.joined:
            distributed.all_reduce(values)
        return values

    def any(self, wanted: bool) -> bool:
        """True if it is true in any process."""
        if not self.joined:
            return wanted
        flag = torch.tensor([float(wanted)], device="cuda" if distributed.get_backend() == "nccl" else "cpu")
        return bool(self.sum_(flag) > 0)


def team() -> Team:
    """The processes that have been joined by `join`."""
    if not distributed.is_available() or not distributed.is_initialized():
        return Team()
    return Team(distributed.get_rank(), distributed.get_world_size(), joined=True)


@contextmanager
def join(device: str) -> Iterator[Team]:
    """Join the other processes that torchrun started, if it did: gloo on CPUs, nccl on GPUs."""
    if int(os.environ.get("WORLD_SIZE", "1")) <= 1 or distributed.is_initialized():
        yield team()
        return
    on_gpu, local = device.startswith("cuda"), int(os.environ.get("LOCAL_RANK", "0"))
    if on_gpu:
        if device != "cuda":
            raise GeomAttError(
                f"Every process of torchrun uses its own GPU: set `device` to cuda, not {device}."
            )
        if local >= torch.cuda.device_count():
            raise GeomAttError(
                f"torchrun started more processes on this machine than its {torch.cuda.device_count()} GPUs. "
                "Start one per GPU."
            )
        torch.cuda.set_device(local)
    try:
        distributed.init_process_group(
            "nccl" if on_gpu else "gloo", device_id=torch.device("cuda", local) if on_gpu else None
        )
    except (RuntimeError, ValueError) as error:
        raise GeomAttError(f"The processes of torchrun cannot reach each other: {error}") from error
    try:
        yield team()
    finally:
        distributed.destroy_process_group()


@contextmanager
def own_folder(folder: Path, us: Team) -> Iterator[Path]:
    """The folder to train in: the run's for the first process, a temporary copy for the others."""
    if not us.joined:
        yield folder
        return
    with tempfile.TemporaryDirectory() as temporary:
        if not us.leads and folder.is_dir():
            for path in (*folder.glob("member_*/*"), *folder.glob("*")):
                if path.name in (CHECKPOINT, CONFIG):
                    target = Path(temporary) / path.relative_to(folder)
                    target.parent.mkdir(exist_ok=True)
                    shutil.copyfile(path, target)
        distributed.barrier()  # before the first process changes anything
        yield folder if us.leads else Path(temporary)
        distributed.barrier()
