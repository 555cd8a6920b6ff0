"""Files of version 0.1 load and resume. tests/fixtures/format1 was written by that version."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from training_toy import molecule

from geomatt import load
from geomatt.data import random_split
from geomatt.training import resolve, train
from geomatt.training.config import read_settings

OLD = Path(__file__).resolve().parents[1] / "fixtures" / "format1"
EXPECTED = json.loads((OLD / "expected.json").read_text())


def test_a_model_file_gives_the_same_predictions():
    predictions = load(OLD / "model.safetensors").predict(molecule()[:3])
    np.testing.assert_allclose([p.energy for p in predictions], EXPECTED["energies"], rtol=1e-7)
    np.testing.assert_allclose(predictions[0].forces, EXPECTED["forces"], rtol=1e-4, atol=1e-5)


def test_an_unfinished_run_continues_as_it_would_have(tmp_path):
    shutil.copytree(OLD, tmp_path / "run")
    config = resolve({}, read_settings(tmp_path / "run" / "config.toml"))
    assert config.network["features"] == 8
    split = random_split(40, 20, 10, 5, seed=0)
    result = train(molecule(), split, config, tmp_path / "run", resume=True)
    assert result.epochs == 8
    assert result.best_errors["force_mae"] == pytest.approx(EXPECTED["finished_force_mae"], rel=1e-4)
    assert "energy_zero" not in result.potential.record  # the run began without it
