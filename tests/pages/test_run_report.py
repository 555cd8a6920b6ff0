"""Reports of runs and evaluations: their contents, and that a browser shows them."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from browser import Visit
from training_toy import mixture, molecule, tiny_config

from geomatt import Committee, evaluate, random_split, train
from geomatt.pages import evaluation_report, members_report, run_report
from geomatt.pages.error_blocks import error_blocks, frame_errors


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    dataset = molecule()
    split = random_split(len(dataset), 20, 10, 10)
    result = train(dataset, split, tiny_config(), tmp_path_factory.mktemp("runs") / "run")
    tested = evaluate(result.potential, dataset, indices=split.test)
    return result, dataset, split, tested


@pytest.fixture(scope="module")
def page(run):
    result, dataset, split, tested = run
    return run_report(result, dataset, split, tested, commands=["geomatt evaluate <x>"])


def blocks(page, kind):
    return [block for block in page.blocks if block["kind"] == kind]


def test_contents(page, run):
    result, _, _, tested = run
    headings = [block["text"] for block in blocks(page, "heading")]
    assert headings == [
        "Learning curves", "Errors on 10 test frames", "Frames with the largest errors",
        "Checks of the data", "Attention of a typical frame", "A short simulation at constant energy", "Next",
    ]  # fmt: skip
    facts = dict(blocks(page, "facts")[0]["rows"])
    assert "20 to train, 10 to validate, 10 to test" in facts["split"]
    assert str(result.best_epoch) in facts["training"]
    curves = blocks(page, "charts")[0]["items"]
    assert [len(s["x"]) for item in curves for s in item["series"]] == [4] * 6
    assert any("moving average" in block["text"] for block in blocks(page, "text"))
    total = blocks(page, "table")[0]["rows"][0]
    assert float(total[4]) == pytest.approx(tested.overall.forces_mae, rel=1e-3)
    assert blocks(page, "explorer")[0]["effects"]["computed"]


def test_worst_frames_and_distance(run):
    _, dataset, split, tested = run
    errors = frame_errors(tested)
    found = error_blocks(tested, dataset.select(split.train))
    worst = next(block for block in found if block["kind"] == "molecules")["items"]
    assert worst[0]["title"] == f"Frame {errors.argmax()} of the test data"
    arrows = np.reshape(worst[0]["arrows"], (4, 3))
    own = slice(4 * errors.argmax(), 4 * errors.argmax() + 4)
    np.testing.assert_allclose(arrows, (tested.forces - tested.data.forces)[own])
    charts = next(block for block in found if block["kind"] == "charts")["items"]
    away = next(item for item in charts if "distance" in item["title"])["series"][0]
    assert len(away["x"]) == 10
    assert min(away["x"]) > 0


def test_training_frames_have_zero_distance_to_the_data(run):
    result, dataset, split, _ = run
    known = evaluate(result.potential, dataset, indices=split.train, exclude_trained=False)
    charts = next(b for b in error_blocks(known, dataset.select(split.train)) if b["kind"] == "charts")
    away = next(item for item in charts["items"] if "distance" in item["title"])["series"][0]
    assert max(away["x"]) < 1e-6


def test_members_and_mixtures(run, tmp_path):
    result, dataset, split, tested = run
    committee = Committee([result.potential, result.potential])
    both = members_report(committee, [result] * 2, dataset, [split] * 2, [tested, None], commands=["next"])
    rows = blocks(both, "table")[0]["rows"]
    assert rows[1][3:] == ["–", "–"]
    assert rows[2][3:] == rows[0][3:]  # the mean of the same model twice
    assert blocks(both, "links")[0]["items"] == {"run": "run/report.html"}
    titles = [item["title"] for block in blocks(both, "charts") for item in block["items"]]
    assert "Error and spread of the members" in titles
    assert blocks(both, "explorer")[0]["members"] == ["mean of the members", "member 1", "member 2"]
    few = dataclasses.replace(split, train=split.train[5:], test=split.train[:5])
    folds = [few, split]
    mixed = members_report(committee, [result] * 2, dataset, folds, [None, tested])
    assert "on 10 test frames" in blocks(mixed, "heading")[1]["text"]  # none that a member was trained on
    data = mixture(15)
    split = random_split(len(data), 20, 5, 5)
    mixed = train(data, split, tiny_config(epochs=1), tmp_path / "run")
    found = evaluate(mixed.potential, data, indices=split.test)
    table = next(b for b in error_blocks(found, data.select(split.train)) if b["kind"] == "table")
    assert len(table["rows"]) == 1 + 2 + 3  # all, two molecules, three elements


def test_reports_in_a_browser(chromium, page, run, tmp_path):
    result, *_, tested = run
    for number, shown in enumerate((page, evaluation_report(result.potential, tested))):
        tab = chromium.new_page(viewport={"width": 380, "height": 800})
        visit = Visit(tab, shown.save(tmp_path / f"{number}.html"))
        tab.wait_for_selector(".molecules canvas")
        tab.wait_for_selector(".explorer[data-ready]")
        assert tab.locator("svg.chart").count() >= 3
        assert tab.evaluate("document.documentElement.scrollWidth") <= 380
        visit.check()
        tab.close()
