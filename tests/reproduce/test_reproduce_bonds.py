"""Bonds: scores against the lowest-energy frame's bonds, controls, models from a folder."""

import numpy as np
import pytest
import torch
from conftest import small_network

from geomatt.analysis import bond_scores
from geomatt.data import ethanol, write
from geomatt.errors import GeomAttError
from geomatt.model import AttentionRecord, Normalisation, Potential, save
from geomatt.reproduce import ExperimentSettings, bonds, draw_figures, get, run_experiment, silent
from geomatt.reproduce.bonds import score
from geomatt.reproduce.inputs import MD17
from geomatt.reproduce.pair_scores import PairStrengths, best_and_union, explained_by_distance


@pytest.fixture(scope="module")
def frames():
    return ethanol()[:20]


@pytest.fixture(scope="module")
def model():
    return Potential(small_network(orders=(2, 3), dtype=torch.float32), Normalisation())


def test_scores_are_means_over_frames_for_one_set_of_bonds(frames, model):
    done = []
    found = score(model.network, frames, np.arange(len(frames)), 0, done.append)
    assert sum(done) == len(frames)
    assert found["reference_frame"] == int(frames.energies.argmin())
    assert (found["bonds"], found["pairs"]) == (8, 36)
    # On the reference frame alone the numbers are those of the analysis room.
    lowest = frames[found["reference_frame"]]
    alone = score(model.network, frames, np.array([found["reference_frame"]]))
    records = model.predict([lowest], forces=False, attention=True)[0].attention
    expected = {s.label: s for s in bond_scores(records, lowest)}
    for row in alone["rows"]:
        assert row["ap"] == pytest.approx(expected[row["label"]].average_precision)
        assert row["auroc"] == pytest.approx(expected[row["label"]].auroc)
    assert found["controls"]["1 / distance"]["ap"] > 0.99


def test_order_two_is_a_function_of_distance_and_order_three_is_not(frames, model):
    found = score(model.network, frames, np.arange(len(frames)))
    explained = {order: [r["explained"] for r in found["rows"] if r["order"] == order] for order in (2, 3)}
    assert min(explained[2]) > 0.98
    assert max(explained[3]) < 0.98
    assert explained_by_distance(np.ones((2, 3)), np.ones((2, 3))) == 1.0


def test_the_curve_is_the_attention_between_two_atoms(frames, model):
    found = score(model.network, frames, np.array([0]))
    assert len(found["curves"]["alpha"]) == model.network.config.layers
    assert len(found["curves"]["alpha"][0]) == len(found["curves"]["distance"])


def test_trained_networks_are_compared_with_untrained_ones(frames, model):
    compared = score(model.network, frames, np.arange(len(frames)), 3)["untrained"]
    assert compared["frames"] == len(frames)
    assert len(compared["networks"]) == 3
    assert list(compared["trained"][0]) == ["k=2", "k=3", "all orders"]
    rows = score(model.network, frames, np.arange(len(frames)))["rows"]
    for order in (2, 3):
        best = max(row["ap"] for row in rows if row["order"] == order)
        assert compared["trained"][0][f"k={order}"]["best"] == pytest.approx(best)
    assert compared["networks"][0] != compared["networks"][1]


def test_the_union_of_layers_finds_what_any_layer_finds():
    truth = np.array([True, True, False])
    records = [AttentionRecord(2, layer, 0, None) for layer in (0, 1)]
    strength = np.array([[[5.0, 1.0, 2.0], [0.1, 0.9, 0.2]]])  # one frame, two layers, three pairs
    found = best_and_union(truth, PairStrengths(records, strength, np.ones((1, 3))))
    assert found["k=2"]["union"] == 1.0
    assert found["k=2"]["best"] < 1.0


@pytest.mark.filterwarnings("ignore:.*frames of md17/:UserWarning")
def test_models_come_from_a_folder(tmp_path, frames, model, monkeypatch):
    monkeypatch.setenv("GEOMATT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(bonds, "UNTRAINED", 2)
    experiment = get("bonds")
    settings = ExperimentSettings(data=tmp_path / "data", out=tmp_path / "out", models=tmp_path / "models")
    (tmp_path / "data" / "md17").mkdir(parents=True)
    for molecule in MD17:  # all of them ethanol
        write(frames, tmp_path / "data" / "md17" / f"md17_{molecule}.npz")
    with pytest.raises(GeomAttError, match="geomatt reproduce table1"):
        run_experiment(experiment, settings, silent)
    for molecule in ("toluene", "benzene"):  # two, so that a transfer is scored
        save(model, tmp_path / "models" / "md17" / f"{molecule}.safetensors")
    result = run_experiment(experiment, settings, silent)
    assert list(result["scored"]) == ["benzene", "toluene", "toluene → benzene"]
    assert result["settings"]["missing"][0] == "aspirin"
    names = [table.name for table in experiment.tables(result)]
    assert names == ["bonds-ap", "bonds-untrained", "bonds-auroc", "bonds-distance", "bonds-transfer"]
    captions = [text.note for text in experiment.tables(result)]
    captions += [drawing.caption for drawing in experiment.drawings(result)]
    assert not any("own ethanol data" in caption for caption in captions)
    drawn = draw_figures(experiment, result, settings.figures("bonds"))
    assert [f.path.name for f in drawn] == [
        "bonds-benzene.png",
        "bonds-toluene.png",
        "bonds-toluene-to-benzene.png",
        "bonds-curves.png",
    ]
    assert str(tmp_path) not in settings.result_file("bonds").read_text()


def test_the_quick_run_uses_the_shipped_model(tmp_path, monkeypatch):
    monkeypatch.setenv("GEOMATT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(bonds, "QUICK_FRAMES", 5)
    monkeypatch.setattr(bonds, "QUICK_UNTRAINED", 3)
    settings, experiment = ExperimentSettings(quick=True, out=tmp_path), get("bonds")
    result = run_experiment(experiment, settings, silent)
    assert result["models"]["ethanol"]["epochs"] == 2000
    assert experiment.tables(result)[-1].rows == [["not run"]]
    assert ["own ethanol data" in table.note for table in experiment.tables(result)] == [True] * 4 + [False]
    assert "Inverse distance" in experiment.summary(result)
    compared = result["scored"]["ethanol"]["untrained"]
    trained, others = (
        compared["trained"][0]["k=2"]["best"],
        [n["k=2"]["best"] for n in compared["networks"]],
    )
    worse = sum(other < trained for other in others)
    assert f"better than that of {worse} (ethanol) of 3 untrained" in experiment.summary(result)
    assert experiment.tables(result)[1].rows[0][1].endswith(f"; {worse})")
    figures = draw_figures(experiment, result, settings.figures("bonds"), ("png", "svg"))
    assert [f.path.suffix for f in figures] == [".png", ".svg"] * 2
    assert all("5 frames" in f.caption for f in figures[:2])
    assert all("own ethanol data" in f.caption for f in figures)
