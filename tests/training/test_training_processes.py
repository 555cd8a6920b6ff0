"""Processes of torchrun that train one model together."""

from __future__ import annotations

import concurrent.futures as futures
import socket
from pathlib import Path

import numpy as np
import pytest
import torch
from command_line import Process
from training_toy import history, npz, tiny_config
from typer.testing import CliRunner

from geomatt import load
from geomatt.cli import app
from geomatt.data import read
from geomatt.data.make import Workers
from geomatt.errors import GeomAttError
from geomatt.training import train_members
from geomatt.training.dataset import make_splits
from geomatt.training.spread import spread_members
from geomatt.training.team import Team, join, team

OPTIONS = ["--train", "21", "--val", "9", "--batch", "5", "--features", "8", "--overlap-features", "16",
           "--model", "geomatt", "--layers", "1", "--dtype", "float64", "--recipe", "fast"]  # fmt: skip


def train(*arguments: str) -> None:
    answer = CliRunner().invoke(app, ["train", *arguments])
    assert answer.exit_code == 0, answer.output


def test_two_processes_train_as_one(tmp_path, monkeypatch):
    """Also: the first alone writes, and a run of two processes is continued by one."""
    monkeypatch.setattr("geomatt.evaluation.parity_plot", lambda *_: None)
    data = str(npz(tmp_path / "data.npz"))
    one, two = str(tmp_path / "one"), str(tmp_path / "two")
    options = [data, *OPTIONS, "--epochs", "2"]
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    # What torchrun sets. The first process is this one.
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": "1"}
    other = Process("train", *options, "--out", two, environment={**shared, "RANK": "1"})
    with monkeypatch.context() as patch:
        for name, value in {**shared, "RANK": "0"}.items():
            patch.setenv(name, value)
        train(*options, "--out", two)
    assert "Mean absolute errors" not in other.check() + other.stderr
    train(*options, "--out", one)
    _same(Path(one), Path(two))
    assert sorted(p.name for p in Path(two).iterdir()) == sorted(p.name for p in Path(one).iterdir())
    for folder in (one, two):
        train("--out", folder, "--resume", "--epochs", "3")
    _same(Path(one), Path(two))


def _same(first, second):
    for one, two in zip(history(first), history(second), strict=True):
        for name in ("train_loss", "val_loss", "val_force_mae_eV"):
            assert float(one[name]) == pytest.approx(float(two[name]), rel=1e-9)
    weights = [load(folder).network.state_dict() for folder in (first, second)]
    for name, value in weights[0].items():
        np.testing.assert_allclose(value.numpy(), weights[1][name].numpy(), rtol=1e-7, atol=1e-10)


def test_shares_of_a_batch():
    index = torch.arange(7)[None]
    parts = [Team(rank, 3).share(index) for rank in range(3)]
    assert sorted(torch.cat(parts, 1)[0].tolist()) == list(range(7))
    assert Team(2, 3).share(index[:, :2]).shape == (1, 0)
    with join("cpu") as us:  # no torchrun
        assert us == team() == Team()
        assert us.any(True)
        assert not us.any(False)


def test_members_in_other_processes(tmp_path):
    """Members of a run in other workers, one of which dies before it answers: the result is the same."""
    data = str(npz(tmp_path / "data.npz"))
    config = tiny_config(data=data, members=2, epochs=3)
    dataset = read(data)
    train_members(dataset, make_splits(config, len(dataset)), config, tmp_path / "direct")

    class Dying(Workers):
        """The answer to the first task is lost."""

        lost = False

        def submit(self, function, settings, *rest):
            if not self.lost:
                self.lost = True
                super().submit(function, settings, *rest)
                failed = futures.Future()
                failed.set_exception(futures.BrokenExecutor("killed"))
                return failed
            return super().submit(function, settings, *rest)

        def recover(self, error):
            return isinstance(error, futures.BrokenExecutor)

    done = []
    assert spread_members(config, tmp_path / "spread", Dying(), progress=done.append) == [3, 3]
    assert sum(done) == 6
    results = train_members(
        dataset, make_splits(config, len(dataset)), config, tmp_path / "spread", resume=True
    )
    assert all(r.already_finished for r in results)
    for first, second in zip(
        load(tmp_path / "direct").members, load(tmp_path / "spread").members, strict=True
    ):
        for name, value in first.network.state_dict().items():
            assert torch.equal(value, second.network.state_dict()[name])
    assert load(tmp_path / "spread").calibration is not None
    for changes, message in [({"members": 0}, "`members` or `folds`"), ({"base": "x"}, "not spread")]:
        with pytest.raises(GeomAttError, match=message):
            spread_members(config.replace(**changes), tmp_path / "other", Workers())
