"""Error bars of committees and single models: coverage on new data, files, what `evaluate` reports."""

from __future__ import annotations

import copy
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from ase import Atoms
from hypothesis import given
from hypothesis import strategies as st
from training_toy import molecule, tiny_config

from geomatt.data import Dataset, Split, collate
from geomatt.errors import GeomAttError
from geomatt.evaluation import calibration_plot, evaluate, write_predictions
from geomatt.model import Potential, load, save
from geomatt.model.calibration import LEVELS, Scale
from geomatt.model.surroundings import Surroundings
from geomatt.simulation import GeomAttCalculator
from geomatt.training import train_members
from geomatt.training.dataset import make_splits


@given(st.integers(0, 1000), st.floats(0.1, 10.0))
def test_a_spread_that_is_off_by_a_factor(seed, factor):
    rng = np.random.default_rng(seed)
    spread = rng.uniform(0.5, 2.0, 4000)
    error = factor * spread * rng.standard_normal(4000)
    scale = Scale.fit(error[:2000], spread[:2000])
    for level in (0.5, 0.9, 0.95):
        below = np.abs(error[2000:]) <= scale.bar(spread[2000:], level)
        assert below.mean() == pytest.approx(level, abs=0.05)


def test_few_data_and_members_that_agree():
    scale = Scale.fit(np.array([1.0, 2.0, 4.0]), np.zeros(3))
    assert scale.bar(np.zeros(1), 0.95) == pytest.approx(4.0)  # the largest error seen
    assert scale.bar(np.zeros(1), 0.5) == pytest.approx(2.0)
    assert all(np.isfinite(scale.factors))
    with pytest.raises(GeomAttError, match="level must be"):
        scale.bar(np.zeros(1), 0.99)


@pytest.fixture(scope="module")
def committee(tmp_path_factory):
    folder = tmp_path_factory.mktemp("members") / "run"
    config = tiny_config(members=2, epochs=2)
    train_members(molecule(), make_splits(config, 40), config, folder)
    return folder


def test_members_are_calibrated_on_validation_frames(committee, tmp_path):
    model = load(committee)
    assert model.calibration is not None
    assert model.calibration.frames == 10
    result = evaluate(model, molecule())
    for shares in result.coverage.values():
        assert len(shares["calibrated"]) == len(shares["raw"]) == len(LEVELS)
        assert shares["calibrated"] == sorted(shares["calibrated"])
    assert result.to_dict()["coverage"]["calibration_frames"] == 10
    assert calibration_plot(result, tmp_path / "plot.png").stat().st_size > 0
    file = write_predictions(
        molecule()[:2], model.predict(molecule()[:2]), tmp_path / "out.extxyz", model.calibration
    )
    assert "energy_error_90" in file.read_text()
    assert "forces_error_90" in file.read_text()


def test_a_single_model_has_error_bars(committee, tmp_path):
    model = load(committee / "member_0")
    assert isinstance(model, Potential)
    assert model.calibration.frames == 10
    assert model.predict(molecule()[:1])[0].energy_spread is None  # only where they are asked for
    result = evaluate(model, molecule())
    assert set(result.coverage) == {"energy", "forces"}
    assert result.to_dict()["estimated_error"]["forces_mean"] > 0
    seen = evaluate(model, molecule(), indices=model_split(model).validation, exclude_trained=False)
    assert seen.coverage["forces"]["calibrated"][LEVELS.index(0.9)] == pytest.approx(0.9, abs=0.03)
    assert seen.forces_spread.mean() == pytest.approx(
        np.linalg.norm(seen.forces - seen.data.forces, axis=1).mean(), rel=1e-3
    )
    save(model, tmp_path / "copy.safetensors")
    again = load(tmp_path / "copy.safetensors")
    assert again.calibration == model.calibration
    one, two = (m.predict(molecule()[:2], spread=True) for m in (model, again))
    np.testing.assert_array_equal(one[1].forces_spread, two[1].forces_spread)
    assert copy.deepcopy(model).estimate is not None


def model_split(model):
    return Split.from_dict(model.record["split"])


def test_error_bars_of_the_calculator(committee):
    atoms = Atoms([6, 1, 1, 8], molecule()[0].positions)
    for model in (load(committee), load(committee / "member_0")):
        calculator = GeomAttCalculator(model)
        assert calculator.error_bars() is None  # before the first calculation
        atoms.calc = calculator
        atoms.get_forces()
        energy, forces = calculator.error_bars(0.9)
        predicted = model.predict([molecule()[0]], spread=True)[0]
        bar = model.calibration.energy.bar(predicted.energy_spread, 0.9)
        assert energy == pytest.approx(bar, rel=0.02)  # the spread of members is a small difference
        expected = model.calibration.forces.bar(predicted.forces_spread, 0.9)
        np.testing.assert_allclose(forces, expected, rtol=1e-2, atol=1e-4)
        narrow = calculator.error_bars(0.5)
        assert narrow[0] < energy
    atoms.calc = GeomAttCalculator(replace(model, calibration=None))
    atoms.get_forces()
    assert atoms.calc.error_bars() is None


def test_surroundings():
    data = molecule(200)
    known = Surroundings.measure(data)

    def distance(structure):
        return known.distance(collate([structure], torch.float64))[0].numpy()

    squares = np.mean([distance(s) ** 2 for s in data], axis=0)
    np.testing.assert_allclose([squares[0], squares[1:3].mean(), squares[3]], 1.0, rtol=1e-6)
    first = data[0]
    rotation = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))[0]
    turned = replace(first, positions=first.positions @ rotation + 1.0)
    np.testing.assert_allclose(distance(turned), distance(first), rtol=1e-8)
    order = np.array([2, 0, 3, 1])
    shuffled = replace(first, numbers=first.numbers[order], positions=first.positions[order])
    np.testing.assert_allclose(distance(shuffled), distance(first)[order], rtol=1e-8)
    assert (distance(replace(first, positions=2 * first.positions)) > 3 * distance(first).max()).any()
    both = known.distance(collate([first, data[1]], torch.float64, pad_to=6))
    assert (both[:, 4:] == 0).all()  # padding
    np.testing.assert_allclose(both[0, :4].numpy(), distance(first), rtol=1e-12)
    stored = json.loads(json.dumps(known.to_dict()))
    restored = Surroundings.from_dict(stored).distance(collate([first], torch.float64))[0]
    np.testing.assert_allclose(restored.numpy(), distance(first), rtol=1e-3)
    with pytest.raises(ValueError, match="do not fit"):
        Surroundings.from_dict({**stored, "elements": [1]})
    cells = Dataset.from_structures([replace(first, cell=9 * np.eye(3), pbc=(True, True, True))])
    assert Surroundings.measure(cells) is None


def test_calibration_of_other_members_is_not_used(committee):
    path = committee / "calibration.json"
    stored = path.read_text()
    try:
        path.write_text(json.dumps({**json.loads(stored), "members": [[7, 1, "other"]] * 2}))
        model = load(committee)
        assert model.calibration is None
        result = evaluate(model, molecule())
        assert result.coverage is None
        with pytest.raises(GeomAttError, match="no calibration"):
            calibration_plot(result, committee / "plot.png")
        path.write_text("{")
        with pytest.raises(GeomAttError, match="is damaged"):
            load(committee)
    finally:
        path.write_text(stored)
