"""Sampling and labelling on a real Dask cluster of two processes, one of which is killed."""

from __future__ import annotations

import concurrent.futures as futures
import warnings

import numpy as np
import pytest
from ase.build import molecule

from geomatt.data.dataset import Dataset
from geomatt.data.make import SampleConfig, Workers, label, open_workers, sample
from geomatt.data.make.config import MethodConfig
from geomatt.data.make.workers import DaskWorkers
from geomatt.data.structures import as_structure
from geomatt.errors import GeomAttError

distributed = pytest.importorskip("distributed")
TOY = "toy_calculators:Springs"
WATER = as_structure(molecule("H2O"))


@pytest.mark.filterwarnings("ignore")
def test_a_killed_worker_loses_no_frame(cluster, tmp_path):
    kill = tmp_path / "kill"
    config = SampleConfig(TOY, {"kill": str(kill)}, frames=12, walkers=4, stride=4, equilibrate=4.0)
    alone = sample([WATER], config, tmp_path / "alone.npz")
    pids = {w["pid"] for w in _info(cluster)}
    kill.touch()  # the worker that meets it first kills itself
    with open_workers(dask=cluster.scheduler_address) as workers:
        spread = sample([WATER], config, tmp_path / "spread.npz", workers=workers)
    assert not kill.exists()
    assert spread.dataset.fingerprint() == alone.dataset.fingerprint()
    assert pids - {w["pid"] for w in _info(cluster)}  # a process is gone
    structures = Dataset.from_structures(list(alone.dataset))
    with open_workers(dask=cluster.scheduler_address) as workers:
        labelled = label(structures, MethodConfig(TOY), tmp_path / "labelled.extxyz", workers=workers)
    np.testing.assert_array_equal(labelled.dataset.forces, alone.dataset.forces)


def _info(cluster) -> list[dict]:
    with distributed.Client(cluster) as client:
        return [{"pid": pid} for pid in client.run(_pid).values()]


def _pid() -> int:
    import os

    return os.getpid()


@pytest.mark.filterwarnings("ignore")
def test_messages_of_a_method_cross_processes(cluster, tmp_path):
    config = SampleConfig("toy_calculators:OnlyEnergy")
    with (
        open_workers(dask=cluster.scheduler_address) as workers,
        pytest.raises(GeomAttError, match="gives no energy or no forces"),
    ):
        sample([WATER], config, tmp_path / "data.npz", workers=workers)


@pytest.mark.filterwarnings("ignore")
def test_scheduler_that_cannot_be_reached(monkeypatch):
    monkeypatch.setattr("geomatt.data.make.workers._PATIENCE", 0.2)
    with pytest.raises(GeomAttError, match=r"scheduler at tcp://127.0.0.1:1 cannot be reached"):
        open_workers(dask="tcp://127.0.0.1:1").__enter__()
    for wrong in ("local:0", "here", "local"):
        with pytest.raises(GeomAttError, match="neither local:N"):
            open_workers(dask=wrong).__enter__()
    with pytest.raises(GeomAttError, match="`workers`"):
        open_workers(0).__enter__()
    with pytest.raises(GeomAttError, match="`workers` and `dask` are two ways"):
        open_workers(2, "local:2").__enter__()


@pytest.mark.filterwarnings("ignore")
def test_missing_workers_are_announced(monkeypatch):
    class Scheduler:
        def get_executor(self, pure):
            return None

        def scheduler_info(self):
            return {"workers": {}}

    workers = DaskWorkers(Scheduler())
    with pytest.warns(UserWarning, match="No Dask worker has joined"):
        workers.wait_longer()
    with warnings.catch_warnings():  # once is enough
        warnings.simplefilter("error")
        workers.wait_longer()


def test_scheduler_that_dies(tmp_path):
    """Dask cancels what it was doing: the frames so far are kept, and the run continues."""

    class Client:
        left = 5

        def get_executor(self, pure):
            return self

        def submit(self, function, *arguments):
            self.left -= 1
            if self.left >= 0:
                return Workers().submit(function, *arguments)
            future = futures.Future()
            future.cancel()
            future.set_running_or_notify_cancel()
            return future

    config = SampleConfig(TOY, frames=12, walkers=2, stride=4, equilibrate=0.0)
    workers = DaskWorkers(Client())
    workers.seconds = 0.0
    with pytest.raises(GeomAttError, match=r"scheduler was lost.* The 3 frames labelled so far are in"):
        sample([WATER], config, tmp_path / "data.npz", workers=workers)
    assert len(sample([WATER], config, tmp_path / "data.npz").dataset) == 12


def test_errors_of_dask_become_messages():
    class Client:
        def get_executor(self, pure):
            return None

    workers = DaskWorkers(Client())
    for error, message in [
        (distributed.KilledWorker("task", None, 3), "workers died at the same task"),
        (distributed.CancelledError("task"), "connection to the Dask scheduler was lost"),
        (ModuleNotFoundError("No module named 'x'", name="x"), "has no module x"),
    ]:
        with pytest.raises(GeomAttError, match=message):
            workers.recover(error)
    assert not workers.recover(ValueError())
