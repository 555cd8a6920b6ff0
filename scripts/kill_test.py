"""Kill training at random moments, resume it, and compare with a run that was never stopped, bit by bit.

python scripts/kill_test.py --kills 20            one process
python scripts/kill_test.py --kills 20 --members 2

Every kill (SIGKILL) is one case: a fresh run is killed, resumed to its end, and its weights, optimiser state,
best model and history are compared with those of the uninterrupted run. Exits with 1 if any differ.
"""

from __future__ import annotations

import argparse
import csv
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from geomatt.model import load
from geomatt.training import checkpoint

COMMAND = [sys.executable, "-m", "geomatt"]
SETTINGS = {
    "--train": 20, "--val": 10, "--test": 0, "--batch": 8, "--model": "geomatt",
    "--features": 8, "--overlap-features": 16,
    "--orders": "2,3", "--layers": 2, "--checkpoint-every": 0, "--device": "cpu",
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--members", type=int, default=0, help="models of a run; 0: one process, one model")
    parser.add_argument("--epochs", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        wrong = kill_test(Path(folder), options.kills, options.members, options.epochs, options.seed)
    print(f"{options.kills - wrong} of {options.kills} resumed runs are bit by bit the uninterrupted one.")
    sys.exit(1 if wrong else 0)


def launch(*words: str) -> Any:
    """`geomatt WORDS` as a process."""
    return subprocess.Popen([*COMMAND, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def kill_test(
    folder: Path, kills: int, members: int = 0, epochs: int = 400, seed: int = 0, start: Any = launch
) -> int:
    """The number of kills after which the resumed run differs from the uninterrupted one."""
    pick, wrong = random.Random(seed), 0
    finish(start(*arguments(folder / "whole", members, epochs)))
    for number in range(kills):
        cut = folder / "cut"
        moment = pick.randrange(epochs * max(1, members)), pick.uniform(0.0, 0.05)
        done = killed(start(*arguments(cut, members, epochs)), cut, *moment)
        finish(start("train", "--out", str(cut), "--resume", "--checkpoint-every", "0"))
        problems = differences(folder / "whole", cut, members)
        wrong += bool(problems)
        print(f"kill {number + 1}: after {done} epochs, {'; '.join(problems) or 'the same'}", flush=True)
        shutil.rmtree(cut)
    return wrong


def finish(process: Any) -> None:
    if status := process.wait():
        raise RuntimeError(f"a run ended with status {status}")


def arguments(out: Path, members: int, epochs: int) -> list[str]:
    settings = {**SETTINGS, "--epochs": epochs, **({"--members": members} if members else {})}
    flat = [str(x) for pair in settings.items() for x in pair]
    return ["train", "embedded/ethanol", "--out", str(out), *flat]


def killed(process: Any, out: Path, epochs: int, seconds: float) -> int:
    """Kill a run so many seconds after an epoch; returns the epochs in its checkpoints.

    It is not killed before its first file: there would be nothing to resume.
    """
    with process:
        while process.poll() is None and not ((out / "config.toml").is_file() and rows_in(out) >= epochs):
            time.sleep(0.002)
        time.sleep(seconds)
        process.kill()
    return sum(checkpoint.read(run).counters.epoch for run in runs_in(out) if checkpoint.exists(run))


def rows_in(out: Path) -> int:
    """Epochs in the history files of all members."""
    files = (run / "history.csv" for run in runs_in(out))
    return sum(file.read_bytes().count(b"\n") - 1 for file in files if file.is_file())


def runs_in(out: Path) -> list[Path]:
    return sorted(out.glob("member_*")) or [out]


def differences(whole: Path, cut: Path, members: int) -> list[str]:
    """What differs between two runs, or between their members."""
    pairs = (
        [(whole, cut)]
        if not members
        else [(whole / f"member_{k}", cut / f"member_{k}") for k in range(members)]
    )
    return [f"{b.name}: {problem}" for a, b in pairs for problem in compare(a, b)]


def compare(a: Path, b: Path) -> list[str]:
    first, second = checkpoint.read(a), checkpoint.read(b)
    states = [
        ("optimiser", first.stepper, second.stepper),
        ("best weights", first.best, second.best),
        ("model", load(a).network.state_dict(), load(b).network.state_dict()),
    ]
    found = [
        name
        for name, one, other in states
        if one.keys() != other.keys() or not all(torch.equal(one[n], other[n]) for n in one)
    ]
    return found if rows(a) == rows(b) else [*found, "history"]


def rows(folder: Path) -> list[dict[str, str]]:
    """The history without its clock."""
    text = (folder / "history.csv").read_text(encoding="utf-8")
    return [{k: v for k, v in row.items() if k != "seconds"} for row in csv.DictReader(text.splitlines())]


if __name__ == "__main__":
    main()
