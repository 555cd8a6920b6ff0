"""Readers and writers: formats, units, names of quantities, invalid files."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import ase
import ase.db
import ase.io
import numpy as np
import pytest
from ase.calculators.singlepoint import SinglePointCalculator
from hypothesis import given, settings
from hypothesis import strategies as st

from geomatt import units
from geomatt.data import Dataset, Structure, read, report_unit, write
from geomatt.errors import GeomAttError

KCAL = units.ENERGY_IN_EV["kcal/mol"]
BOHR = units.LENGTH_IN_ANGSTROM["Bohr"]
Z = np.array([8, 1, 1])


def frames(n: int = 4, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {
        "z": Z,
        "R": rng.normal(size=(n, 3, 3)),
        "E": rng.normal(size=n) - 47000,
        "F": rng.normal(size=(n, 3, 3)),
    }


def sgdml(path: Path, **changes: Any) -> Path:
    arrays = {**frames(), "e_unit": "kcal/mol", "r_unit": "Ang", "name": "water", "theory": "none", **changes}
    np.savez(path, **{k: v for k, v in arrays.items() if v is not None})
    return path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "data.npz"


def fails(path: Path, *words: str, **options: Any) -> str:
    with pytest.raises(GeomAttError) as caught:
        read(path, **options)
    for word in words:
        assert word in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("column", [False, True])
@pytest.mark.parametrize("as_bytes", [False, True])
def test_sgdml(file: Path, column: bool, as_bytes: bool) -> None:
    data = frames()
    text: Any = (lambda s: np.bytes_(s)) if as_bytes else str
    sgdml(file, E=data["E"][:, None] if column else data["E"], e_unit=text("kcal/mol"), name=text("water"))
    dataset = read(file)
    assert len(dataset) == 4
    assert dataset.energies == pytest.approx(data["E"] * KCAL, rel=1e-15)
    assert dataset.forces is not None
    assert np.allclose(dataset.forces.reshape(4, 3, 3), data["F"] * KCAL, rtol=1e-14)
    assert dataset.numbers.tolist() == [8, 1, 1] * 4
    assert dataset.origin == {
        "path": str(file),
        "format": "sGDML npz",
        "energy_unit": "kcal/mol",
        "length_unit": "Ang",
        "units_known": "read from the file",
        "theory": "none",
        "name": "water",
    }
    assert report_unit(dataset) == "kcal/mol"


def test_rmd17_is_recognised_by_its_keys(file: Path) -> None:
    data = frames()
    arrays = {"coords": data["R"], "energies": data["E"], "forces": data["F"], "nuclear_charges": Z}
    np.savez(file, **arrays, old_indices=np.arange(4), old_energies=data["E"], old_forces=data["F"])
    dataset = read(file)
    assert dataset.origin["format"] == "rMD17 npz"
    assert "recognised" in dataset.origin["units_known"]
    assert dataset.energies == pytest.approx(data["E"] * KCAL)
    # Without the keys that only rMD17 has, the unit is not known.
    np.savez(file, **arrays)
    fails(file, "`energy_unit` kcal/mol `length_unit` Ang")


def test_given_units(file: Path) -> None:
    data = frames()
    sgdml(file, e_unit=None, r_unit=None)
    fails(file, "never guessed", "`energy_unit` kcal/mol `length_unit` Ang")
    fails(file, "length unit", energy_unit="eV")
    dataset = read(file, energy_unit="hartree", length_unit="bohr")
    assert np.allclose(dataset.positions, data["R"].reshape(-1, 3) * BOHR)
    assert dataset.forces is not None
    assert np.allclose(dataset.forces, data["F"].reshape(-1, 3) * 27.211386245988 / BOHR)
    assert dataset.origin["units_known"] == "given"
    fails(file, "Unknown energy unit", energy_unit="furlong")


def test_given_unit_overrides_the_file(file: Path) -> None:
    dataset = read(sgdml(file), energy_unit="eV")
    assert dataset.energies == pytest.approx(frames()["E"])
    assert "in place of energy unit 'kcal/mol'" in dataset.origin["units_known"]


def test_force_unit(file: Path, tmp_path: Path) -> None:
    data = frames()
    dataset = read(sgdml(file), force_unit="hartree/bohr")
    assert dataset.forces is not None
    assert np.allclose(dataset.forces, data["F"].reshape(-1, 3) * 27.211386245988 / BOHR)
    assert dataset.energies == pytest.approx(data["E"] * KCAL)
    assert dataset.origin["force_unit"] == "Hartree/Bohr"
    assert units.force_factor("kcal/mol/Ang") == pytest.approx(KCAL)
    assert units.force_factor("eV/Å") == 1.0
    for wrong in ("kcal/mol", "eV", "furlong/Ang", ""):
        fails(file, "Unknown force unit", "kcal/mol/Ang", force_unit=wrong)
    sgdml(file, E=None, e_unit=None)  # no energy unit is needed now
    fails(file, "energy unit")
    assert np.array_equal(read(file, force_unit="Hartree/Bohr").forces, dataset.forces)  # type: ignore[arg-type]
    xyz = tmp_path / "data.extxyz"
    write(dataset, xyz)
    again = read(xyz, force_unit="kcal/mol/Ang").forces
    assert again is not None
    assert np.allclose(again, dataset.forces * KCAL, atol=1e-7)


def test_mapped_keys(file: Path) -> None:
    data = frames()
    np.savez(file, a=Z, b=data["R"], c=data["E"], d=data["F"])
    options = {"energy_unit": "eV", "length_unit": "Ang"}
    message = fails(file, "no numbers", "`keys` numbers=NAME", **options)
    assert "b float64[4, 3, 3]" in message
    keys = {"numbers": "a", "positions": "b"}
    fails(file, "'c' could be it", "`keys` energy=c", keys=keys, **options)
    fails(file, "'d' could be it", keys={**keys, "energy": "c"}, **options)
    dataset = read(file, keys={**keys, "energy": "c", "forces": "d"}, **options)
    assert dataset.energies == pytest.approx(data["E"])
    left_out = read(file, keys={**keys, "energy": "c", "forces": "none"}, **options)
    assert left_out.forces is None
    assert "no forces" in left_out.origin["notes"]
    fails(file, "no array 'q'", keys={"energy": "q"})
    fails(file, "not a quantity that `keys` can map", keys={"colour": "a"})
    fails(file, "cannot be left out", keys={"positions": "none"})


def test_two_candidates_for_one_quantity(file: Path) -> None:
    fails(sgdml(file, energies=frames()["E"] + 1), "'E' and 'energies'", "`keys` energy=E")


def test_missing_labels_are_noted(file: Path) -> None:
    dataset = read(sgdml(file, F=None))
    assert dataset.forces is None
    assert dataset.origin["notes"] == "The file has no forces."
    dataset = read(sgdml(file, F=None, E=None, e_unit=None))
    assert dataset.energies is None
    assert dataset.origin["notes"] == "The file has no energies and no forces."


def test_numbers_per_frame_and_one_frame(file: Path) -> None:
    numbers = np.array([[8, 1, 1], [1, 8, 1], [1, 1, 8], [8, 1, 1]])
    assert read(sgdml(file, z=numbers)).numbers.tolist() == numbers.reshape(-1).tolist()
    data = frames(1)
    assert len(read(sgdml(file, R=data["R"][0], E=data["E"][0], F=data["F"][0]))) == 1


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"R": np.zeros((4, 3))}, ["4 atoms in 1 frames"]),
        ({"R": np.zeros((4, 3, 2))}, ["(4, 3, 2)", "(frames, atoms, 3)"]),
        ({"R": np.zeros((0, 3, 3))}, ["no frames", "(0, 3, 3)"]),
        ({"R": np.zeros((4, 9))}, ["shape (4, 9);", "(frames, atoms, 3)"]),
        ({"F": np.zeros((4, 9))}, ["shape (4, 9) but positions have (4, 3, 3)"]),
        ({"E": np.zeros(5)}, ["(5,)", "4 frames"]),
        ({"E": np.zeros((1, 4))}, ["(1, 4)"]),
        ({"F": np.zeros((4, 2, 3))}, ["(4, 2, 3)"]),
        ({"z": np.array([8, 1])}, ["(2,)", "3 atoms"]),
        ({"z": np.array([8, -1, 1])}, ["-1", "1 to 118"]),
        ({"z": np.array([8, 119, 1])}, ["119"]),
        ({"z": np.array([8, 1, 0])}, ["padding"]),
        ({"z": np.array([8.0, 1.5, 1])}, ["integers"]),
        ({"z": np.array(["O", "H", "H"])}, ["not real numbers"]),
        ({"E": np.array([0, np.nan, 0, 0])}, ["energies", "NaN", "frame 1"]),
        ({"F": np.full((4, 3, 3), np.inf)}, ["forces", "4 frame"]),
        ({"R": np.full((4, 3, 3), np.nan)}, ["positions", "NaN"]),
        ({"e_unit": "cal"}, ["Unknown energy unit 'cal'"]),
        ({"E": np.array([None, 1, 2, 3], dtype=object)}, ["'E'", "never unpickled"]),
        ({"R": np.array([np.zeros((3, 3)), np.zeros((2, 3))], dtype=object)}, ["'R'", "extxyz"]),
    ],
)
def test_bad_npz(file: Path, changes: dict[str, Any], words: list[str]) -> None:
    fails(sgdml(file, **changes), str(file), *words)


def test_nothing_is_unpickled(file: Path, tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> Any:
            return (os.mkdir, (str(tmp_path / "owned"),))

    fails(sgdml(file, extra=np.array([Evil()], dtype=object)), "never unpickled")
    assert not (tmp_path / "owned").exists()


@settings(max_examples=30, deadline=None)
@given(cut=st.floats(0, 0.999), flip=st.integers(0, 10**6))
def test_truncated_and_damaged_npz(tmp_path_factory: pytest.TempPathFactory, cut: float, flip: int) -> None:
    path = sgdml(tmp_path_factory.mktemp("npz") / "data.npz")
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * cut)])
    with pytest.raises(GeomAttError):
        read(path)
    changed = bytearray(whole)
    changed[flip % len(whole)] ^= 0xFF
    path.write_bytes(changed)
    try:  # a byte of a zip file without meaning: the content must be unchanged
        dataset = read(path)
    except GeomAttError:
        return
    assert len(dataset) == 4


def test_missing_empty_and_unknown_files(tmp_path: Path) -> None:
    fails(tmp_path / "absent.npz", "There is no file")
    fails(tmp_path, "is a directory")
    for name in ("empty.npz", "empty.xyz"):
        (tmp_path / name).touch()
        fails(tmp_path / name, "is empty")
    (tmp_path / "text.npz").write_text("hello")
    fails(tmp_path / "text.npz", "is not an npz file")
    (tmp_path / "what.ever").write_bytes(b"\x00\x01\x02 nothing")
    fails(tmp_path / "what.ever", "unknown kind of file")


def atoms(label: bool = True, n: int = 3, **info: Any) -> ase.Atoms:
    rng = np.random.default_rng(n)
    result = ase.Atoms("OH2"[: 2 if n == 2 else 3], rng.normal(size=(n, 3)))
    if label:
        result.calc = SinglePointCalculator(result, energy=-2081.123456789012, forces=rng.normal(size=(n, 3)))
    result.info.update(info)
    return result


def test_extxyz_of_mixed_molecules(tmp_path: Path) -> None:
    path = tmp_path / "mix.extxyz"
    images = [atoms(charge=1, tag="a"), atoms(n=2, tag="b")]
    ase.io.write(path, images)
    dataset = read(path)
    assert dataset.sizes.tolist() == [3, 2]
    assert dataset.energies is not None
    assert dataset.energies[0] == -2081.123456789012
    assert dataset[0].charge == 1
    assert dataset[1].info == {"tag": "b"}
    assert report_unit(dataset) == "eV"
    assert "ASE's convention" in dataset.origin["units_known"]
    other = read(path, energy_unit="kcal/mol")
    assert other.energies == pytest.approx(dataset.energies * KCAL)
    assert other.origin["units_known"].startswith("energy given")


def test_extxyz_with_other_names(tmp_path: Path) -> None:
    path = tmp_path / "ref.xyz"
    image = atoms(label=False, REF_energy=-1.5)
    image.arrays["REF_forces"] = np.ones((3, 3))
    ase.io.write(path, image, format="extxyz")
    fails(path, "'REF_energy' could be it", "`keys` energy=REF_energy")
    dataset = read(path, keys={"energy": "REF_energy", "forces": "REF_forces"})
    assert dataset.energies is not None
    assert dataset.energies[0] == -1.5
    assert dataset.forces is not None
    assert (dataset.forces == 1).all()
    assert read(path, keys={"energy": "none", "forces": "none"}).energies is None
    fails(path, "no 'nope'", "REF_energy", keys={"energy": "nope"})
    fails(path, "should contain the energy", keys={"energy": "REF_forces"})


def test_plain_xyz_has_no_labels(tmp_path: Path) -> None:
    path = tmp_path / "plain.xyz"
    path.write_text("2\n\nO 0 0 0\nH 0 0 1\n")
    dataset = read(path)
    assert dataset.energies is None
    assert dataset.origin["notes"] == "The file has no energies and no forces."


def test_bad_extxyz(tmp_path: Path) -> None:
    path = tmp_path / "bad.xyz"
    ase.io.write(path, [atoms(), atoms()], format="extxyz")
    text = path.read_text()
    path.write_text(text[: int(len(text) * 0.8)])
    fails(path, "after 1 complete structure(s)")
    ase.io.write(path, [atoms(), atoms(label=False)], format="extxyz")
    fails(path, str(path), "1 of 2 structures have no energy")
    path.write_text(text.replace("-2081.123456789012", "nan", 1))
    fails(path, "energies", "frame 0")
    path.write_text("2\n\nQq 0 0 0\nH 0 0 1\n")
    fails(path, "could not be read")


def test_ase_database_and_trajectory(tmp_path: Path) -> None:
    with ase.db.connect(tmp_path / "rows.db") as database:
        database.write(atoms(), my_energy=-3.0)
        database.write(atoms(n=2), my_energy=-4.0)
    dataset = read(tmp_path / "rows.db")
    assert dataset.sizes.tolist() == [3, 2]
    assert dataset.forces is not None
    mapped = read(tmp_path / "rows.db", keys={"energy": "my_energy"})
    assert mapped.energies is not None
    assert mapped.energies.tolist() == [-3, -4]
    ase.io.write(tmp_path / "md.traj", [atoms(), atoms()])
    assert read(tmp_path / "md.traj").origin["format"] == "traj"


def test_periodic_cells(tmp_path: Path) -> None:
    image = atoms()
    image.cell, image.pbc = np.eye(3) * 10, (True, False, True)
    ase.io.write(tmp_path / "cell.xyz", image, format="extxyz")
    structure = read(tmp_path / "cell.xyz", length_unit="Bohr")[0]
    assert structure.cell == pytest.approx(np.eye(3) * 10 * BOHR)
    assert structure.pbc == (True, False, True)
    write(read(tmp_path / "cell.xyz"), tmp_path / "again.xyz")
    assert read(tmp_path / "again.xyz")[0].pbc == (True, False, True)
    with pytest.raises(GeomAttError, match="periodic"):
        write(read(tmp_path / "cell.xyz"), tmp_path / "no.npz")


def test_forces_on_constrained_atoms(tmp_path: Path) -> None:
    from ase.constraints import FixAtoms

    image = atoms()
    image.set_constraint(FixAtoms([0]))
    ase.io.write(tmp_path / "fixed.traj", image)
    forces = read(tmp_path / "fixed.traj")[0].forces
    assert forces is not None
    assert forces[0].any()


def test_without_ase(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    for name in [m for m in sys.modules if m == "ase" or m.startswith("ase.")]:
        monkeypatch.setitem(sys.modules, name, None)
    (tmp_path / "a.xyz").write_text("1\n\nH 0 0 0\n")
    assert len(read(tmp_path / "a.xyz")) == 1
    (tmp_path / "a.traj").write_bytes(b"- of UlmASE-Trajectory")
    fails(tmp_path / "a.traj", "pip install ase")
    assert len(read(sgdml(file))) == 4


@settings(max_examples=20, deadline=None)
@given(n=st.integers(1, 5), seed=st.integers(0, 1000), unit=st.sampled_from(sorted(units.ENERGY_IN_EV)))
def test_npz_round_trip(tmp_path_factory: pytest.TempPathFactory, n: int, seed: int, unit: str) -> None:
    data = frames(n, seed)
    dataset = Dataset.from_frames(Z, data["R"], data["E"], data["F"], name="water")
    path = tmp_path_factory.mktemp("write") / "out.npz"
    write(dataset, path, energy_unit=unit)
    again = read(path)
    assert again.origin["energy_unit"] == unit
    assert np.array_equal(again.positions, dataset.positions)
    assert again.energies == pytest.approx(dataset.energies, rel=1e-15)
    assert np.allclose(again.forces, dataset.forces, rtol=1e-14)  # type: ignore[arg-type]


def test_extxyz_round_trip(tmp_path: Path) -> None:
    items = [
        Structure(
            Z, np.random.default_rng(0).normal(size=(3, 3)), -2081.1234567890123, np.ones((3, 3)), charge=-1.0
        ),
        Structure(np.array([1]), np.zeros((1, 3)), -13.6, np.zeros((1, 3)), info={"note": "atom"}),
    ]
    write(Dataset.from_structures(items), tmp_path / "out.extxyz")
    again = read(tmp_path / "out.extxyz")
    assert again.energies is not None
    assert again.energies.tolist() == [-2081.1234567890123, -13.6]
    assert np.allclose(again.positions[:3], items[0].positions, atol=1e-8)
    assert again[0].charge == -1
    assert again[1].info == {"note": "atom"}
    with pytest.raises(GeomAttError, match="these structures differ"):
        write(again, tmp_path / "out.npz")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out.extxyz"]


def test_unwritable(tmp_path: Path, file: Path) -> None:
    dataset = read(sgdml(file))
    for target, word in (
        (tmp_path, "directory"),
        (tmp_path / "no" / "x.npz", "no directory"),
        (tmp_path / "x.pdf", "must end in"),
    ):
        with pytest.raises(GeomAttError, match=word):
            write(dataset, target)
    with pytest.raises(GeomAttError, match="in eV"):
        write(dataset, tmp_path / "x.xyz", energy_unit="kcal/mol")


def test_interrupted_write_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = sgdml(tmp_path / "old.npz")
    before = target.read_bytes()
    dataset = read(target)

    def full(stream: Any, **arrays: Any) -> None:
        stream.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez_compressed", full)
    with pytest.raises(GeomAttError, match="No space left"):
        write(dataset, target)
    assert target.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["old.npz"]


def test_public_files(real_data: Path) -> None:
    for path in sorted(real_data.glob("*md17/*.npz")):
        dataset = read(path)
        assert len(dataset) == 5902
        assert dataset.origin["energy_unit"] == "kcal/mol"
    assert read(real_data / "structures" / "cg.xyz").energies is not None
