"""A network defined here, in thirty lines, goes through everything the package does with networks."""

from __future__ import annotations

import os
import signal
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
from command_line import Process
from tiny_network import Tiny, TinyConfig
from training_toy import molecule

from geomatt import evaluate, load
from geomatt.analysis import attention
from geomatt.data import Dataset, random_split
from geomatt.model import registry
from geomatt.model.settings import DataSetting, Recipe, setting
from geomatt.training import TrainConfig, resolve, train, train_members
from geomatt.training.dataset import check_data, resolve_inputs, resolve_sizes
from geomatt.training.recipes import recipes

SPLIT = random_split(40, 20, 10, 5, seed=0)


@pytest.fixture(autouse=True)
def tiny(monkeypatch):
    monkeypatch.setattr(registry, "NETWORKS", dict(registry.NETWORKS))
    registry.register(Tiny)


def config(**changes) -> TrainConfig:
    given = {"model": "tiny", "network": {"width": 6}, "epochs": 6, "batch": 8, "ema_decay": 0.9}
    return TrainConfig(**{**given, **changes})


def test_trains_saves_loads_and_gives_attention(tmp_path):
    result = train(molecule(), SPLIT, config(epochs=60, learning_rate=0.02), tmp_path / "run")
    model = load(tmp_path / "run")
    assert model.network.kind == "tiny"
    untrained = train(molecule(), SPLIT, config(epochs=1, learning_rate=1e-9), tmp_path / "untrained")
    assert result.best_errors["force_mae"] < 0.9 * untrained.best_errors["force_mae"]
    errors = evaluate(model, molecule(), indices=SPLIT.test)
    assert np.isfinite(errors.overall.forces_mae)
    (record,) = attention(model, molecule()[0])
    assert record.label == "pairs"
    assert record.matrix.shape == (4, 4)


@pytest.mark.filterwarnings("ignore:The transferred model", "ignore:The base never saw")
def test_members_form_a_committee_and_a_base_is_transferred(tmp_path):
    results = train_members(molecule(), [SPLIT] * 2, config(members=2), tmp_path / "two")
    committee = load(tmp_path / "two")
    (prediction,) = committee.predict(molecule()[0])
    assert prediction.energy_spread > 0
    base = results[0].potential
    carried = train(molecule(seed=1), SPLIT, config(), tmp_path / "carried", base=base).potential
    assert torch.equal(carried.network.charge, base.network.charge)  # frozen
    assert not torch.equal(carried.network.readout, base.network.readout)


def test_runs_in_the_calculator(tmp_path):
    ase = pytest.importorskip("ase")
    from geomatt import GeomAttCalculator

    train(molecule(), SPLIT, config(), tmp_path / "run")
    first = molecule()[0]
    atoms = ase.Atoms(first.numbers, first.positions, calculator=GeomAttCalculator(tmp_path / "run"))
    (expected,) = load(tmp_path / "run").predict(first)
    assert atoms.get_potential_energy() == pytest.approx(expected.energy)
    np.testing.assert_allclose(atoms.get_forces(), expected.forces, rtol=1e-5, atol=1e-6)


def train_or_resume(folder: str, kill_after: str = "") -> None:
    def callback(progress):
        if str(progress.epoch) == kill_after:
            os.kill(os.getpid(), signal.SIGKILL)

    registry.register(Tiny)
    out, settings = Path(folder), config(epochs=40)
    train(molecule(), SPLIT, settings, out, callback=callback, resume=out.exists(), checkpoint_every=0)


def test_a_killed_process_resumes_bit_by_bit(tmp_path):
    Process(tmp_path / "whole", run=train_or_resume).check()
    killed = Process(tmp_path / "killed", 20, run=train_or_resume)
    assert killed.wait() == -signal.SIGKILL, killed.stderr
    Process(tmp_path / "killed", run=train_or_resume).check()
    whole, killed = load(tmp_path / "whole").network.tensors(), load(tmp_path / "killed").network.tensors()
    assert all(torch.equal(whole[name], killed[name]) for name in whole)


def test_unknown_kind_has_its_own_error(tmp_path, monkeypatch):
    train(molecule(), SPLIT, config(), tmp_path / "run")
    monkeypatch.setattr(registry, "NETWORKS", {k: v for k, v in registry.NETWORKS.items() if k != "tiny"})
    from geomatt import GeomAttError

    with pytest.raises(GeomAttError, match="kind 'tiny', which this version does not know"):
        load(tmp_path / "run")


@dataclass(frozen=True)
class OwnConfig(TinyConfig):
    recipes: ClassVar = {"own": Recipe({"epochs": 7, "batch": 3}, validation_share=10)}
    inputs: bool = setting(False, "charges as inputs")

    @classmethod
    def for_data(cls, settings, *, periodic, electrons):
        return {"inputs": DataSetting(True, "Charges are `inputs`.")} if electrons else {}


class Own(Tiny):
    """A network with a recipe of its own, and a setting for data with charges."""

    kind, Config, recipe = "own", OwnConfig, "own"

    @property
    def uses_electrons(self):
        return self.config.inputs


def charged() -> Dataset:
    data = molecule()
    data.charges = np.ones(len(data))
    return data


def test_recipe_of_a_registered_network():
    assert "own" not in recipes()
    registry.register(Own)
    found = resolve({"model": "own"})
    assert (found.recipe, found.epochs, found.batch) == ("own", 7, 3)
    assert resolve({"model": "tiny", "recipe": "own"}).epochs == 7
    sizes = resolve_sizes(found, 100)
    assert (sizes.train, sizes.val) == (81, 9)


def test_settings_that_data_asks_for():
    registry.register(Own)
    told: list[str] = []
    found = resolve({"model": "own"})
    assert resolve_inputs(found, molecule(), told.append) is found
    assert resolve_inputs(found, charged(), told.append).network["inputs"]
    assert told == ["Charges are `inputs`."]
    assert resolve_inputs(config(), charged()) == config()


def test_only_networks_without_charges_are_said_not_to_use_them():
    registry.register(Own)
    with pytest.warns(UserWarning, match="which this network does not use"):
        check_data(charged(), SPLIT, config())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_data(charged(), SPLIT, config(model="own", network={"inputs": True}))
