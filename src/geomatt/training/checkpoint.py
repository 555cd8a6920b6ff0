"""Checkpoints: one safetensors file with JSON in its header, replaced atomically, never unpickled."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor

from geomatt.errors import GeomAttError

FILE = "checkpoint.safetensors"
FORMAT = 1


@dataclass
class Counters:
    """Where a run stands, besides its tensors."""

    epoch: int = 0  # epochs completed
    step: int = 0  # steps done of the epoch under way
    sums: list[float] = field(default_factory=lambda: [0.0] * 5)  # errors summed over those steps
    best_loss: float = float("inf")  # on validation
    best_epoch: int = 0
    best_errors: dict[str, float] = field(default_factory=dict)  # MAEs in eV at the best epoch
    wild: int = 0  # validations in a row with an absurd loss
    seconds: float = 0.0  # spent so far, all sessions
    finished: str = ""  # why it ended; empty while it has not


@dataclass
class Checkpoint:
    """All that continuing a run bit by bit needs, given its data and configuration."""

    config: dict[str, Any]  # as TrainConfig.to_dict
    identity: dict[str, str]  # hashes of what the run must find unchanged: data, split, base model
    counters: Counters
    stepper: dict[str, Tensor]
    best: dict[str, Tensor]  # parameters with the lowest validation loss; empty before the first
    history: Tensor  # (epochs, columns) float64

    def write(self, folder: Path) -> None:
        """Replace the folder's checkpoint; a crash at any moment leaves the old or the new one whole."""
        tensors = {f"stepper.{n}": t for n, t in self.stepper.items()}
        tensors.update({f"best.{n}": t for n, t in self.best.items()})
        tensors["history"] = self.history
        header = {
            "format": FORMAT,
            "config": self.config,
            "identity": self.identity,
            "counters": asdict(self.counters),
        }
        body = to_bytes(
            # Distinct contiguous copies: safetensors refuses tensors that share memory.
            {n: t.detach().to("cpu", copy=True).contiguous() for n, t in tensors.items()},
            {"geomatt_checkpoint": json.dumps(header)},
        )
        write_atomically(folder / FILE, body)


def exists(folder: Path) -> bool:
    return (folder / FILE).is_file()


def read(folder: Path) -> Checkpoint:
    """The folder's checkpoint."""
    path = folder / FILE
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        header = json.loads(metadata["geomatt_checkpoint"])
        if header["format"] > FORMAT:
            raise GeomAttError(f"{path} was written by a newer geomatt. Update the package to resume.")
        return Checkpoint(
            config=header["config"],
            identity=header["identity"],
            counters=Counters(**header["counters"]),
            stepper=_under("stepper.", tensors),
            best=_under("best.", tensors),
            history=tensors["history"],
        )
    except FileNotFoundError:
        raise GeomAttError(f"There is no checkpoint in {folder}, so there is nothing to resume.") from None
    except (SafetensorError, OSError, KeyError, TypeError, json.JSONDecodeError) as error:
        raise GeomAttError(
            f"{path} is not a readable checkpoint ({error}). Train again into a new folder."
        ) from None


def all_finite(state: dict[str, Tensor]) -> bool:
    """Whether a state is worth keeping; one transfer from the device for all of it."""
    if not state:
        return True
    return bool(torch.stack([torch.isfinite(t).all() for t in state.values() if t.dim()]).all())


def write_atomically(path: Path, body: bytes) -> None:
    """Write next to `path`, force it to disk, then rename over it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(body)
            file.flush()
            os.fsync(file.fileno())
        replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise write_error(path, error) from None


def replace(temporary: Path, path: Path) -> None:
    """Rename over `path` and force the folder's entry to disk."""
    temporary.replace(path)
    try:
        folder = os.open(path.parent, os.O_RDONLY)
    except OSError:  # folders cannot be opened everywhere; the rename itself is still atomic
        return
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def write_error(path: Path, error: OSError) -> GeomAttError:
    """What the user is told when the disk says no."""
    advice = {
        errno.ENOSPC: "The disk is full: free some space",
        errno.EDQUOT: "The disk quota is used up: free some space",
        errno.EFBIG: "The file would be larger than is allowed: raise the limit",
        errno.EACCES: "The folder is not writable: change its permissions or choose another --out",
        errno.EPERM: "The folder is not writable: change its permissions or choose another --out",
        errno.EROFS: "The file system is read-only: choose another --out",
    }.get(error.errno or 0, "Check the disk")
    kept = (
        " The last checkpoint is still whole: continue from it with --resume." if exists(path.parent) else ""
    )
    return GeomAttError(f"Could not write {path}: {error.strerror or error}. {advice}.{kept}")


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}
