"""What users get wrong, on the command line and in Python: one line that says what to do, no traceback."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from ase import Atoms
from training_toy import npz, tiny_config

import geomatt
from geomatt import GeomAttError, Structure
from geomatt.cli import main
from geomatt.simulation.md import run_dynamics
from geomatt.simulation.settings import MDSettings

MODEL = "md17/ethanol:fast"
WATER = "3\n\nO 0 0 0\nH 0 0 0.96\nH 0.9 0 -0.3\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    npz(tmp_path / "good.npz")
    (tmp_path / "water.xyz").write_text(WATER)
    (tmp_path / "file").write_text("not a folder")
    return tmp_path


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (f"evaluate {MODEL} good.npz --out file", "file: it is a file. Name a folder"),
        (f"evaluate {MODEL} good.npz --plot parity.txt", "must end in .png, .pdf or .svg"),
        (f"attention {MODEL} water.xyz -o a.gif", "must end in .png, .pdf or .svg"),
        (f"predict {MODEL} water.xyz -o out.xyz --device mps", "no float64 there"),
        ("train good.npz --out run --device mps", "no float64 there"),
        ("train good.npz --out run --seed 99999999999999999999", "--seed must be at most"),
        ("train good.npz --out run --unit parsec", "Unknown energy unit 'parsec'"),
        ("train good.npz --out run --reference H=nan", "--reference energies must be finite"),
        ("train good.npz --out run --reference H=-1", "No --reference energy was given for C, O"),
        ("train good.npz --out run --checkpoint-every nan", "--checkpoint-every must not be negative"),
        ("train good.npz --out run --val-data none.npz", "There is no file none.npz"),
        ("train good.npz --out run --test-data good.npz --test 5", "leave out --test"),
        ("bench --quick --model geomatt:foo=1", "has no setting foo. It has: orders"),
        (f"md {MODEL} water.xyz --replicas 100000000", "--replicas must be at most 100000"),
        (f"md {MODEL} water.xyz --seed 99999999999999999999", "--seed must be at most"),
        ("data get md17/ethanol --from nowhere", "no file or folder nowhere"),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_commands(command, message, folder, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["geomatt", *command.split()])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 1
    assert message in capsys.readouterr().err
    assert not (folder / "run" / "model.safetensors").exists()


def test_a_byte_order_mark_does_not_matter(folder):
    (folder / "marked.xyz").write_text("\ufeff" + WATER)
    assert geomatt.read(folder / "marked.xyz").fingerprint() == geomatt.read("water.xyz").fingerprint()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m, d: m.predict([d[0]], batch_size=0), "batch_size"),
        (lambda m, d: m.predict(None), "not a structure"),
        (lambda m, d: m.hessian(None), "not a structure"),
        (lambda m, d: Structure([6, 1.5], np.zeros((2, 3))), "whole numbers"),
        (lambda m, d: Structure([6, 1], np.zeros((3, 3))), r"shape \(2, 3\), not \(3, 3\)"),
        (lambda m, d: Structure(["C", "H"], np.zeros((2, 3))), "arrays of numbers"),
        (lambda m, d: Structure([6, 1], np.zeros((2, 3)), forces=np.zeros((3, 3))), "forces of a structure"),
        (lambda m, d: Structure([6, 1], np.zeros((2, 3)), cell=np.ones(3)), "cell of a structure"),
        (lambda m, d: m.hessian(d[0], step=0.0), "step"),
        (lambda m, d: geomatt.data.write([d[0]], "x.npz"), "Dataset"),
        (lambda m, d: run_dynamics(m, None, MDSettings(), "md"), "not a structure"),
        (lambda m, d: geomatt.read(None), "a file or a name"),
        (lambda m, d: geomatt.evaluate(m, "embedded/ethanol"), r"geomatt.read\(FILE\)"),
        (lambda m, d: geomatt.random_split(10, 2.5, 2), "whole numbers"),
        (lambda m, d: geomatt.TrainConfig(epochs="many"), "not of the right type"),
        (lambda m, d: geomatt.TrainConfig(epochs=1.5), "not of the right type"),
        (lambda m, d: geomatt.train(d, None, tiny_config(), "run"), r"geomatt.random_split\("),
        (lambda m, d: geomatt.train(d, geomatt.random_split(9, 5, 2), {}, "run"), r"geomatt.resolve\("),
        (lambda m, d: geomatt.train("a", geomatt.random_split(9, 5, 2), tiny_config(), "run"), "read"),
    ],
)
def test_python(call, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(GeomAttError, match=message):
        call(geomatt.load(MODEL), geomatt.read("embedded/ethanol"))


def test_lists_are_structures():
    made = Structure([8, 1, 1], [[0, 0, 0], [0, 0, 1], [0, 1, 0]])
    assert made.numbers.dtype == np.int64
    assert made.positions.shape == (3, 3)
    assert Structure([1], [[0, 0, 0]], cell=np.eye(3), pbc=True).pbc == (True, True, True)
    with pytest.warns(UserWarning, match="trained on C2H6O alone"):
        (found,) = geomatt.load(MODEL).predict(Atoms("OH2", made.positions))
    with pytest.warns(UserWarning, match="trained on C2H6O alone"):
        (same,) = geomatt.load(MODEL).predict(made)
    assert found.energy == same.energy
