"""`geomatt auto`: every stage, interruptions between and within them, messages."""

from __future__ import annotations

import dataclasses
import json
from contextlib import nullcontext
from pathlib import Path

import pytest
from ase.build import molecule
from scripts_path import load_script

from geomatt import load
from geomatt.data.structures import as_structure
from geomatt.errors import GeomAttError
from geomatt.evaluation import EvaluationResult
from geomatt.model import new_network
from geomatt.workflow import AutoConfig, auto, pipeline

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
WATER = as_structure(molecule("H2O"))
SMALL = {"layers": 1, "features": 4, "overlap_features": 4}


def quick(**changes) -> AutoConfig:
    settings = {
        "calculator": "toy_calculators:Springs", "frames": 24, "walkers": 2, "equilibrate": 0.0, "stride": 4,
        "epochs": 2, "picoseconds": 0.01, "model": "geomatt", "network": SMALL,
    }  # fmt: skip
    return AutoConfig(**{**settings, **changes})


@pytest.fixture(autouse=True)
def no_pictures(monkeypatch):
    monkeypatch.setattr(pipeline, "parity_plot", lambda result, path: path)


def test_all_stages_and_interruptions(tmp_path, monkeypatch):
    out = tmp_path / "run"

    def stop(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):  # while sampling: at the first report
        auto([WATER], quick(), out, watch=lambda *_: nullcontext(stop))
    with pytest.raises(KeyboardInterrupt):  # while training
        auto([WATER], quick(), out, training=lambda: nullcontext(stop))
    with monkeypatch.context() as patch:
        patch.setattr(EvaluationResult, "to_dict", stop)
        with pytest.raises(KeyboardInterrupt):
            auto([WATER], quick(), out)
    sampled = (out / "data.npz").read_bytes()
    report = auto([WATER], quick(), out)
    assert (out / "data.npz").read_bytes() == sampled
    assert report["training"]["epochs"] == 2
    assert report["evaluation"]["overall"]["forces_mae"] > 0
    assert report["evaluation"]["structures"] == 24 - 12 - 2
    assert "drift_eV_per_atom_ps" in report["dynamics"] or report["dynamics"]["failure"]
    assert json.loads((out / "report.json").read_text())["formula"] == "H2O"
    page = (out / "report.html").read_text(encoding="utf-8")
    for part in ("Learning curves", "Attention of a typical frame", "Dynamics at constant energy", "Next"):
        assert part in page
    text = (out / "report.txt").read_text()
    assert "force MAE" in text
    assert "below their error bars for 90%" in text
    assert text.startswith("A force field of H2O (3 atoms)")
    for hint in (
        "GeomAttCalculator",
        f"geomatt md {out}/model",
        f"geomatt improve {out}/model {out}/data.npz",
    ):
        assert hint in text
    assert load(out / "model").elements == load(out).elements == (1, 8)
    again = auto([WATER], quick(), out)  # everything is there already
    assert again["evaluation"] == report["evaluation"]
    with pytest.raises(GeomAttError, match="was started with `epochs` 2, now it is 3"):
        auto([WATER], quick(epochs=3), out)


@pytest.mark.filterwarnings("ignore:The distance between")
def test_measured_molecules_stand_side_by_side(tmp_path, monkeypatch):
    """`scripts/measure_auto.py`: a result for each name, and a table of each in the page."""
    auto([WATER], quick(), tmp_path / "run")
    monkeypatch.syspath_prepend(str(SCRIPTS))
    script = load_script("measure_auto")
    monkeypatch.setattr(script, "ROOT", tmp_path)
    monkeypatch.setattr(script, "SECONDS", 0.05)
    monkeypatch.setattr(script, "sampling", lambda *_: 0.001)  # it starts a process
    for folder in ("results", "docs"):
        (tmp_path / folder).mkdir()
    page = tmp_path / script.PAGE
    page.write_text("before\n<!-- begin:auto -->\n<!-- end:auto -->\nafter\n")
    monkeypatch.setattr("sys.argv", ["measure_auto", str(tmp_path / "run"), "--name", "water"])
    script.main()
    found = json.loads((tmp_path / script.RESULT).read_text())["water"]
    assert set(found["stages"]) >= {"reference calculations", "training steps"}
    script.store({**found, "name": "heavy water"}, tmp_path / script.RESULT)
    script.store({**found, "atoms": 4}, tmp_path / script.RESULT)
    monkeypatch.setattr("sys.argv", ["measure_auto", "--table"])
    script.main()
    assert list(json.loads((tmp_path / script.RESULT).read_text())) == ["water", "heavy water"]
    text = page.read_text()
    assert text.startswith("before")
    assert "| water, H2O, 4 atoms | |" in text
    assert "| heavy water, H2O, 3 atoms | |" in text


def test_diverged_dynamics_is_a_result(tmp_path, monkeypatch):
    import geomatt.simulation.dynamics as dynamics

    def diverge(*_, **__):
        raise GeomAttError("The simulation diverged after 3 steps.")

    monkeypatch.setattr(dynamics, "run_md", diverge)
    monkeypatch.setattr("geomatt.simulation.run_md", diverge, raising=False)
    report = auto([WATER], quick(epochs=1), tmp_path / "run")
    assert "failed: The simulation diverged" in (tmp_path / "run" / "report.txt").read_text()
    assert report["dynamics"]["failure"]


def test_a_corrected_mistake_is_not_other_settings(tmp_path):
    for wrong in ("no.such:Thing", "toy_calculators:OnlyEnergy"):
        with pytest.raises(GeomAttError, match="`calculator`"):
            auto([WATER], quick(calculator=wrong), tmp_path / "run")


def test_wrong_settings(tmp_path):
    for changes, name in [({"frames": 5}, "frames"), ({"train": 23}, "train"), ({"epochs": 0}, "epochs")]:
        with pytest.raises(GeomAttError, match=f"`{name}`"):
            quick(**changes)
    (tmp_path / "other.txt").write_text("mine")
    with pytest.raises(GeomAttError, match="holds other files"):
        auto([WATER], quick(), tmp_path)
    with pytest.raises(GeomAttError, match="is a file"):
        auto([WATER], quick(), tmp_path / "other.txt")


def test_the_example_of_a_network_setting_is_one_of_the_default_network():
    (item,) = (f for f in dataclasses.fields(AutoConfig) if f.name == "network")
    name, _, value = item.metadata["example"].partition("=")
    assert getattr(new_network(AutoConfig.model, {name: int(value)}, (1,)).config, name) == int(value)
