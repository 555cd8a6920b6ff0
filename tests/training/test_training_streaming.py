"""Training on memory-mapped data: the result of data in memory, without the memory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from training_toy import history, mixture, molecule, tiny_config

import geomatt
from geomatt import load
from geomatt.cli.train_display import peak_memory_text
from geomatt.data import read, write
from geomatt.errors import GeomAttError
from geomatt.training import Job, train_members, train_together
from geomatt.training.dataset import load_dataset, make_splits
from geomatt.training.record import MOST_LISTED, peak_memory

# Trains on 90 MB of structures after a few of them, and prints by how much the peak of memory grew.
SCRIPT = """
import sys
from pathlib import Path
import numpy as np
import torch
from torch import nn
from geomatt.data import Dataset, random_split, read
from geomatt.data.mapped import write_mapped
from geomatt.model import NetworkConfig, register
from geomatt.model.interface import Network
from geomatt.training import TrainConfig, train
from geomatt.training.record import peak_memory
from geomatt.training.run import Run

class Isolated(Network):
    kind, Config, parts = "isolated", NetworkConfig, {"readout": ("weight",)}
    def __init__(self, config, dtype=torch.float32):
        super().__init__(config, dtype)
        self.weight = nn.Parameter(torch.ones(2, dtype=dtype))
    def atomic_energies(self, batch):
        r = batch.positions.square().sum(-1)
        return self.weight[0] * r + self.weight[1] * r.square()

def part(seed, frames=10_000, atoms=40):
    rng = np.random.default_rng(seed)
    positions = rng.normal(size=(frames, atoms, 3))
    energies = np.square(positions).sum((1, 2))
    return Dataset.from_frames(np.full(atoms, 6), positions, energies, -2 * positions)

register(Isolated)
Run.plot = lambda self: None
folder = Path(sys.argv[1])
write_mapped((part(seed) for seed in range(4)), folder / "large.arrays")
data = read(folder / "large.arrays")
if sys.argv[2:] == ["loaded"]:
    data = data.select(np.arange(len(data)))
config = TrainConfig(model="isolated", epochs=1, batch=1000)
train(data, random_split(len(data), 2000, 1000, 0), config, folder / "few")
before = peak_memory("cpu")["process"]
train(data, random_split(len(data), 39_000, 1000, 0), config, folder / "all")
print((peak_memory("cpu")["process"] - before) / 1e6)
"""


def test_mapped_data_is_never_loaded(tmp_path):
    if "process" not in peak_memory("cpu"):
        pytest.skip("this system does not tell the peak of memory")
    environment = {"PYTHONPATH": str(Path(geomatt.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path)],
        capture_output=True, text=True, timeout=120, env={**os.environ, **environment},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 80  # it was 49 of 90 MB; with the data in memory it was 317


@pytest.mark.parametrize("data", [molecule(), mixture(20)], ids=["one molecule", "two molecules"])
def test_streamed_training_is_that_in_memory(tmp_path, data):
    write(data, tmp_path / "data.arrays")
    config = tiny_config(epochs=2, members=2)
    splits = make_splits(config, len(data))
    for name, source in (("memory", data), ("mapped", read(tmp_path / "data.arrays"))):
        train_members(source, splits, config, tmp_path / name)
    for member in ("member_0", "member_1"):
        one, two = (history(tmp_path / name / member) for name in ("memory", "mapped"))
        assert [row["val_loss"] for row in one] == [row["val_loss"] for row in two]
    for one, two in zip(*(load(tmp_path / name).members for name in ("memory", "mapped")), strict=True):
        assert one.trained_frames == two.trained_frames
        assert one.normalisation == two.normalisation
        for name, value in one.network.state_dict().items():
            assert torch.equal(value, two.network.state_dict()[name])


def test_members_side_by_side_are_all_mapped_or_none(tmp_path):
    data = molecule()
    write(data, tmp_path / "data.arrays")
    config = tiny_config()
    split = make_splits(config, len(data))[0]
    jobs = [
        Job(d, split, config, tmp_path / n) for n, d in (("a", data), ("b", read(tmp_path / "data.arrays")))
    ]
    with pytest.raises(GeomAttError, match="for all of them, or for none"):
        train_together(jobs)
    with pytest.raises(GeomAttError, match="leave `drop_outliers` out"):
        load_dataset(tiny_config(data=str(tmp_path / "data.arrays"), drop_outliers=True))


def test_frames_too_many_for_a_model_file(tmp_path, monkeypatch):
    monkeypatch.setattr("geomatt.training.record.MOST_LISTED", 5)
    assert MOST_LISTED > 1000
    config = tiny_config(epochs=1)
    result = train_members(molecule(), make_splits(config, 40), config, tmp_path / "run")[0]
    assert result.potential.record["split"]["sizes"] == {"train": 20, "validation": 10, "test": 5}
    assert not result.potential.trained_frames
    with pytest.warns(UserWarning, match="trained on 30 frames, too many to list"):
        geomatt.evaluate(load(tmp_path / "run"), molecule())


def test_peak_of_memory_is_recorded(tmp_path, monkeypatch):
    """Also that of a run which is continued: the most of all sessions."""
    config = tiny_config(epochs=1)
    splits = make_splits(config, 40)
    for size in (5_000_000, 3_000_000):
        monkeypatch.setattr("geomatt.training.run.peak_memory", lambda device, size=size: {"process": size})
        (result,) = train_members(
            molecule(), splits, config, tmp_path / "run", resume=(tmp_path / "run").exists()
        )
    assert result.potential.record["peak_memory"] == {"process": 5_000_000}
    assert load(tmp_path / "run").record["peak_memory"] == {"process": 5_000_000}
    assert peak_memory_text([result]) == "Peak memory 0.01 GB"
