"""Models of an experiment trained by a Dask cluster of two processes: the numbers of one process."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from geomatt.data.make import open_workers
from geomatt.reproduce import ExperimentSettings, get, silent, study
from geomatt.reproduce.md17 import Md17Study, Member
from geomatt.reproduce.pair import PairMember, PairStudy
from geomatt.reproduce.spreading import spread
from geomatt.reproduce.study import train_in_worker

pytest.importorskip("distributed")
FOLDS = [Member("ethanol", fold, orders=(2,), recipe="fast") for fold in (0, 1)]


@pytest.mark.filterwarnings("ignore")
def test_folds_and_molecules_on_a_dask_cluster(cluster, tmp_path, monkeypatch):
    monkeypatch.setenv("GEOMATT_CACHE", str(tmp_path / "no-data"))  # the embedded ethanol is used
    here = ExperimentSettings(quick=True, out=tmp_path / "here")
    alone = Md17Study(here, silent)
    alone.train(FOLDS[:1])
    monkeypatch.setattr(study, "train_jobs", None)  # nothing is trained here from now on
    with open_workers(dask=cluster.scheduler_address) as workers:
        there = replace(here, out=tmp_path / "there", workers=workers)
        folds, pair = Md17Study(there, silent), PairStudy(there, silent)
        folds.train_all([FOLDS[:1], FOLDS[1:]])
        member = PairMember("md17", "ethanol", "s")
        pair.train([member])
        assert pair.find(member)["epochs"] == 2
    found, first = folds.results(FOLDS), FOLDS[0]
    assert set(found) == set(FOLDS)
    expected = alone.results([first])[first]["force_mae"]
    assert found[first]["force_mae"] == pytest.approx(expected, rel=1e-4)
    folds.train(FOLDS)  # nothing is left to do


def test_deadline_and_planning(tmp_path):
    class Counting:
        jobs = 0

        def run(self, jobs, tick=None):
            self.jobs += sum(next(job, None) is not None for job in jobs)

    workers = Counting()
    settings = ExperimentSettings(quick=True, out=tmp_path, workers=workers)
    late = replace(settings, deadline=time.monotonic() - 1)
    spread(late, silent, "training", train_in_worker, [1, 2])
    assert workers.jobs == 0
    spread(settings, silent, "training", train_in_worker, [1, 2])
    assert workers.jobs == 2
    folds = Md17Study(settings, silent)
    assert folds.tasks(FOLDS) == [[FOLDS[0]], [FOLDS[1]]]
    folds.settings = replace(settings, device="cuda")
    assert folds.tasks(FOLDS) == [FOLDS]  # side by side on one GPU
    assert get("dna").parts == ("paper", "fast", "pair", "paper-seeds", "fast-seeds")
