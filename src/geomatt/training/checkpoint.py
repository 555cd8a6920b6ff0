"""Checkpoints: one safetensors file with JSON in its header, replaced atomically, never unpickled."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor

from geomatt.errors import GeomAttError
from geomatt.training.folder import CHECKPOINT, write_safely

FORMAT = 1
FORMER = ("wild",)  # counters of earlier versions that no longer exist


@dataclass
class Counters:
    """Progress of a run, besides its tensors."""

    epoch: int = 0  # epochs completed
    step: int = 0  # steps done of the epoch under way
    sums: list[float] = field(default_factory=lambda: [0.0] * 5)  # errors summed over those steps
    best_loss: float = float("inf")  # on validation
    best_epoch: int = 0
    best_errors: dict[str, float] = field(default_factory=dict)  # MAEs in eV at the best epoch
    slowdowns: int = 0  # times the run went astray: it returned to its best weights, at half the rate
    seconds: float = 0.0  # spent so far, all sessions
    finished: str = ""  # why it ended; empty while it has not
    energy_zero: dict[str, Any] | None = None  # empty until it is fitted, at the end; None: never
    error_bars: dict[str, Any] | None = None  # as `energy_zero`
    peak_memory: dict[str, int] = field(default_factory=dict)  # bytes, the most of all sessions
    cycles: list[int] = field(
        default_factory=list
    )  # epochs after which the run was extended by a new schedule

    @property
    def cycle_start(self) -> int:
        """The epoch at which the present schedule began."""
        return self.cycles[-1] if self.cycles else 0


@dataclass
class Checkpoint:
    """Everything needed to continue a run bit by bit, except its data."""

    config: dict[str, Any]  # as TrainConfig.to_dict
    identity: dict[str, str]  # hashes of what the run must find unchanged: data, split, base model
    counters: Counters
    stepper: dict[str, Tensor]
    best: dict[str, Tensor]  # parameters with the lowest validation loss; empty before the first
    history: Tensor  # (epochs, columns) float64
    # Of all models trained side by side: weights are padded to them. Empty in files of earlier versions.
    elements: Sequence[int] = ()

    def write(self, folder: Path) -> None:
        """Replace the checkpoint of the folder; a crash leaves either the old or the new one complete."""
        tensors = {f"stepper.{n}": t for n, t in self.stepper.items()}
        tensors.update({f"best.{n}": t for n, t in self.best.items()})
        tensors["history"] = self.history
        header = {
            "format": FORMAT,
            "config": self.config,
            "identity": self.identity,
            "counters": asdict(self.counters),
            "elements": list(self.elements),
        }
        body = to_bytes(
            # Distinct contiguous copies: safetensors refuses tensors that share memory.
            {n: t.detach().to("cpu", copy=True).contiguous() for n, t in tensors.items()},
            {"geomatt_checkpoint": json.dumps(header)},
        )
        write_safely(folder / CHECKPOINT, body)


def exists(folder: Path) -> bool:
    return (folder / CHECKPOINT).is_file()


def read(folder: Path) -> Checkpoint:
    """The folder's checkpoint."""
    path = folder / CHECKPOINT
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
            counters=Counters(**{n: v for n, v in header["counters"].items() if n not in FORMER}),
            stepper=_under("stepper.", tensors),
            best=_under("best.", tensors),
            history=tensors["history"],
            elements=tuple(header.get("elements", ())),
        )
    except FileNotFoundError:
        raise GeomAttError(f"There is no checkpoint in {folder}, so there is nothing to resume.") from None
    except (SafetensorError, OSError, KeyError, TypeError, json.JSONDecodeError) as error:
        raise GeomAttError(
            f"{path} is not a readable checkpoint ({error}). Train again into a new folder."
        ) from None


def all_finite(state: dict[str, Tensor]) -> bool:
    """True if all numbers of a state are finite; one transfer from the device for all of it."""
    if not state:
        return True
    return bool(torch.stack([torch.isfinite(t).all() for t in state.values() if t.dim()]).all())


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}
