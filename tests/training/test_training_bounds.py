"""Trained networks have the bounds of the structures they were trained on."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from training_toy import molecule

from geomatt.data import Split
from geomatt.model import load
from geomatt.model.bounds import bounds_of
from geomatt.training import resolve, train, train_together
from geomatt.training.loop import Job
from geomatt.training.start import base_settings

SPLIT = Split(np.arange(24), np.arange(24, 32), np.arange(32, 40))


def config(**changes):
    network = {"channels": 8, "rounds": 2, "functions": 4}
    return resolve({"model": "pair", "network": network, "epochs": 2, "batch": 8, **changes})


def test_bounds_are_those_of_training_and_validation_frames(tmp_path):
    data = molecule()
    train(data, SPLIT, config(), tmp_path / "run")
    for epochs in (2, 4):  # finished, and continued after that
        model = train(data, SPLIT, config(epochs=epochs), tmp_path / "run", resume=True).potential
        assert model.bounded
        assert load(tmp_path / "run").bounded
        found = bounds_of(model.without_bounds().network, data.select(np.arange(32)))
        assert torch.equal(found["ceiling"], model.network.ceiling)
        frames = data.select(np.arange(32))
        with_bounds, without = (m.predict(frames) for m in (model, model.without_bounds()))
        assert [p.energy for p in with_bounds] == [p.energy for p in without]


@pytest.mark.filterwarnings("ignore:The transferred model is not clearly better")
def test_a_transfer_keeps_the_bounds_of_its_base(tmp_path):
    base = train(molecule(), SPLIT, config(), tmp_path / "base").potential
    given = config(base=str(tmp_path / "base"), **base_settings(base))
    few = Split(np.arange(3), np.arange(3, 5), np.arange(5, 8))
    found = train(molecule(seed=1), few, given, tmp_path / "run", base=base).potential
    rounds = 4 * 8  # units
    assert bool((found.network.ceiling[:, :rounds] >= base.network.ceiling[:, :rounds]).all())


def test_members_side_by_side_have_their_own(tmp_path):
    jobs = [Job(molecule(), SPLIT, config(seed=s), tmp_path / f"run{s}") for s in (0, 1)]
    first, second = (result.potential.network.ceiling for result in train_together(jobs))
    assert not torch.equal(first, second)
    alone = train(molecule(), SPLIT, config(seed=1), tmp_path / "alone").potential.network.ceiling
    torch.testing.assert_close(alone, second)


def test_other_networks_have_none(tmp_path):
    given = resolve({"model": "geomatt", "epochs": 1, "network": {"features": 8, "overlap_features": 16}})
    assert not train(molecule(), SPLIT, given, tmp_path / "run").potential.bounded
