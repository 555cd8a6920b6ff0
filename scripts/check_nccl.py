"""Check that several processes train as one does, on a machine with at least one GPU.

    python scripts/check_nccl.py                 # --device cpu tries the script itself, over gloo

nccl refuses two processes on one GPU. So with one GPU the two halves are checked apart: gradients that pass
through nccl (a group of one process), and two processes that share every batch on that GPU (over gloo). With
two GPUs, also both at once: torchrun with nccl. Each is compared with one process: losses of every epoch and
the weights at the end. In float64 they must agree to rounding. In float32, as models are usually trained, the
difference is printed: a GPU multiplies weights in TF32 while training, and five epochs of steps enlarge its
rounding to some per cent of the loss.
"""

from __future__ import annotations

import argparse
import csv
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as distributed

from geomatt import load
from geomatt.data import ethanol, read, write
from geomatt.training import resolve, train_members
from geomatt.training.dataset import make_splits, resolve_sizes
from geomatt.training.record import peak_memory
from geomatt.training.team import team

TOLERANCES = {"float64": 1e-6, "float32": None}  # of losses, relative; None: not judged
SIZES = {"train": 403, "val": 50, "test": 0, "batch": 25}  # the last batch of an epoch holds 3 frames
DATA = "embedded/ethanol"


def train(out: Path, options: argparse.Namespace, dtype: str, data: Path | None = None) -> None:
    """Train in this process, with those of its group if there is one."""
    dataset = read(data) if data else ethanol()
    given = {**SIZES, "device": options.device, "epochs": options.epochs, "dtype": dtype, "channels": 32}
    config = resolve_sizes(resolve(given), len(dataset))
    train_members(dataset, make_splits(config, len(dataset)), config, out)


def in_a_group(backend: str, out: Path, options: argparse.Namespace, dtype: str) -> None:
    """Train in a group that the environment describes (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT)."""
    device = torch.device("cuda", 0) if backend == "nccl" else None
    distributed.init_process_group(backend, device_id=device)
    try:
        assert team().joined
        train(out, options, dtype)
    finally:
        distributed.destroy_process_group()


def group(size: int, backend: str, out: Path, options: argparse.Namespace, dtype: str) -> None:
    """Start the processes of a group on one device, and wait for them."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    shared = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    words = ["--epochs", options.epochs, "--device", options.device, "--group", backend, dtype, out]
    command = [sys.executable, __file__, *map(str, words)]
    started = [
        subprocess.Popen(command, env={**os.environ, **shared, "RANK": str(rank)}) for rank in range(size)
    ]
    failed = [process.wait() for process in started]
    if any(failed):
        sys.exit(f"{size} processes over {backend} failed.")


def torchrun(out: Path, options: argparse.Namespace, dtype: str) -> None:
    """Two processes, each with its own GPU, as a user starts them."""
    words = [f"--{name}={value}" for name, value in SIZES.items()]
    words += [f"--epochs={options.epochs}", f"--dtype={dtype}", "--channels=32", "--no-report"]
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    subprocess.run(
        [*command, "-m", "geomatt", "train", DATA, *words, "--device", options.device, "--out", str(out)],
        check=True,
        stdout=subprocess.DEVNULL,
    )


def losses(folder: Path) -> list[float]:
    """All that were recorded; not every epoch validates."""
    with open(folder / "history.csv", encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    return [float(row[name]) for row in rows for name in ("train_loss", "val_loss") if row[name]]


def compare(name: str, found: Path, expected: Path, dtype: str) -> None:
    """Print how much losses and weights differ; end with an error if it is too much."""
    loss = max(abs(a / b - 1) for a, b in zip(losses(found), losses(expected), strict=True))
    ours, theirs = (load(folder).network.state_dict() for folder in (found, expected))
    weight = max(float((ours[key] - theirs[key]).abs().max()) for key in theirs)
    print(f"{name}: losses differ by {loss:.1e} of themselves, weights by {weight:.1e}", flush=True)
    allowed = TOLERANCES[dtype]
    if allowed is not None and not loss <= allowed:
        sys.exit(f"That is more than {allowed:g}.")


def check(dtype: str, options: argparse.Namespace, gpus: int) -> None:
    """Train in every way that this machine allows, and compare with the first."""
    own = "nccl" if gpus else "gloo"
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write(ethanol(), folder / "data.arrays")
        ways = {
            "one process": lambda out: train(out, options, dtype),
            "memory-mapped data": lambda out: train(out, options, dtype, folder / "data.arrays"),
            f"one process, {own}": lambda out: group(1, own, out, options, dtype),
            "two on one device, gloo": lambda out: group(2, "gloo", out, options, dtype),
        }
        if gpus != 1:
            ways[f"torchrun, two processes, {own}"] = lambda out: torchrun(out, options, dtype)
        for number, (name, way) in enumerate(ways.items()):
            began = time.perf_counter()
            way(folder / str(number))
            print(f"{dtype} {name}: {time.perf_counter() - began:.1f} s", flush=True)
            if number:
                compare(f"{dtype} {name}", folder / str(number), folder / "0", dtype)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--group", nargs=3, metavar=("BACKEND", "DTYPE", "OUT"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.group:
        backend, dtype, out = options.group
        in_a_group(backend, Path(out), options, dtype)
        return
    gpus = torch.cuda.device_count() if options.device == "cuda" else 0
    if options.device == "cuda" and not gpus:
        sys.exit("There is no GPU here.")
    print(f"{gpus} GPUs, torch {torch.__version__}, {SIZES}, {options.epochs} epochs of pair states")
    for dtype in TOLERANCES:
        check(dtype, options, gpus)
    print(f"All agree in float64. Peak memory of this process: {peak_memory(options.device)}.")
    if gpus == 1:
        print("Not tried, for want of a second GPU: nccl between two processes.")


if __name__ == "__main__":
    main()
