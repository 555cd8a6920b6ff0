"""The scripts in examples/ run as they stand."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
ARGUMENTS = {
    "train.py": ["--epochs", "1", "--out", "run"],
    "dynamics.py": ["--steps", "20"],
    "attention.py": [],
    "own_network.py": ["--epochs", "2", "--out", "run"],
    "crystal.py": ["--epochs", "1", "--frames", "8", "--repeat", "1", "--steps", "2"],
}


def test_every_example_is_tested():
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(ARGUMENTS)


@pytest.mark.parametrize("name", ARGUMENTS)
def test_example(name, tmp_path):
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *ARGUMENTS[name]],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
