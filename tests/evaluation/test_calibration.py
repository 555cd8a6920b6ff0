"""Error bars of committees: their coverage on new data, their file, what `evaluate` reports."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from training_toy import molecule, tiny_config

from geomatt.errors import GeomAttError
from geomatt.evaluation import calibration_plot, evaluate, write_predictions
from geomatt.model import load
from geomatt.model.calibration import LEVELS, Scale
from geomatt.training import train_members
from geomatt.training.dataset import make_splits
from geomatt.training.run import Run


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
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Run, "plot", lambda self: None)  # takes most of the time
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
