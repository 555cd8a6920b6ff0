"""Molecules compiled ahead of time: their numbers, their files, and what is refused."""

from __future__ import annotations

import json
import shutil
import zipfile

import numpy as np
import pytest
import torch
from conftest import random_atoms, small_network
from typer.testing import CliRunner

from geomatt import Committee, GeomAttError, Potential, Structure, export_molecule, load, save
from geomatt.cli import app
from geomatt.data.batch import collate
from geomatt.model import Normalisation, compiled
from geomatt.model import export as export_module
from geomatt.model.compiled import CompiledMolecule, load_compiled, read_description
from geomatt.model.inference import Evaluator
from geomatt.model.molecule import FixedMolecule

needs_compiler = pytest.mark.skipif(export_module.find_compiler() is None, reason="needs a C++ compiler")
NUMBERS = np.array([6, 8, 1, 1])
POSITIONS = np.array([[0.0, 0.0, 0.0], [1.2, 0.0, 0.0], [-0.6, 0.94, 0.0], [-0.6, -0.94, 0.1]])
MOLECULE = Structure(NUMBERS, POSITIONS)


def potential(dtype: torch.dtype = torch.float32) -> Potential:
    sizes = {"orders": (2, 3), "layers": 1, "features": 4, "overlap_features": 4}
    network = small_network(dtype=dtype, gamma=8.0, d_max=3.0, spacing=0.25, **sizes)
    return Potential(network, Normalisation(-3000.0, 0.7), {"note": "for tests"})


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A compiled molecule's file; made once, it takes a while."""
    path = tmp_path_factory.mktemp("export") / "formaldehyde.pt2"
    export_molecule(potential(), MOLECULE, path)
    return path


def rewritten(source, target, change) -> None:
    """A copy of the file with another description."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            if name.endswith(compiled.ABOUT):
                about = json.loads(content)
                change(about)
                content = json.dumps(about).encode()
            new.writestr(name, content)


@pytest.mark.parametrize("orders", [(2,), (3,), (2, 3, 4), (5,)])
@pytest.mark.parametrize("layers", [1, 3, 8])  # eight need more than one segment of features
@pytest.mark.parametrize("bias", [True, False])
def test_the_function_to_be_compiled_agrees_with_the_network(orders, layers, bias):
    network = small_network(orders=orders, layers=layers, bias=bias)
    numbers, positions = random_atoms(7, seed=3)
    with torch.no_grad():
        atomic, forces = FixedMolecule(network, numbers)(positions)
    batch = collate([Structure(numbers.numpy(), positions.numpy())], torch.float64)
    expected = Evaluator(network, table=False)(batch, forces=True, attention=False)
    torch.testing.assert_close(atomic, expected.atomic[0], rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(forces, expected.forces[0], rtol=1e-6, atol=1e-7)


def test_atoms_far_apart_or_on_top_of_each_other():
    network = small_network()
    numbers, positions = random_atoms(4)
    positions[1], positions[2] = positions[0], positions[0] + 50.0
    with torch.no_grad():
        atomic, forces = FixedMolecule(network, numbers)(positions)
    batch = collate([Structure(numbers.numpy(), positions.numpy())], torch.float64)
    expected = Evaluator(network, table=False)(batch, forces=True, attention=False)
    torch.testing.assert_close(atomic, expected.atomic[0], rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(forces, expected.forces[0], rtol=1e-6, atol=1e-7)


@needs_compiler
def test_compiled_code_agrees_with_the_model(made):
    molecule = load_compiled(made)
    assert molecule.deviation < 1e-4
    moved = Structure(NUMBERS, POSITIONS + 0.1 * np.random.default_rng(1).standard_normal((4, 3)))
    expected = potential().to(dtype="float64").predict([moved])[0]
    found = molecule(collate([moved], torch.float32))
    np.testing.assert_allclose(0.7 * found.forces[0].numpy(), expected.forces, atol=1e-5)
    assert molecule(collate([moved], torch.float32), forces=False).forces is None
    with pytest.raises(GeomAttError, match="no attention"):
        molecule(collate([moved], torch.float32), attention=True)


@needs_compiler
def test_calculator(made):
    ase = pytest.importorskip("ase")
    from geomatt import GeomAttCalculator

    atoms = ase.Atoms(NUMBERS, POSITIONS + 5.0)
    atoms.calc = GeomAttCalculator(made)
    for _ in range(2):
        expected = potential().to(dtype="float64").predict([Structure(NUMBERS, atoms.positions)])[0]
        assert atoms.get_potential_energy() == pytest.approx(expected.energy, abs=1e-5)
        np.testing.assert_allclose(atoms.get_forces(), expected.forces, atol=1e-5)
        np.testing.assert_allclose(atoms.get_potential_energies(), expected.atomic_energies, atol=1e-5)
        atoms.rattle(0.05, seed=1)
    assert atoms.calc.energy_spread is None
    other = ase.Atoms(NUMBERS, POSITIONS, calculator=GeomAttCalculator(load_compiled(made), dtype="float32"))
    other.get_forces()
    for wrong, message in (
        (ase.Atoms("CO", POSITIONS[:2]), "is CO, but .* was compiled for CH2O"),
        (ase.Atoms(NUMBERS[::-1], POSITIONS), "another order"),
        (ase.Atoms("CNH2", POSITIONS), "not trained on"),
    ):
        wrong.calc = GeomAttCalculator(made)
        with pytest.raises(GeomAttError, match=message):
            wrong.get_forces()
    atoms.pbc = True
    with pytest.raises(GeomAttError, match="pbc to False"):
        atoms.get_forces()
    with pytest.raises(GeomAttError, match=r"float32.*--dtype float64"):
        GeomAttCalculator(made, dtype="float64")
    with pytest.raises(GeomAttError, match="device cpu"):
        GeomAttCalculator(made, device="cuda")


@needs_compiler
def test_files_carry_the_model(made):
    description = read_description(made)
    original = potential()
    assert description.potential.record == original.record
    assert description.potential.normalisation == original.normalisation
    assert description.potential.network.config == original.network.config
    for name, value in original.network.state_dict().items():
        assert torch.equal(description.potential.network.state_dict()[name], value)
    np.testing.assert_array_equal(description.numbers, NUMBERS)
    with pytest.raises(GeomAttError, match="GeomAttCalculator"):
        load(made)


@needs_compiler
def test_info(made):
    text = CliRunner().invoke(app, ["info", str(made)]).output
    assert "CH2O, 4 atoms" in text
    assert "for tests" in text
    found = json.loads(CliRunner().invoke(app, ["info", str(made), "--json"]).output)
    assert found["compiled"]["numbers"] == NUMBERS.tolist()
    assert found["units"] == {"energy": "eV", "length": "Ang"}


@needs_compiler
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a: a.update(torch="1.0.0"), "made with torch 1.0.0.*again"),
        (lambda a: a["processor"].update(machine="vax"), "another processor .vax.*again"),
        (lambda a: a["processor"]["flags"].append("abacus"), "another processor.*no abacus.*again"),
        (lambda a: a.update(format=99), "format 99.*Upgrade"),
        (lambda a: a.pop("numbers"), "damaged"),
        (lambda a: a.update(positions=[[0, 0, 0]]), "damaged"),
    ],
)
def test_files_from_elsewhere(made, tmp_path, change, message):
    rewritten(made, tmp_path / "x.pt2", change)
    with pytest.raises(GeomAttError, match=message):
        load_compiled(tmp_path / "x.pt2")


@needs_compiler
def test_broken_files(made, tmp_path):
    target = tmp_path / "x.pt2"
    content = made.read_bytes()
    for damaged in (content[: len(content) // 2], content[:100], b""):
        target.write_bytes(damaged)
        with pytest.raises(GeomAttError, match="damaged or was cut short"):
            load_compiled(target)
    middle = len(content) // 2
    target.write_bytes(content[:middle] + bytes(64) + content[middle + 64 :])
    with pytest.raises(GeomAttError, match="damaged or was cut short"):
        load_compiled(target)
    with zipfile.ZipFile(target, "w") as archive:
        archive.writestr("some/thing", "else")
    with pytest.raises(GeomAttError, match="not written by geomatt"):
        load_compiled(target)
    with pytest.raises(GeomAttError, match="There is no file"):
        load_compiled(tmp_path / "none.pt2")
    shutil.copy(made, target)
    without = tmp_path / "y.pt2"
    with zipfile.ZipFile(target) as old, zipfile.ZipFile(without, "w") as new:
        for name in old.namelist():
            if not name.endswith(".so"):
                new.writestr(name, old.read(name))
    with pytest.raises(GeomAttError, match=r"does not run here.*again"):
        load_compiled(without)


@needs_compiler
def test_code_that_disagrees_with_its_weights_is_refused(made):
    description = read_description(made)
    with torch.no_grad():
        description.potential.network.embedding.mul_(1.01)
    with pytest.raises(GeomAttError, match=r"differs from the weights.*do not use it"):
        CompiledMolecule(description, made)


def test_refusals_before_compiling(tmp_path, monkeypatch):
    path = tmp_path / "x.pt2"
    many = Structure(np.full(200, 6), np.random.default_rng(0).uniform(0, 20, (200, 3)))
    for structure, name, message in (
        (MOLECULE, tmp_path / "x.so", r"end in .pt2"),
        (MOLECULE, tmp_path / "none" / "x.pt2", "no directory"),
        (Structure(np.array([7, 1]), POSITIONS[:2]), path, "not trained on"),
        (Structure(NUMBERS[:1], POSITIONS[:1]), path, "single atom"),
        (many, path, "too many.*model file"),
    ):
        with pytest.raises(GeomAttError, match=message):
            export_molecule(potential(), structure, name)
    periodic = Potential(small_network(bias=False), Normalisation())
    with pytest.raises(GeomAttError, match="Periodic"):
        export_molecule(periodic, Structure(NUMBERS, POSITIONS, cell=np.eye(3) * 9, pbc=(True,) * 3), path)
    with pytest.raises(GeomAttError, match="member"):
        export_molecule(Committee([potential()]), MOLECULE, path)
    monkeypatch.setattr(export_module, "find_compiler", lambda: None)
    with pytest.raises(GeomAttError, match=r"C\+\+ compiler.*CXX"):
        export_molecule(potential(), MOLECULE, path)
    assert not path.exists()


@needs_compiler
def test_command(tmp_path, monkeypatch, made):
    save(potential(), tmp_path / "m.safetensors")
    rows = "\n".join(f"{s} {x} {y} {z}" for s, (x, y, z) in zip("COHH", POSITIONS, strict=True))
    (tmp_path / "a.xyz").write_text(f"4\n\n{rows}\n")
    arguments = ["export", str(tmp_path / "m.safetensors"), str(tmp_path / "a.xyz"), "-o"]
    # What compiling gives is tested above; here the file made there stands in.
    monkeypatch.setattr(export_module, "_compile", lambda program, package: shutil.copy(made, package))
    monkeypatch.setattr(export_module, "_with_entries", lambda package, entries: package)
    result = CliRunner().invoke(app, [*arguments, str(tmp_path / "a.pt2")])
    assert result.exit_code == 0, result.output
    assert "times faster" in result.output
    assert "GeomAttCalculator" in result.output
    wrong = CliRunner().invoke(app, [*arguments, str(tmp_path / "a.pt2"), "--frame", "3"])
    assert isinstance(wrong.exception, GeomAttError)
