"""Cause: the experiment on the embedded data, and models that are missing."""

import numpy as np
import pytest

from geomatt.analysis import BY_CHANCE, BY_DISTANCE, BY_EFFECT
from geomatt.reproduce import ExperimentSettings, get, run_experiment, silent


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cause")
    return ExperimentSettings(quick=True, out=folder / "out", data=folder)


def test_quick_run_has_scores_and_controls(settings):
    experiment = get("cause")
    result = run_experiment(experiment, settings, silent)
    assert result["settings"]["stand_in"]
    item = result["rows"]["fast"]["ethanol"]
    trained = item["trained"]
    assert len(item["untrained"]) == 2
    assert all(one.keys() == trained.keys() for one in item["untrained"])
    assert trained[BY_EFFECT]["correlation"] == 1.0
    for row in trained.values():
        assert row["score"] == pytest.approx(row["strongest"] - row["weakest"], abs=2e-5)
        assert np.all(np.array(row["strongest_curve"]) < 1)
    assert trained[BY_EFFECT]["score"] > trained[BY_CHANCE]["score"]
    names = [table.name for table in experiment.tables(result)]
    assert names == ["cause-fast-score", "cause-fast-correlation", "cause-fast-error", "left"]
    assert all("own ethanol data" in table.note for table in experiment.tables(result)[:3])
    assert "own ethanol data" in experiment.drawings(result)[0].caption
    assert f"of inverse distance {trained[BY_DISTANCE]['score']:+.3f}" in experiment.summary(result)
    assert run_experiment(experiment, settings, silent)["pieces"] == result["pieces"]  # computed once


def test_without_models(settings, tmp_path):
    empty = ExperimentSettings(quick=True, out=tmp_path, data=settings.data, models=tmp_path)
    experiment = get("cause")
    result = run_experiment(experiment, empty, silent)
    assert result["missing"] == {"fast": 1}
    assert [table.name for table in experiment.tables(result)] == ["left"]
