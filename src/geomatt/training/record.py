"""Provenance of a model, stored in its file: data, settings and machine."""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from geomatt import __version__
from geomatt.data.dataset import Dataset

if TYPE_CHECKING:
    from geomatt.data.splits import Split
    from geomatt.training.checkpoint import Counters
    from geomatt.training.config import TrainConfig


MOST_LISTED = 500_000  # frames whose hashes a model file holds
CHUNK = 10_000  # frames hashed at a time


def data_record(dataset: Dataset, split: Split) -> dict[str, Any]:
    """The data and its split; frame hashes identify trained frames, also in other files."""
    seen = np.concatenate([split.train, split.validation])
    return {
        "data": {
            "name": dataset.name,
            "origin": dataset.provenance,
            "structures": len(dataset),
            "fingerprint": dataset.fingerprint(),
        },
        **_frames_record(dataset, split, seen),
    }


def _frames_record(dataset: Dataset, split: Split, seen: np.ndarray) -> dict[str, Any]:
    """Which frames train and validate; of very many, only how many there are and how they were drawn."""
    if len(seen) > MOST_LISTED:
        sizes = {role: len(getattr(split, role)) for role in ("train", "validation", "test")}
        return {
            "split": {"kind": split.kind, "seed": split.seed, "sizes": sizes},
            "frames_not_listed": len(seen),
        }
    hashes = [
        h
        for start in range(0, len(seen), CHUNK)
        for h in dataset.select(seen[start : start + CHUNK]).frame_hashes()
    ]
    return {"split": split.to_dict(), "trained_frames": hashes}


def run_record(config: TrainConfig, counters: Counters, unit: str) -> dict[str, Any]:
    """The settings, how far training went, and on what machine."""
    return {
        "settings": _without_folders(config.to_dict()),
        "seed": config.own_seed,
        "epochs": counters.epoch,
        "best_epoch": counters.best_epoch,
        **({"slowdowns": counters.slowdowns} if counters.slowdowns else {}),
        **({"extended_after_epochs": counters.cycles} if counters.cycles else {}),
        "validation": {"loss": counters.best_loss, **counters.best_errors},
        "seconds": round(counters.seconds, 3),
        "peak_memory": counters.peak_memory,
        "hardware": hardware(config.device),
        "geomatt": __version__,
        "torch": str(torch.__version__),
        "commit": commit(),
        "report_unit": unit,
    }


def _without_folders(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings with names of files instead of the user's paths."""
    files = {"data", "more_data", "val_data", "test_data", "base"}
    files |= {"train_indices", "val_indices", "test_indices"}

    def name(value: Any) -> Any:
        if isinstance(value, list):
            return [name(item) for item in value]
        return Path(value).name if value and Path(value).is_absolute() else value

    return {key: name(value) if key in files else value for key, value in settings.items()}


def split_hash(split: Split) -> str:
    """A hash of which frames train and which validate."""
    digest = hashlib.sha256()
    for part in (split.train, split.validation):
        digest.update(np.asarray(part, dtype=np.int64).tobytes() + b"|")
    return digest.hexdigest()


def hardware(device: str) -> str:
    """The processor in words."""
    if torch.device(device).type == "cuda":
        return torch.cuda.get_device_name(device)
    name = platform.processor() or platform.machine()
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                name = line.partition(":")[2].strip()
                break
    except OSError:
        pass
    threads = torch.get_num_threads()
    return f"{name}, {threads} thread{'s' if threads > 1 else ''}"


def peak_memory(device: str) -> dict[str, int]:
    """The most memory this process has held so far, and on a GPU the most that torch has allocated, in bytes.

    Empty where the system does not tell.
    """
    found = {}
    try:
        for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
            if line.startswith("VmHWM:"):
                found["process"] = 1024 * int(line.split()[1])
    except OSError:
        pass
    if torch.device(device).type == "cuda":
        found["gpu"] = int(torch.cuda.max_memory_allocated(device))
    return found


@functools.cache  # a later commit is not the code that runs
def commit() -> str | None:
    """The commit of the source tree the package runs from, if it is one."""
    source = Path(__file__).resolve().parents[3]
    if not (source / ".git").exists() or not (source / "src" / "geomatt").is_dir():
        return None
    try:
        answer = subprocess.run(
            ["git", "rev-parse", "HEAD"],
            cwd=source,
            capture_output=True,
            text=True,
            timeout=5,
            check=True,
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip()
