"""Check training over nccl on a machine with at least one GPU: the result of one process without it.

    python scripts/check_nccl.py [--epochs 5]

Trains pair states on the embedded ethanol data in four ways and compares losses and times: as usual, in an
nccl group of one process, from memory-mapped data, and, where there are two GPUs, with torchrun.
"""

from __future__ import annotations

import argparse
import csv
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as distributed

from geomatt.data import Dataset, ethanol, read, write
from geomatt.training import TrainConfig, resolve, train_members
from geomatt.training.dataset import make_splits, resolve_sizes
from geomatt.training.record import peak_memory
from geomatt.training.team import team

TOLERANCE = 2e-2  # of losses after some epochs in float32: the order of sums differs
TRAIN, VALIDATION, BATCH = 800, 100, 50


def settings(epochs: int, data: str = "") -> TrainConfig:
    given = {"data": data, "device": "cuda", "epochs": epochs, "train": TRAIN, "val": VALIDATION, "test": 0}
    return resolve({**given, "batch": BATCH})


def losses(folder: Path) -> list[float]:
    with open(folder / "history.csv", encoding="utf-8", newline="") as stream:
        return [float(row["train_loss"]) for row in csv.DictReader(stream)]


def run(name: str, data: Dataset, epochs: int, folder: Path) -> list[float]:
    """Train into a folder; the training loss of every epoch."""
    config = resolve_sizes(settings(epochs), len(data))
    began = time.perf_counter()
    train_members(data, make_splits(config, len(data)), config, folder)
    seconds, memory = time.perf_counter() - began, peak_memory("cuda")
    found = losses(folder)
    print(
        f"{name:24} {seconds:6.1f} s, peak {memory}, losses {', '.join(f'{x:.5g}' for x in found)}",
        flush=True,
    )
    return found


def compare(name: str, found: list[float], expected: list[float]) -> None:
    worst = max(abs(a / b - 1) for a, b in zip(found, expected, strict=True))
    if worst > TOLERANCE:
        sys.exit(f"{name}: losses differ by {worst:.2%}")
    print(f"{name:24} agrees to {worst:.2g}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--epochs", type=int, default=5)
    epochs = parser.parse_args().epochs
    if not torch.cuda.is_available():
        sys.exit("There is no GPU here.")
    data = ethanol()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        expected = run("one process", data, epochs, folder / "usual")
        write(data, folder / "data.arrays")
        compare(
            "mapped", run("memory-mapped data", read(folder / "data.arrays"), epochs, folder / "m"), expected
        )
        os.environ.update(
            {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29511", "RANK": "0", "WORLD_SIZE": "1"}
        )
        distributed.init_process_group("nccl", device_id=torch.device("cuda", 0))
        try:
            assert team().joined
            found = run("nccl, one process", data, epochs, folder / "nccl")
        finally:
            distributed.destroy_process_group()
        compare("nccl", found, expected)
        if torch.cuda.device_count() > 1:
            words = ["--train", TRAIN, "--val", VALIDATION, "--test", 0, "--batch", BATCH, "--epochs", epochs]
            out = folder / "two"
            subprocess.run(
                [
                    sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
                    "-m", "geomatt", "train", "embedded/ethanol", *map(str, words), "--out", str(out),
                    "--no-report",
                ],
                check=True,
                env={k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE", "MASTER_PORT")},
            )  # fmt: skip
            compare("torchrun, two GPUs", losses(out), expected)
    print("all agree")


if __name__ == "__main__":
    main()
