"""Sampling and labelling: the same frames however a run is divided, and clear messages for bad input."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import ase
import numpy as np
import pytest
import toy_calculators
from ase.build import molecule

import geomatt
from geomatt.data import read, write
from geomatt.data.dataset import Dataset
from geomatt.data.make import SampleConfig, label, open_workers, read_molecule, sample
from geomatt.data.make.config import MethodConfig
from geomatt.data.make.intact import Bonding
from geomatt.data.make.log import RecordLog
from geomatt.data.make.method import Method, parse_arguments, probe
from geomatt.data.make.sampling import total_frames
from geomatt.data.make.workers import Workers
from geomatt.data.structures import Structure, as_structure
from geomatt.errors import GeomAttError
from geomatt.files import write_error

TOY = "toy_calculators:Springs"
WATER = as_structure(molecule("H2O"))
SHORT = {"calculator": TOY, "frames": 10, "walkers": 3, "stride": 4, "equilibrate": 6.0}


def short(**changes) -> SampleConfig:
    return SampleConfig(**{**SHORT, **changes})


class OneFrame(Workers):
    """Every task ends after one frame, and the run is stopped after some tasks."""

    seconds = 0.0

    def __init__(self, tasks: int = 10**9) -> None:
        self.left = tasks

    def submit(self, function, *arguments):
        if self.left == 0:
            raise KeyboardInterrupt
        self.left -= 1
        return super().submit(function, *arguments)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run without interruption."""
    return sample([WATER], short(), tmp_path_factory.mktemp("whole") / "data.npz")


def same(first: Dataset, second: Dataset) -> bool:
    return first.fingerprint() == second.fingerprint()


def test_data_set_with_its_origin(whole):
    assert len(whole.dataset) == 10
    again = read(whole.path)
    assert same(again, whole.dataset)
    made = json.loads(again.origin["made_by"])
    assert made["method"]["calculator"] == TOY
    assert made["settings"]["seed"] == 0
    assert "toy_calculators" in again.origin["theory"]
    calculator = toy_calculators.Springs()
    atoms = molecule("H2O")
    for structure in whole.dataset:  # labels belong to their positions
        atoms.positions = structure.positions
        atoms.calc = calculator
        assert atoms.get_potential_energy() == pytest.approx(structure.energy, abs=1e-12)
        np.testing.assert_allclose(atoms.get_forces(), structure.forces, atol=1e-12)
    assert not list(whole.path.parent.glob("*.parts"))
    assert json.loads(whole.path.with_suffix(".json").read_text())["frames"] == 10


@pytest.mark.parametrize("tasks", [1, 2, 7, 20])
def test_continued_run_gives_the_same_frames(whole, tmp_path, tasks):
    out = tmp_path / "data.npz"
    with pytest.raises(KeyboardInterrupt):
        sample([WATER], short(), out, workers=OneFrame(tasks))
    assert not out.exists()
    kept = [RecordLog(p).read() for p in (tmp_path / "data.npz.parts").glob("*.log")]
    done = []
    result = sample([WATER], short(), out, workers=OneFrame(), progress=done.append)
    assert same(result.dataset, whole.dataset)
    assert done[0] == max(1, sum(map(len, kept)))  # at once: the speed is that of new frames
    assert sum(done) == total_frames(short()) == 10 + 3 * 3


def test_cut_record_is_computed_again(whole, tmp_path):
    out = tmp_path / "data.npz"
    with pytest.raises(KeyboardInterrupt):
        sample([WATER], short(), out, workers=OneFrame(20))
    log = tmp_path / "data.npz.parts" / "walker-0.log"
    log.write_bytes(log.read_bytes()[:-5])
    assert same(sample([WATER], short(), out).dataset, whole.dataset)


def test_other_processes_give_the_same_frames(whole, tmp_path):
    kill = tmp_path / "kill"
    config = short(arguments={"kill": str(kill)})
    with open_workers(2) as workers:
        kill.touch()  # one of the processes dies
        result = sample([WATER], config, tmp_path / "data.npz", workers=workers)
    assert not kill.exists()
    assert same(result.dataset, whole.dataset)


def test_processes_end_with_the_one_that_started_them(tmp_path):
    """Also if that is killed and has no time to end them."""
    script = tmp_path / "starts.py"
    script.write_text(
        "import os, time\n"
        "from geomatt.data.make.workers import Processes\n"
        "if __name__ == '__main__':\n"
        "    pool = Processes(1)\n"
        "    print(pool.submit(os.getpid).result(), flush=True)\n"
        "    pool.submit(time.sleep, 600)\n"
        "    time.sleep(600)\n"
    )
    path = {"PYTHONPATH": str(Path(geomatt.__file__).parents[1])}
    with subprocess.Popen(
        [sys.executable, script], stdout=subprocess.PIPE, text=True, env={**os.environ, **path}
    ) as main:
        worker = int(main.stdout.readline())
        main.kill()
    end = time.monotonic() + 30
    while time.monotonic() < end:
        try:
            os.kill(worker, 0)
        except ProcessLookupError:
            return
        time.sleep(0.05)
    os.kill(worker, signal.SIGKILL)
    pytest.fail("the process is still there")


def test_xtb_frames_do_not_depend_on_history(tmp_path):
    hydrogen = as_structure(molecule("H2"))
    config = short(calculator="gfn1", frames=3, walkers=1, temperature=(300.0,))
    whole = sample([hydrogen], config, tmp_path / "whole.npz")
    parts = sample([hydrogen], config, tmp_path / "parts.npz", workers=OneFrame())
    assert same(whole.dataset, parts.dataset)
    assert whole.dataset.origin["theory"].startswith("GFN1-xTB (tblite ")


def test_restart_with_other_settings(tmp_path):
    out = tmp_path / "data.npz"
    with pytest.raises(KeyboardInterrupt):
        sample([WATER], short(), out, workers=OneFrame(9))
    with pytest.raises(GeomAttError, match=r"`temperature` \[500.0\], now it is \[600.0\]"):
        sample([WATER], short(temperature=(600,)), out)
    moved = replace(WATER, positions=WATER.positions + 1)
    with pytest.raises(GeomAttError, match="`molecule`"):
        sample([moved], short(), out)
    assert len(sample([WATER], short(frames=5), out).dataset) == 5  # the length may change
    with pytest.raises(GeomAttError, match="exists already"):
        sample([WATER], short(), out)


def test_a_corrected_mistake_is_not_other_settings(tmp_path):
    """Nothing was labelled, so nothing holds on to the wrong settings."""
    out = tmp_path / "data.npz"
    for wrong in ("no.such:Thing", "toy_calculators:OnlyEnergy"):
        with pytest.raises(GeomAttError, match="`calculator`"):
            sample([WATER], short(calculator=wrong), out)
    assert len(sample([WATER], short(), out).dataset) == 10


def test_temperature_is_that_of_the_thermostat(tmp_path):
    config = short(frames=400, walkers=4, stride=5, equilibrate=200, friction=0.1, temperature=(200, 600))
    result = sample([WATER], config, tmp_path / "data.npz")
    for wanted, mean in result.summary["mean_temperature_K"].items():
        assert mean == pytest.approx(float(wanted), rel=0.15)
    cold = result.dataset.energies[: len(result.dataset) // 4]  # harmonic: 3 kT/2 in three vibrations
    assert cold.mean() == pytest.approx(1.5 * 8.617e-5 * 200, rel=0.35)


def test_normal_modes(tmp_path):
    config = short(how="modes", frames=300, walkers=2, temperature=(300,))
    result = sample([WATER], config, tmp_path / "data.npz")
    assert result.dataset.energies.mean() == pytest.approx(1.5 * 8.617e-5 * 300, rel=0.15)
    with pytest.raises(GeomAttError, match="leave `relax` on"):
        sample([WATER], short(how="modes", relax=False), tmp_path / "other.npz")


def test_failures_are_repeated_and_counted(whole, tmp_path):
    result = sample([WATER], short(arguments={"fails": 3}), tmp_path / "data.npz")
    assert result.summary["repeated_calculations"] > 0
    assert result.summary["not_converged"] == 0
    assert same(result.dataset, whole.dataset)


def test_method_that_never_converges(tmp_path):
    config = short(calculator="toy_calculators:Never", relax=False)
    with pytest.raises(GeomAttError, match="do not converge") as error:
        sample([WATER], config, tmp_path / "data.npz")
    assert "10 times in a row at 500 K" in str(error.value)


def test_molecule_that_falls_apart(tmp_path):
    config = short(calculator="toy_calculators:Repulsive", relax=False, equilibrate=0, stride=40)
    with pytest.raises(GeomAttError, match=r"fell apart 10 times in a row at 500 K \(last: bond O0–H"):
        sample([WATER], config, tmp_path / "data.npz")
    slow = replace(config, stride=5, frames=60)
    with pytest.raises(GeomAttError, match="fell apart at 500 K") as error:
        sample([WATER], replace(slow, broken="stop"), tmp_path / "stop.npz")
    partial = tmp_path / "stop.partial.npz"
    assert str(partial) in str(error.value)
    assert len(read(partial)) >= 1
    result = sample([WATER], replace(slow, broken="keep"), tmp_path / "keep.npz")
    assert len(result.dataset) == 60
    assert result.summary["broken"] > 0
    result = sample([WATER], slow, tmp_path / "drop.npz")
    assert len(result.dataset) == 60
    assert result.summary["broken"] > 0
    assert not any(Bonding.of(WATER).fault(s.positions) for s in result.dataset)


def test_walker_starts_anew_after_a_break(tmp_path, monkeypatch):
    fault = Bonding.fault
    calls = []

    def sometimes(self, positions):
        calls.append(1)
        return "bond O0–H1" if len(calls) == 6 else fault(self, positions)

    monkeypatch.setattr(Bonding, "fault", sometimes)
    result = sample([WATER], short(walkers=1), tmp_path / "data.npz")
    assert len(result.dataset) == 10
    assert result.summary["broken"] == 1
    monkeypatch.undo()
    assert all(not Bonding.of(WATER).fault(s.positions) for s in result.dataset)


def test_parts_that_move_away():
    both = np.concatenate([WATER.positions, WATER.positions + np.array([3, 0, 0])])
    two = Structure(np.array([8, 1, 1] * 2), both)
    bonding = Bonding.of(two)
    assert bonding.fault(two.positions) == ""
    moved = two.positions.copy()
    moved[3:] += [5, 0, 0]
    assert "moved away" in bonding.fault(moved)


@pytest.mark.parametrize(
    ("calculator", "arguments", "message"),
    [
        ("no_such_package:Calc", {}, "cannot be imported: No module named"),
        ("toy_calculators:Missing", {}, "has no Missing"),
        ("toy_calculators:Springs", {"colour": 1}, r"`arguments` colour=1: .*unexpected keyword"),
        ("toy_calculators:not_a_calculator", {}, "gives a int, not an ASE calculator"),
        ("toy_calculators:OnlyEnergy", {}, "gives no energy or no forces"),
        ("toy_calculators:Dependent", {}, "needs the module no_such_package. Install it"),
        ("GFN2-xTB", {"no_such": 3}, "no_such is not an argument of tblite"),
    ],
)
def test_unusable_calculator(tmp_path, calculator, arguments, message):
    with pytest.raises(GeomAttError, match=message):
        sample([WATER], short(calculator=calculator, arguments=arguments), tmp_path / "data.npz")


def test_names_of_methods():
    assert Method("gfn2").calculator == Method("GFN2xTB").calculator == "GFN2-xTB"
    with pytest.raises(GeomAttError, match="Unknown `calculator` 'dft'"):
        Method("dft")
    francium = Structure(np.array([87]), np.zeros((1, 3)))
    with pytest.raises(GeomAttError, match="no parameters for Fr: it covers H to Rn"):
        probe(Method("GFN2-xTB"), francium)
    assert parse_arguments({"a": "0.1", "b": "true", "c": "small", "d": "None"}) == {
        "a": 0.1, "b": True, "c": "small", "d": None,
    }  # fmt: skip


def test_versions_of_methods():
    assert Method("ase.calculators.emt:EMT").describe()["version"] == ase.__version__
    own = Method(TOY).describe()
    digest = hashlib.sha256(Path(toy_calculators.__file__).read_bytes()).hexdigest()
    assert own["package"] == "toy_calculators"
    assert own["version"] == f"sha256 {digest[:12]}"
    yaml = Method("yaml:Calculator").describe()  # the distribution has another name
    assert yaml["package"] == "PyYAML"
    assert yaml["version"]
    assert Method("no_such_module:Calculator").describe()["version"] == ""


def test_wrong_settings():
    for changes, name in [
        ({"frames": 0}, "frames"),
        ({"temperature": (-1.0,)}, "temperature"),
        ({"timestep": 50.0}, "timestep"),
        ({"how": "magic"}, "how"),
        ({"broken": "ignore"}, "broken"),
        ({"multiplicity": 0}, "multiplicity"),
    ]:
        with pytest.raises(GeomAttError, match=f"`{name}`"):
            short(**changes)


def test_full_disk(tmp_path):
    log = RecordLog(tmp_path / "log")
    log.append([b"one"])
    log.path = type(tmp_path)("/dev/full")
    if not log.path.exists():
        pytest.skip("no /dev/full here")
    with pytest.raises(GeomAttError, match="The disk is full"):
        log.append([b"two"])
    assert RecordLog(tmp_path / "log").read() == [b"one"]


@pytest.mark.parametrize("final", [False, True])
def test_full_disk_while_working(whole, tmp_path, monkeypatch, final):
    """In the middle, or when the data is written: the message says that work is kept, and so it is."""
    append = RecordLog.append

    def full(self, records):
        if len(self.read()) >= 2:
            raise write_error(self.path, OSError(errno.ENOSPC, "No space left on device"))
        append(self, records)

    def no_file(*_, **__):
        raise write_error("data", OSError(errno.ENOSPC, "No space left on device"))

    with monkeypatch.context() as patch:
        if final:
            patch.setattr("geomatt.data.make.folder.write", no_file)
        else:
            patch.setattr(RecordLog, "append", full)
        message = r"disk is full: free some space\. Everything finished so far is kept, and the same command"
        with pytest.raises(GeomAttError, match=message):
            sample([WATER], short(), tmp_path / "data.npz", workers=OneFrame())
        with pytest.raises(GeomAttError, match=message):
            label(whole.dataset, MethodConfig(TOY), tmp_path / "more.npz", workers=OneFrame())
    done = []
    assert same(sample([WATER], short(), tmp_path / "data.npz", progress=done.append).dataset, whole.dataset)
    assert done[0] == (19 if final else 6)
    assert len(label(whole.dataset, MethodConfig(TOY), tmp_path / "more.npz").dataset) == 10


def test_molecules_from_files_and_smiles(tmp_path):
    write(
        Dataset.from_structures([WATER, replace(WATER, positions=1.02 * WATER.positions)]), tmp_path / "w.xyz"
    )
    assert len(read_molecule(str(tmp_path / "w.xyz"), charge=1)) == 2
    ethanol = read_molecule("CCO", conformers=3)
    assert len(ethanol) == 3
    assert sorted(ethanol[0].numbers) == [1] * 6 + [6, 6, 8]
    assert read_molecule("[NH4+]")[0].charge == 1
    assert read_molecule("[CH3]")[0].multiplicity == 2
    with pytest.raises(GeomAttError, match=r"'O\.O' holds 2 molecules.*Give a file"):
        read_molecule("O.O")
    for wrong in ("C(C", "notasmiles", "missing.xyz"):
        with pytest.raises(GeomAttError, match=r"neither a file nor|There is no file"):
            read_molecule(wrong)
    mixed = Dataset.from_structures([WATER, replace(WATER, numbers=np.array([8, 1, 9]))])
    write(mixed, tmp_path / "mixed.xyz")
    with pytest.raises(GeomAttError, match="different molecules"):
        read_molecule(str(tmp_path / "mixed.xyz"))
    write(Dataset.from_structures([replace(WATER, positions=0.1 * WATER.positions)]), tmp_path / "close.xyz")
    with pytest.raises(GeomAttError, match="Å apart"):
        read_molecule(str(tmp_path / "close.xyz"))


def test_label(whole, tmp_path):
    plain = Dataset.from_structures([replace(s, energy=None, forces=None, info={}) for s in whole.dataset])
    for name in ("labelled.extxyz", "labelled.npz"):
        result = label(plain, MethodConfig(TOY), tmp_path / name)
        np.testing.assert_allclose(result.dataset.energies, whole.dataset.energies, atol=1e-12)
        again = read(result.path)
        np.testing.assert_allclose(again.forces, whole.dataset.forces, atol=1e-7)


def test_label_continues_and_leaves_out_failures(whole, tmp_path):
    out = tmp_path / "labelled.extxyz"
    with pytest.raises(KeyboardInterrupt):
        label(whole.dataset, MethodConfig(TOY), out, workers=OneFrame(4))
    done = []
    assert (
        len(label(whole.dataset, MethodConfig(TOY), out, workers=OneFrame(), progress=done.append).dataset)
        == 10
    )
    assert done == [4, *[1] * 6]  # those done before come at once
    never = MethodConfig("toy_calculators:Never", {"fails": 0})
    result = label(whole.dataset, never, tmp_path / "some.extxyz")
    assert list(result.failed) == list(range(2, 10))
    assert len(result.dataset) == 2


def test_element_that_the_method_lacks(tmp_path):
    copper, silicon = (Structure(np.array([z, z]), np.array([[0.0, 0, 0], [0, 0, 2.3]])) for z in (29, 14))
    emt = "ase.calculators.emt:EMT"
    with pytest.raises(
        GeomAttError, match=r"EMT cannot compute Si2: No EMT-potential for Si\. Choose another"
    ):
        sample([silicon], short(calculator=emt), tmp_path / "data.npz")
    mixed = Dataset.from_structures([silicon, copper, silicon, copper])
    result = label(mixed, MethodConfig(emt), tmp_path / "some.npz")
    assert len(result.dataset) == 2
    assert result.failed == dict.fromkeys((0, 2), f"{emt} cannot compute Si2: No EMT-potential for Si")
    assert json.loads((tmp_path / "some.json").read_text())["failed"] == [0, 2]
    with pytest.raises(
        GeomAttError, match=r"failed for all 1 structures, at first: .*No EMT-potential for Si"
    ):
        label(mixed.select([0]), MethodConfig(emt), tmp_path / "none.npz")
    francium = Structure(np.array([87]), np.zeros((1, 3)))
    hydrogen = as_structure(molecule("H2"))
    result = label(Dataset.from_structures([francium, hydrogen]), MethodConfig(), tmp_path / "xtb.npz")
    assert list(result.failed) == [0]


def test_elements_without_a_radius_have_no_bonds():
    heavy = Structure(np.array([97]), np.zeros((1, 3)))
    assert not Bonding.of(heavy).bonds.any()
