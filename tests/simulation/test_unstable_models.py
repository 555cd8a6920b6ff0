"""A model that fell apart in long dynamics says so when it is used for dynamics."""

from __future__ import annotations

import warnings

import pytest

from geomatt.data import ethanol
from geomatt.model import load
from geomatt.simulation import GeomAttCalculator, MDSettings, run_dynamics

TRIED = {
    "walls": {"intact": 4, "runs": 5, "ps": 300.0, "failed_at_ps": [120.0]},
    "free": {"intact": 2, "runs": 5, "ps": 300.0, "failed_at_ps": [31.0, 7.5, 80.0]},
}
WITH, WITHOUT = "1 of 5 runs of 300 ps at 500 K, with walls", "3 of 5 .* without walls, .* after 7.5 ps"


@pytest.fixture
def model():
    found = load("md17/ethanol:pair-s").members[0]
    found.record["stability"] = TRIED
    return found


@pytest.mark.parametrize(("walls", "message"), [(True, WITH), (False, WITHOUT)])
def test_calculator_and_dynamics_warn(model, walls, message, tmp_path):
    with pytest.warns(UserWarning, match=message):
        GeomAttCalculator(model, walls=walls)
    with pytest.warns(UserWarning, match=message):
        run_dynamics(model, ethanol()[0], MDSettings(time=0.01, walls=walls), tmp_path)


def test_what_was_tried_counts_if_the_other_was_not(model):
    model.record["stability"] = {"free": TRIED["free"]}
    with pytest.warns(UserWarning, match=WITHOUT):
        GeomAttCalculator(model)


def test_runs_before_the_model_had_bounds_are_called_that(model):
    model.record["stability"] = {"bounded": None, **TRIED}
    with pytest.warns(UserWarning, match="with walls and without bounds"):
        GeomAttCalculator(model)


def test_runs_of_the_model_as_it_is_count_most(model):
    model.record["stability"] = {
        **TRIED,
        "bounded": {"intact": 5, "runs": 5, "ps": 300.0, "failed_at_ps": []},
    }
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        GeomAttCalculator(model)
    with pytest.warns(UserWarning, match=WITHOUT):
        GeomAttCalculator(model, walls=False)


def test_a_copy_without_bounds_is_judged_by_runs_without(model):
    kept = {"intact": 5, "runs": 5, "ps": 300.0, "failed_at_ps": []}
    model.record["stability"] = {**TRIED, "bounded": kept}
    with pytest.warns(UserWarning, match=WITH):
        GeomAttCalculator(model.without_bounds())


def test_a_model_that_leans_on_walls(model):
    tried = {"intact": 5, "runs": 5, "ps": 300.0, "failed_at_ps": [], "wall_share": 0.87}
    model.record["stability"] = {"walls": tried}
    with pytest.warns(UserWarning, match="held by them in 87 % of the steps"):
        GeomAttCalculator(model)


def test_a_model_that_stayed_intact_says_nothing(model):
    model.record["stability"] = {
        "walls": {"intact": 5, "runs": 5, "ps": 300.0, "failed_at_ps": [], "wall_share": 0.005}
    }
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        GeomAttCalculator(model)
