"""`geomatt improve`: a round lowers the error where the first data ended; interruptions, messages."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
from ase.build import molecule
from training_toy import tiny_config

from geomatt import load
from geomatt.data import Dataset, read
from geomatt.data.make import SampleConfig, sample
from geomatt.data.novelty import novelty
from geomatt.data.structures import as_structure
from geomatt.errors import GeomAttError
from geomatt.training import train_members
from geomatt.training.dataset import make_splits
from geomatt.workflow import ImproveConfig, improve
from geomatt.workflow.explore import Candidates, choose
from geomatt.workflow.rounds import reference_method

WATER = as_structure(molecule("H2O"))


def quick(**changes) -> ImproveConfig:
    settings = {
        "labels": 20,
        "temperature": 1500.0,
        "picoseconds": 0.1,
        "replicas": 6,
        "stride": 10,
        "epochs": 30,
    }
    return ImproveConfig(**{**settings, **changes})


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """A committee trained on cold water."""
    folder = tmp_path_factory.mktemp("first")
    config = SampleConfig(
        "toy_calculators:Springs", frames=40, stride=4, equilibrate=0.0, temperature=(200.0,)
    )
    sample([WATER], config, folder / "data.npz")
    data = read(folder / "data.npz")
    settings = tiny_config(members=2, epochs=40, train=25, val=8, learning_rate=5e-3)
    train_members(data, make_splits(settings, 40), settings, folder / "model")
    return folder / "model", data


def test_a_round_lowers_the_error_on_new_frames(first, tmp_path):
    model, data = first

    def stop(*_):
        raise KeyboardInterrupt

    for interrupted in ({"watch": lambda *_: nullcontext(stop)}, {"training": lambda: nullcontext(stop)}):
        with pytest.raises(KeyboardInterrupt):
            improve(model, data, quick(), tmp_path / "out", **interrupted)
    chosen = (tmp_path / "out/round_1/candidates.extxyz").read_bytes()
    report = improve(model, data, quick(), tmp_path / "out")
    assert (tmp_path / "out/round_1/candidates.extxyz").read_bytes() == chosen
    (one,) = report["rounds"]
    errors = {when: one["new frames"][when]["forces_mae_eV_per_A"] for when in ("before", "after")}
    assert errors["after"] < 0.9 * errors["before"]
    assert one["new frames"]["frames"] == 4
    assert one["trained_on"] > 25
    page = (tmp_path / "out/report.html").read_text(encoding="utf-8")
    assert f"{1000 * errors['after']:.1f}" in page
    assert '"Learning curves"' in page
    better = load(tmp_path / "out" / report["model"])
    assert len(better.members) == 2
    assert better.calibration is not None
    again = improve(model, data, quick(), tmp_path / "out")
    assert again == report
    with pytest.raises(GeomAttError, match="was started with `labels`"):
        improve(model, data, quick(labels=10), tmp_path / "out")


def test_single_model_takes_frames_far_from_its_data(first, tmp_path):
    model, data = first
    report = improve(model / "member_0", data, quick(epochs=2, labels=5, picoseconds=0.05), tmp_path / "out")
    assert report["rounds"][0]["labelled"] == 5
    assert len(load(tmp_path / "out" / report["model"]).members) == 1


def test_novelty():
    shuffled = replace(WATER, numbers=WATER.numbers[[2, 0, 1]], positions=WATER.positions[[2, 0, 1]] + 1.0)
    stretched = replace(WATER, positions=1.1 * WATER.positions)
    found = novelty([shuffled, stretched, replace(WATER, positions=1.3 * WATER.positions)], [WATER])
    assert found[0] == pytest.approx(0.0, abs=1e-12)
    assert 0 < found[1] < found[2]
    assert found[1] == pytest.approx(novelty([stretched], [shuffled])[0])


def test_unsuitable_models_and_data_are_refused(first, tmp_path):
    model, data = first
    with pytest.raises(GeomAttError, match="trained on other data"):
        improve(model, data[:20], quick(), tmp_path / "out")
    with pytest.raises(GeomAttError, match="labelled with toy_calculators:Springs, not with GFN2-xTB"):
        improve(model, data, quick(calculator="GFN2-xTB"), tmp_path / "out")
    silent = Dataset.from_structures(list(data))
    with pytest.raises(GeomAttError, match="does not say how it was labelled"):
        reference_method(quick(), silent)
    assert reference_method(quick(calculator="gfn1"), silent).calculator == "gfn1"
    for changes, name in [
        ({"labels": 1}, "labels"),
        ({"choose": "best"}, "choose"),
        ({"rounds": 0}, "rounds"),
    ]:
        with pytest.raises(GeomAttError, match=f"`{name}`"):
            quick(**changes)


def test_chosen_frames_are_apart():
    candidates = Candidates([], np.repeat([0, 1], 20), np.tile(np.arange(20), 2))
    score = np.arange(40.0)
    taken = choose(candidates, score, 6)
    for replica in (0, 1):
        times = candidates.time[taken][candidates.replica[taken] == replica]
        assert (np.diff(times) >= 5).all()
    assert 39 in taken
    assert len(choose(candidates, score, 30)) == 30  # not enough of them otherwise
    assert len(choose(candidates, score, 100)) == 40
