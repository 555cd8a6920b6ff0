"""The commands that use a model, through their command line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from authors_checkpoint import write_checkpoint
from command_line import invoke

from geomatt import Dataset, GeomAttError, Potential, Structure, __version__, load, save
from geomatt.data import write
from geomatt.model import Normalisation
from geomatt.model.geometric_attention.config import GeometricAttentionConfig
from geomatt.model.geometric_attention.cpu.engine import CODE
from geomatt.model.geometric_attention.network import GeometricAttention
from geomatt.model.native.library import library
from geomatt.units import ENERGY_IN_EV

pytest.importorskip("ase")

CONFIG = GeometricAttentionConfig(
    elements=(1, 6, 8), orders=(2, 3), layers=1, features=8, overlap_features=16, gamma=8.0, d_max=3.0,
    spacing=0.25,
)  # fmt: skip


def run(*arguments: object) -> str:
    """Run a command that must succeed; a user's mistake comes as the exception it is."""
    result = invoke(*arguments)
    assert result.exit_code == 0, result.output
    return result.output


def make(seed=0, **record) -> Potential:
    torch.manual_seed(seed)
    return Potential(GeometricAttention(CONFIG), Normalisation(-150.0, 0.5), record)


@pytest.fixture
def data() -> Dataset:
    """Frames of water around one geometry, labelled by springs."""
    rng = np.random.default_rng(0)
    rest = np.array([[0.0, 0, 0], [0.96, 0, 0], [-0.24, 0.93, 0]])
    moved = rng.normal(size=(8, 3, 3)) * 0.05
    return Dataset.from_frames(
        np.array([8, 1, 1]), rest + moved, -150 + (moved**2).sum((1, 2)), -2 * moved, name="water"
    )


@pytest.fixture
def place(tmp_path, data) -> Path:
    """A folder with a model and data."""
    potential = make(
        report_unit="kcal/mol", trained_frames=data[:3].frame_hashes(), split={"train": list(range(99))}
    )
    save(potential, tmp_path / "model.safetensors")
    write(data, tmp_path / "water.extxyz")
    return tmp_path


def test_info(place):
    text = run("info", place / "model.safetensors")
    for expected in ("geometric-attention", "H C O", "2, 3", "kcal/mol", "99 entries", "float32"):
        assert expected in text
    described = json.loads(run("info", place, "--json"))
    assert described["config"]["orders"] == [2, 3]
    save(make(), place / "run" / "member_0" / "model.safetensors")
    save(make(1), place / "run" / "member_1" / "model.safetensors")
    assert "committee of 2" in run("info", place / "run")
    with pytest.raises(GeomAttError, match="no model file"):
        run("info", place / "none.safetensors")


def test_version_and_system():
    assert run("--version").strip() == f"geomatt {__version__}"
    rows = json.loads(run("info", "--system", "--json"))
    assert rows["torch"] == torch.__version__
    assert f"{torch.get_num_threads()} thread" in rows["processor"]
    assert {"GPU", "C++ compiler", "compiled code"} <= rows.keys()
    compiled = library(CODE) is not None and not torch.cuda.is_available()
    for name in ("pair", "geomatt"):
        assert rows[f"{name}, float32"].startswith("C++") == compiled
        assert rows[f"{name}, float64"] in ("plain torch", "Triton kernels")
    assert "processor" in run("info", "--system")
    with pytest.raises(GeomAttError, match="Which model"):
        run("info")


def test_evaluate(place, data):
    text = run("evaluate", place / "model.safetensors", place / "water.extxyz")
    assert "kcal/mol" in text
    assert "H2O" in text
    assert "3 frames the model was trained or validated on were left out" in text
    report = json.loads((place / "evaluate_water.json").read_text())
    assert report["structures"] == 5
    assert report["trained_frames"] == {"count": 3, "included": False}
    assert (place / "parity_water.png").stat().st_size > 1000

    out = place / "out"
    out.mkdir()
    text = run("evaluate", place, place / "water.extxyz", "--unit", "eV", "--include-trained",
               "--json", out / "e.json", "--plot", out / "p.png")  # fmt: skip
    assert "too small" in text
    report = json.loads((out / "e.json").read_text())
    assert (report["structures"], report["unit"]["energy"]) == (8, "eV")
    predicted = [p.energy for p in load(place).predict(data)]
    assert report["overall"]["energy_mae"] == pytest.approx(
        np.abs(predicted - data.energies).mean(), rel=1e-4
    )


def test_evaluate_refuses(place, data):
    with pytest.raises(GeomAttError, match="no directory"):
        run("evaluate", place, place / "water.extxyz", "--json", place / "none" / "e.json")
    with pytest.raises(GeomAttError, match="Unknown energy unit"):
        run("evaluate", place, place / "water.extxyz", "--unit", "parsec")
    write(data[:3], place / "seen.extxyz")
    with pytest.raises(GeomAttError, match="include_trained"):
        run("evaluate", place, place / "seen.extxyz")
    with pytest.raises(GeomAttError, match="form"):
        run("evaluate", place, place / "water.extxyz", "--key", "energy")


def test_evaluate_committee(tmp_path, data):
    for k in range(2):
        save(make(k), tmp_path / f"member_{k}" / "model.safetensors")
    write(data, tmp_path / "water.extxyz")
    assert "Committee" in run("evaluate", tmp_path, tmp_path / "water.extxyz", "--batch", 3)
    assert json.loads((tmp_path / "evaluate_water.json").read_text())["committee_spread"]["energy_mean"] > 0


def test_predict(place, data):
    import ase.io

    run("predict", place, place / "water.extxyz", "-o", place / "out.extxyz", "--dtype", "float64")
    frames = ase.io.read(place / "out.extxyz", ":")
    expected = load(place, dtype="float64").predict(data)
    assert len(frames) == 8
    for atoms, prediction in zip(frames, expected, strict=True):
        assert atoms.get_potential_energy() == pytest.approx(prediction.energy, abs=1e-7)
        np.testing.assert_allclose(atoms.get_forces(), prediction.forces, atol=1e-6)
        np.testing.assert_allclose(atoms.get_potential_energies(), prediction.atomic_energies, atol=1e-6)


def test_predict_refuses(place):
    before = (place / "water.extxyz").read_bytes()
    with pytest.raises(GeomAttError, match="is the input"):
        run("predict", place, place / "water.extxyz", "-o", place / "water.extxyz")
    assert (place / "water.extxyz").read_bytes() == before
    with pytest.raises(GeomAttError, match=r"end in \.extxyz"):
        run("predict", place, place / "water.extxyz", "-o", place / "out.npz")
    with pytest.raises(GeomAttError, match="no directory"):
        run("predict", place, place / "water.extxyz", "-o", place / "none" / "out.extxyz")
    (place / "nitrogen.xyz").write_text("1\n\nN 0 0 0\n")
    with pytest.raises(GeomAttError, match="not trained on"):
        run("predict", place, place / "nitrogen.xyz", "-o", place / "out.extxyz")
    assert not (place / "out.extxyz").exists()


def test_predict_committee_keeps_spread(tmp_path):
    import ase.io

    for k in range(2):
        save(make(k), tmp_path / f"member_{k}" / "model.safetensors")
    (tmp_path / "a.xyz").write_text("2\n\nO 0 0 0\nH 1 0 0\n")
    run("predict", tmp_path, tmp_path / "a.xyz", "-o", tmp_path / "out.extxyz")
    atoms = ase.io.read(tmp_path / "out.extxyz")
    assert atoms.info["energy_spread"] > 0
    assert atoms.arrays["forces_spread"].shape == (2,)


def test_attention(place):
    figure = place / "fig.png"
    text = run("attention", place, place / "water.extxyz", "-o", figure, "--frame", -1,
               "--json", place / "a.json", "--npz", place / "a.npz")  # fmt: skip
    assert "average precision" in text
    assert "by the size of attention" in " ".join(text.split())
    assert "α" not in text
    assert "control" in text
    for name in ("fig.png", "fig_molecule.png", "a.json", "a.npz"):
        assert (place / name).stat().st_size > 100
    with pytest.raises(GeomAttError, match="no structure 8"):
        run("attention", place, place / "water.extxyz", "-o", figure, "--frame", 8)
    with pytest.raises(GeomAttError, match=r"end in \.png"):
        run("attention", place, place / "water.extxyz", "-o", place / "fig.docx")


def test_import_authors_with_numbers(tmp_path):
    write_checkpoint(tmp_path / "theirs")
    out = tmp_path / "m.safetensors"
    numbers = ["--energy-mean", "-97195.9", "--energy-std", 4.1, "--energy-unit", "kcal/mol"]
    assert "geomatt info" in run("import-authors", tmp_path / "theirs", out, *numbers, "--elements", "H,C")
    potential = load(out)
    assert potential.elements == (1, 6)
    assert potential.normalisation.scale == pytest.approx(4.1 * ENERGY_IN_EV["kcal/mol"])
    assert potential.record["report_unit"] == "kcal/mol"
    bad = [
        (numbers, "Name the elements"),
        ([*numbers, "--elements", "H,N"], "no embedding of N"),
        ([*numbers[:2], *numbers[4:], "--elements", "H"], "go together"),
        ([*numbers[2:], "--elements", "H"], "go together"),
        ([*numbers[:4], "--elements", "H"], "--energy-unit"),
        (["--elements", "H"], "--train-file"),
        ([*numbers, "--energy-std", "-1", "--elements", "H"], "positive"),
        ([*numbers, "--train-file", "x.npz"], "not both"),
    ]
    for arguments, message in bad:
        with pytest.raises(GeomAttError, match=message):
            run("import-authors", tmp_path / "theirs", tmp_path / "other.safetensors", *arguments)
    assert not (tmp_path / "other.safetensors").exists()


def test_import_authors_with_training_data(tmp_path):
    write_checkpoint(tmp_path / "theirs")
    rng = np.random.default_rng(0)
    frames = Dataset.from_frames(np.array([6, 1, 1]), rng.normal(size=(5, 3, 3)), rng.normal(size=5) - 40)
    write(frames, tmp_path / "train.extxyz")
    run(
        "import-authors",
        tmp_path / "theirs",
        tmp_path / "m.safetensors",
        "--train-file",
        tmp_path / "train.extxyz",
    )
    potential = load(tmp_path / "m.safetensors")
    assert potential.elements == (1, 6)
    assert potential.normalisation.shift == pytest.approx(frames.energies.mean())
    assert potential.normalisation.scale == pytest.approx(frames.energies.std())
    with pytest.raises(GeomAttError, match="include_trained"):
        run("evaluate", tmp_path / "m.safetensors", tmp_path / "train.extxyz")
    mixed = Dataset.from_structures(
        [Structure(np.array([1]), np.zeros((1, 3)), 1.0), Structure(np.array([6]), np.zeros((1, 3)), 2.0)]
    )
    write(mixed, tmp_path / "mixed.extxyz")
    with pytest.raises(GeomAttError, match="one molecule"):
        run(
            "import-authors",
            tmp_path / "theirs",
            tmp_path / "n.safetensors",
            "--train-file",
            tmp_path / "mixed.extxyz",
        )


@pytest.mark.parametrize("command", ["info", "evaluate", "predict", "attention", "import-authors", "client"])
def test_help_has_an_example(command):
    assert "Example: geomatt" in " ".join(run(command, "--help").split())


def test_python_m_geomatt(place):
    """One command as a process of its own: output on stdout, mistakes on stderr without a traceback."""
    program = [sys.executable, "-m", "geomatt", "info"]
    good = subprocess.run([*program, str(place)], capture_output=True, text=True, check=True)
    assert "geometric-attention" in good.stdout
    bad = subprocess.run([*program, str(place / "no")], capture_output=True, text=True)
    assert bad.returncode == 1
    assert "Error:" in bad.stderr
    assert "Traceback" not in bad.stderr
