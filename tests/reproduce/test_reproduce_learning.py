"""Learning curves in the smallest setting: frames, steps, parts, tables and the figure."""

from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from scripts_path import load_script

from geomatt.reproduce import ExperimentSettings, draw_figures, get, run_experiment, silent, study
from geomatt.reproduce.docs import update_page
from geomatt.reproduce.frame import Figure
from geomatt.reproduce.learning import LearningMember, LearningStudy, epoch_steps, errors_table, slope
from geomatt.reproduce.report import blocks
from geomatt.training import Diverged

ROOT = Path(__file__).parents[2]
NETWORKS = ("pair", "geomatt", "schnet") if find_spec("torch_geometric") else ("pair", "geomatt")


@pytest.fixture
def quick(monkeypatch, tmp_path):
    monkeypatch.setenv("GEOMATT_CACHE", str(tmp_path / "no-cache"))
    return ExperimentSettings(quick=True, out=tmp_path / "out")


def test_every_number_of_frames_takes_as_many_steps(tmp_path):
    models = LearningStudy(ExperimentSettings(out=tmp_path), silent)
    assert len(models.members()) == 30
    for member in models.members():
        config = models.config(member)
        steps = 7600 if member.network == "schnet" else 19000
        assert config.epochs * epoch_steps(config) == steps
        assert 38 <= config.epochs // config.validate_every <= 40
        assert config.patience == 0
        warmup = config.warmup * epoch_steps(config)
        expected = {"pair": 475, "geomatt": 950, "schnet": 0}[member.network]
        assert warmup == pytest.approx(expected, rel=0.02)
    schnet = models.config(LearningMember("schnet", "aspirin", 50))
    assert (schnet.model, schnet.learning_rate, schnet.network["cutoff"]) == ("schnet", 1e-3, 10.0)


def test_smaller_sets_are_part_of_larger_ones(quick):
    models = LearningStudy(quick, silent)
    few, many = (models.split(LearningMember("pair", "ethanol", count)) for count in (50, 100))
    assert (len(few.train), len(many.train)) == (50, 100)
    assert set(few.train) < set(many.train)
    for role in ("validation", "test"):
        assert np.array_equal(getattr(few, role), getattr(many, role))


def test_parts_choose_networks_molecules_and_frames(tmp_path):
    members = LearningStudy(ExperimentSettings(out=tmp_path), silent).members()

    def chosen(*parts: str) -> int:
        return sum(member.asked(ExperimentSettings(parts=parts)) for member in members)

    assert [chosen(), chosen("pair"), chosen("aspirin"), chosen("frames-50")] == [30, 10, 15, 6]
    assert chosen("schnet", "ethanol", "frames-400") == 1
    assert {part for part in get("learning").parts if not chosen(part)} == set()


def test_a_quick_run_fills_the_page_and_continues(quick, tmp_path):
    experiment, parts = get("learning"), (*NETWORKS, "ethanol")
    result = run_experiment(experiment, replace(quick, parts=parts), silent)
    rows = result["rows"]["ethanol"]
    assert {name: list(models) for name, models in rows.items() if models} == {
        name: ["50", "100"] for name in NETWORKS
    }
    assert rows["pair"]["50"]["steps"] == rows["pair"]["100"]["steps"] == 40
    assert rows["pair"]["50"]["frames"] == 40
    assert not any(result["rows"]["aspirin"].values())
    again = run_experiment(experiment, replace(quick, parts=parts, deadline=0.0), silent)
    assert again["rows"] == result["rows"]
    figures = draw_figures(experiment, result, tmp_path)
    assert [figure.path.name for figure in figures] == ["learning.png"]
    page = (ROOT / "docs" / "experiments" / "learning.md").read_text(encoding="utf-8")
    text = update_page(page, blocks(experiment, result, [Figure(Path("learning.png"), "Curves")]))
    assert "| 50 | " in text
    assert "own ethanol data" in text
    assert "embedded/ethanol" in text
    assert "md17/" not in text[text.index("Made by") :]
    assert "figures/learning.png" in text
    restored = LearningStudy(replace(quick, out=tmp_path / "again"), silent)
    assert load_script("restore_results").restore(restored, result) == 2 * len(NETWORKS)
    assert restored.find(LearningMember("pair", "ethanol", 50)) == rows["pair"]["50"]


def test_a_model_that_diverges_is_named(quick, monkeypatch):
    def diverging(settings, progress, name, jobs):
        raise Diverged("the loss is not a finite number in epoch 2", "No model was kept.")

    monkeypatch.setattr(study, "train_jobs", diverging)
    parts = ("pair", "ethanol", "frames-50")
    result = run_experiment(get("learning"), replace(quick, parts=parts), silent)
    assert "Diverged: pair states S with 50 frames." in get("learning").tables(result)[0].note
    assert get("learning").drawings(result) == []


def test_slopes_and_the_frames_that_are_enough():
    def models(factor: float, power: float) -> dict:
        errors = {count: factor * (count / 50) ** power for count in (50, 100, 200)}
        return {str(n): {"energy_mae": 0.1, "force_mae": e, "frames": 9} for n, e in errors.items()}

    rows = {"pair": models(1.0, -0.5), "geomatt": models(1.6, -0.25), "schnet": {}}
    result = {
        "rows": {"ethanol": rows, "aspirin": {name: {} for name in rows}},
        "settings": {"steps": {"pair": 19000}, "frames": [50, 100, 200], "stand_in": False},
        "data": {},
    }
    table = errors_table(result, "ethanol")
    assert [row[1] for row in table.rows] == ["0.100 / 1.000", "0.100 / 0.707", "0.100 / 0.500"]
    assert table.rows[0][3] == "–"
    assert "pair states S -0.50, geometric attention -0.25." in table.note
    text = get("learning").summary(result)
    assert "Ethanol: slope of log force error against log frames -0.50 (pair states S) and -0.25" in text
    assert "With 50 frames pair states S has no larger force error than geometric attention with 200." in text
    assert slope({50: 1.0}) is None
