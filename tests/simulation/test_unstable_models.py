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
KEPT = {"intact": 5, "runs": 5, "ps": 300.0, "failed_at_ps": []}
WITH = "1 of 5 runs of 300 ps with walls and without bounds fell apart, the first after 120.0 ps"
WITHOUT = "3 of 5 runs of 300 ps without walls and without bounds fell apart, the first after 7.5 ps"
BEFORE = {"bounded": None, **TRIED}  # the model had bounds


@pytest.fixture
def model():
    found = load("md17/ethanol:pair-s").members[0]
    found.record["stability"] = BEFORE
    return found


def said(model, **given) -> str:
    """The warning of a calculator; empty if there is none."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        GeomAttCalculator(model, **given)
    assert len(caught) < 2
    return str(caught[0].message) if caught else ""


@pytest.mark.parametrize(("walls", "message"), [(True, WITH), (False, WITHOUT)])
def test_calculator_and_dynamics_warn(model, walls, message, tmp_path):
    assert message in said(model, walls=walls)
    with pytest.warns(UserWarning, match=message):
        run_dynamics(model, ethanol()[0], MDSettings(time=0.01, walls=walls), tmp_path)


def test_what_was_tried_counts_if_the_other_was_not(model):
    model.record["stability"] = {"bounded": None, "free": TRIED["free"]}
    assert WITHOUT in said(model)


def test_without_walls_failures_with_walls_count_too(model):
    """Longer runs with walls failed: shorter ones without do not show that it is safer."""
    model.record["stability"] = {**BEFORE, "free": {**KEPT, "ps": 140.0}}
    without = said(model, walls=False)
    assert WITH in without
    assert "5 of 5 runs of 140 ps without walls and without bounds stayed intact, but were shorter" in without
    assert "140 ps" not in said(model)
    model.record["stability"] = BEFORE
    assert WITH in said(model, walls=False)
    model.record["stability"] = {
        **TRIED,
        "bounded": {**KEPT, "intact": 4, "failed_at_ps": [9.0]},
        "walls": KEPT,
    }
    assert "1 of 5 runs of 300 ps with walls and bounds fell apart" in said(model, walls=False)


def test_shorter_runs_of_the_model_as_it_is_do_not_outweigh_later_failures(model):
    model.record["stability"] = {**TRIED, "bounded": {**KEPT, "ps": 100.0}}
    assert WITH in said(model)
    assert "5 of 5 runs of 100 ps with walls and bounds stayed intact, but were shorter" in said(model)
    model.record["stability"] = {**TRIED, "bounded": {**KEPT, "ps": 130.0}}  # later than any failure
    assert said(model) == ""


def test_models_that_never_had_bounds_are_not_said_to_lack_them():
    model = load("md17/ethanol:fast").members[0]
    model.record["stability"] = TRIED
    assert "with walls fell apart" in said(model)
    assert "without walls fell apart" in said(model, walls=False)


def test_runs_of_the_model_as_it_is_count_most(model):
    model.record["stability"] = {**TRIED, "bounded": KEPT}
    assert said(model) == ""
    assert WITHOUT in said(model, walls=False)


def test_a_copy_without_bounds_is_judged_by_runs_without(model):
    model.record["stability"] = {**TRIED, "bounded": KEPT}
    assert WITH in said(model.without_bounds())


def test_longer_runs_with_bounds_say_nothing_about_a_copy_without(model):
    late = {**KEPT, "intact": 4, "failed_at_ps": [200.0]}
    model.record["stability"] = {"bounded": KEPT, "walls": {**KEPT, "ps": 100.0}, "free": late}
    found = said(model.without_bounds())
    assert "1 of 5 runs of 300 ps without walls and without bounds fell apart" in found
    assert "5 of 5 runs of 100 ps with walls and without bounds stayed intact, but were shorter" in found
    assert said(model) == ""


def test_a_model_that_leans_on_walls(model):
    leaning = {**KEPT, "wall_share": 0.87}
    model.record["stability"] = {"walls": leaning}
    assert "a wall held it in 87 % of the steps" in said(model)
    model.record["stability"] = {"bounded": KEPT, "walls": leaning}
    assert said(model) == ""


def test_a_model_that_stayed_intact_says_nothing(model):
    model.record["stability"] = {"walls": {**KEPT, "wall_share": 0.005}}
    assert said(model) == ""
