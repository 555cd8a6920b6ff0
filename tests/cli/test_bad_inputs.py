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
from geomatt.data.io.npz import read_npz
from geomatt.data.make import SampleConfig, sample
from geomatt.simulation import (
    Coordinate,
    DynamicsConfig,
    MDSettings,
    ScanSettings,
    relax,
    run_dynamics,
    scan,
    vibrations,
)

MODEL = "md17/ethanol:fast"
WATER = "3\n\nO 0 0 0\nH 0 0 0.96\nH 0.9 0 -0.3\n"


@pytest.fixture(scope="module")
def ethanol():
    return geomatt.load(MODEL), geomatt.read("embedded/ethanol")


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
        (f"predict {MODEL} water.xyz -o out.xyz --device mps", "Apple GPUs have no float64"),
        ("train good.npz --out run --device mps", "Apple GPUs have no float64"),
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
def test_invalid_input_of_commands(command, message, folder, monkeypatch, capsys):
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
        (lambda m, d: read_npz("a.npz", keys=["a"]), "`keys` must be a dictionary of strings"),
        (lambda m, d: geomatt.evaluate(m, "embedded/ethanol"), r"geomatt.read\(FILE\)"),
        (lambda m, d: geomatt.random_split(10, 2.5, 2), "whole numbers"),
        (lambda m, d: geomatt.TrainConfig(epochs="many"), "`epochs` must be a whole number, not 'many'"),
        (lambda m, d: geomatt.TrainConfig(epochs=1.5), "`epochs` must be a whole number"),
        (lambda m, d: geomatt.TrainConfig(epochs=10**400), "`epochs` must be a whole number, not 10000"),
        (
            lambda m, d: geomatt.TrainConfig(network={"layers": 10**5000}, model="geomatt"),
            "thousands of digits",
        ),
        (lambda m, d: geomatt.TrainConfig(keys=["a"]), "`keys` must be a dictionary of strings"),
        (lambda m, d: geomatt.TrainConfig(unfreeze="all"), "`unfreeze` must be a list of strings"),
        (lambda m, d: geomatt.TrainConfig(network={"channels": "a"}), "`channels` must be a whole number"),
        (lambda m, d: geomatt.TrainConfig(reference={"Xx": 1.0}), "'Xx' is not the symbol"),
        (lambda m, d: geomatt.resolve(None), r"geomatt.resolve\(\{"),
        (lambda m, d: geomatt.resolve({}, geomatt.TrainConfig()), r"geomatt.resolve\(\{"),
        (lambda m, d: geomatt.read("embedded.npz", energy_unit=3), "Unknown energy unit"),
        (lambda m, d: geomatt.Potential.to(m, "foo"), "does not compute on `device` 'foo'"),
        (lambda m, d: m.to("mps"), "Apple GPUs have no float64"),
        (lambda m, d: m.to("cuda:999"), "No CUDA device|no device cuda:999"),
        (lambda m, d: m.predict(d[0], batch_size="a"), "`batch_size` must be a whole number"),
        (lambda m, d: m.hessian(d[:2]), "one structure, not of 2"),
        (lambda m, d: m.evaluate(d[0]), "Use `predict`"),
        (lambda m, d: geomatt.save(m, None), "Name the file"),
        (lambda m, d: geomatt.Committee([3]), "are potentials"),
        (lambda m, d: MDSettings(time="long"), "`time` must be a number, not 'long'"),
        (lambda m, d: MDSettings(replicas=1.5), "`replicas` must be a whole number"),
        (lambda m, d: MDSettings(walls="yes"), "`walls` must be True or False"),
        (lambda m, d: DynamicsConfig(timestep_fs="a"), "`timestep_fs` must be a number"),
        (lambda m, d: SampleConfig(temperature=300.0), "`temperature` must be a list of numbers"),
        (lambda m, d: Coordinate("angle", (0, 1, 2)), "a torsion or a distance"),
        (lambda m, d: relax(m, None), "not a structure"),
        (lambda m, d: vibrations("nowhere", d[0]), "no model file"),
        (lambda m, d: scan(m, d[0], "0,1", ScanSettings()), "The coordinate must be a Coordinate"),
        (lambda m, d: run_dynamics(m, d[0], None, "md"), "The settings must be a MDSettings"),
        (lambda m, d: geomatt.data.check_labels("a.npz"), "must be a Dataset"),
        (lambda m, d: geomatt.data.drop_outliers(None), "must be a Dataset"),
        (lambda m, d: geomatt.data.concatenate([d, None]), "must be a Dataset"),
        (lambda m, d: d.select([0.5]), "`indices` must be a list of whole numbers"),
        (lambda m, d: d.select([10**6]), "below the number of structures, 2000"),
        (lambda m, d: geomatt.Dataset.from_structures([Atoms("H")]), "made of geomatt Structures"),
        (lambda m, d: Structure([1], [[0, 0, 0]], energy="a"), "`energy` must be a number"),
        (lambda m, d: Structure([1], [[0, 0, 0]], pbc=[True]), "`pbc` must be True or False"),
        (lambda m, d: geomatt.random_split("a", 5, 2), "such as len"),
        (lambda m, d: geomatt.random_split(9, 5, 2, seed="a"), "`seed` must be a whole number"),
        (lambda m, d: geomatt.train(d, geomatt.random_split(9, 5, 2), tiny_config(), None), "`out` must be"),
        (lambda m, d: geomatt.train_members(d, geomatt.random_split(9, 5, 2), tiny_config(), "r"), "a list"),
        (lambda m, d: sample("CCO", SampleConfig(), "o.npz"), "read_molecule"),
        (lambda m, d: geomatt.train(d, None, tiny_config(), "run"), r"geomatt.random_split\("),
        (lambda m, d: geomatt.train(d, geomatt.random_split(9, 5, 2), {}, "run"), r"geomatt.resolve\("),
        (lambda m, d: geomatt.train("a", geomatt.random_split(9, 5, 2), tiny_config(), "run"), "read"),
    ],
)
def test_invalid_input_in_python(call, message, ethanol, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(GeomAttError, match=message):
        call(*ethanol)


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
