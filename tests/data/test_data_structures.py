"""Data sets: missing labels, charges, stress, weights, concatenation, fingerprints."""

from __future__ import annotations

from pathlib import Path

import ase
import ase.io
import numpy as np
import pytest
from ase.calculators.singlepoint import SinglePointCalculator

from geomatt.data import Dataset, Structure, concatenate, ethanol, read, write
from geomatt.data.public.embedded import dimer
from geomatt.data.splits import split_in_order
from geomatt.data.structures import as_structure
from geomatt.errors import GeomAttError

GPA = 0.006241509125883258  # eV/Å³


def molecule(seed: int = 0, **fields: object) -> Structure:
    rng = np.random.default_rng(seed)
    return Structure(np.array([8, 1, 1]), rng.normal(size=(3, 3)), **{"energy": float(seed), **fields})  # type: ignore[arg-type]


def crystal() -> ase.Atoms:
    atoms = ase.Atoms("NaCl", [[0, 0, 0], [2.8, 0, 0]], cell=np.eye(3) * 5.6, pbc=True)
    stress = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]) * GPA
    atoms.calc = SinglePointCalculator(atoms, energy=-7.0, forces=np.ones((2, 3)), stress=stress)
    return atoms


def test_missing_forces_and_stress() -> None:
    forces, stress = np.ones((3, 3)), np.eye(3)
    dataset = Dataset.from_structures([molecule(0), molecule(1, forces=forces, stress=stress), molecule(2)])
    assert dataset.has_forces.tolist() == dataset.has_stress.tolist() == [False, True, False]
    assert dataset[0].forces is None
    assert dataset[0].stress is None
    assert np.array_equal(dataset[1].forces, forces)
    assert np.array_equal(dataset[1].stress, stress)
    assert dataset.select([2, 1]).has_forces.tolist() == [False, True]
    with pytest.raises(GeomAttError, match="1 of 2 structures have no energy"):
        Dataset.from_structures([molecule(0), molecule(1, energy=None)])
    unlabelled = Dataset.from_structures([molecule(0, energy=None)])
    assert unlabelled.energies is None
    assert not unlabelled.has_forces.any()


def test_files_with_and_without_forces(tmp_path: Path) -> None:
    dataset = Dataset.from_structures([molecule(0), molecule(1, forces=np.ones((3, 3)))])
    write(dataset, tmp_path / "a.xyz")
    again = read(tmp_path / "a.xyz")
    assert again.has_forces.tolist() == [False, True]
    assert again.origin["notes"] == "1 of 2 structures have no forces."
    with pytest.raises(GeomAttError, match="forces of only some"):
        write(dataset, tmp_path / "a.npz")


@pytest.mark.parametrize("suffix", ["xyz", "traj", "db", "json"])
def test_stress_is_read(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.{suffix}"
    ase.io.write(path, crystal(), **({"format": "extxyz"} if suffix == "xyz" else {}))
    dataset = read(path)
    expected = np.array([[1, 6, 5], [6, 2, 4], [5, 4, 3]]) * GPA
    assert np.allclose(dataset[0].stress, expected, rtol=1e-12)
    bohr = read(path, energy_unit="Hartree", length_unit="Bohr")
    assert np.allclose(bohr[0].stress, expected * 27.211386245988 / 0.529177210903**3)
    assert read(path, keys={"stress": "none"}).stress is None
    assert not np.array_equal(read(path, keys={"stress": "none"}).fingerprint(), dataset.fingerprint())


def test_stress_of_a_molecule_is_not_used(tmp_path: Path) -> None:
    atoms = crystal()
    atoms.pbc = (True, True, False)
    ase.io.write(tmp_path / "a.xyz", atoms, format="extxyz")
    dataset = read(tmp_path / "a.xyz")
    assert dataset.stress is None
    assert "periodic in three directions" in dataset.origin["notes"]


def ion(**arrays: object) -> ase.Atoms:
    atoms = ase.Atoms("OH", [[0, 0, 0], [0, 0, 1]], **arrays)
    atoms.calc = SinglePointCalculator(atoms, energy=-1.0)
    return atoms


@pytest.mark.parametrize("suffix", ["xyz", "traj", "db"])
def test_initial_charges_and_moments(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.{suffix}"
    options = {"format": "extxyz"} if suffix == "xyz" else {}
    ase.io.write(path, ion(charges=[-0.8, -0.2], magmoms=[2.0, 0.0]), **options)
    dataset = read(path)
    assert (dataset[0].charge, dataset[0].multiplicity) == (-1.0, 3)
    assert "sums of `initial_charges`" in dataset.origin["notes"]
    assert "`initial_magmoms`" in dataset.origin["notes"]
    ignored = read(path, keys={"charge": "none", "multiplicity": "none"})
    assert (ignored[0].charge, ignored[0].multiplicity) == (0.0, None)
    assert "notes" not in ignored.origin or "initial" not in ignored.origin["notes"]
    assert len({dataset.fingerprint(), ignored.fingerprint()}) == 2
    atoms = ion(charges=[-0.4, 0.0])
    ase.io.write(path, atoms, **options) if suffix != "db" else ase.io.write(path, atoms, append=False)
    assert "do not add up to an integer" in read(path).origin["notes"]


def test_charge_and_multiplicity_by_name(tmp_path: Path) -> None:
    path = tmp_path / "a.xyz"
    atoms = ion()
    atoms.info.update(charge=-1, spin_multiplicity=2, config_weight=0.1)
    ase.io.write(path, atoms, format="extxyz")
    dataset = read(path)
    assert (dataset[0].charge, dataset[0].multiplicity, dataset[0].weight) == (-1.0, 2, 1.0)
    assert "`keys` weight=config_weight" in dataset.origin["notes"]
    assert read(path, keys={"weight": "config_weight"})[0].weight == 0.1
    atoms.info = {"q": 2, "spin": 1}
    ase.io.write(path, atoms, format="extxyz")
    dataset = read(path, keys={"charge": "q"})
    assert (dataset[0].charge, dataset[0].multiplicity) == (2.0, None)
    assert "`keys` multiplicity=spin" in dataset.origin["notes"]
    assert read(path, keys={"multiplicity": "spin"})[0].multiplicity == 1
    with pytest.raises(GeomAttError, match="no 'w' in a structure"):
        read(path, keys={"weight": "w"})
    for value, word in ((-1.0, "weight"), (np.array([1.0, 2.0]), "weight")):
        atoms.info = {"w": value}
        ase.io.write(path, atoms, format="extxyz")
        with pytest.raises(GeomAttError, match=word):
            read(path, keys={"weight": "w"})


def test_atoms_as_structure() -> None:
    structure = as_structure(ion(charges=[-1.0, 0.0], magmoms=[0.0, 1.0]))
    assert (structure.charge, structure.multiplicity) == (-1.0, 2)
    atoms = ion()
    atoms.info["charge"] = 1
    assert as_structure(atoms).charge == 1.0
    assert as_structure(ion()).multiplicity is None


def test_npz_with_charges(tmp_path: Path) -> None:
    base = Dataset.from_structures([molecule(0), molecule(1)])
    charged = Dataset.from_structures(
        [molecule(0, charge=1.0, multiplicity=2, weight=0.5), molecule(1, multiplicity=2)]
    )
    write(charged, tmp_path / "a.npz", energy_unit="eV")
    again = read(tmp_path / "a.npz", keys={"weight": "weight"})
    assert again.fingerprint() == charged.fingerprint()
    assert again[1].multiplicity == 2
    np.savez(tmp_path / "b.npz", z=[8, 1, 1], R=base.positions.reshape(2, 3, 3), charge=0.0)
    assert read(tmp_path / "b.npz", length_unit="Ang").charges is None
    for wrong, word in (({"charge": [1.0] * 3}, "one per frame"), ({"multiplicity": 1.5}, "multiplicity")):
        np.savez(tmp_path / "b.npz", z=[8, 1, 1], R=base.positions.reshape(2, 3, 3), **wrong)
        with pytest.raises(GeomAttError, match=word):
            read(tmp_path / "b.npz", length_unit="Ang")


def test_concatenate(tmp_path: Path) -> None:
    first = Dataset.from_structures(
        [molecule(0, forces=np.ones((3, 3)))],
        name="a",
        origin={"path": "/x/a.npz", "energy_unit": "kcal/mol"},
    )
    second = Dataset.from_structures(
        [molecule(1, charge=1.0, weight=0.1), molecule(2, info={"k": 1}, multiplicity=2)],
        name="b",
        origin={"path": "/x/b.xyz", "energy_unit": "eV", "notes": "The file has no forces."},
    )
    both = concatenate([first, second])
    assert len(both) == 3
    assert both.energies is not None
    assert both.energies.tolist() == [0, 1, 2]
    assert both.has_forces.tolist() == [True, False, False]
    assert [s.charge for s in both] == [0, 1, 0]
    assert [s.weight for s in both] == [1, 0.1, 1]
    assert [s.multiplicity for s in both] == [None, None, 2]
    assert [s.info for s in both] == [{}, {}, {"k": 1}]
    assert both.name == "a + b"
    assert both.provenance["path"] == "a.npz + b.xyz"
    assert both.origin["energy_unit"] == "eV"
    for i, structure in enumerate([*first, *second]):
        assert np.array_equal(both[i].positions, structure.positions)
    assert concatenate([first]) is first
    assert (
        both.select([0]).fingerprint() != first.fingerprint()
    )  # forces of the others are missing, not absent
    with pytest.raises(GeomAttError, match=r"without energies \(b\)"):
        concatenate([first, Dataset.from_structures([molecule(1, energy=None)], name="b")])
    with pytest.raises(GeomAttError, match="no data sets"):
        concatenate([])


def test_split_of_concatenated_files() -> None:
    split = split_in_order(3, 2, 1)
    assert (split.train.tolist(), split.validation.tolist(), split.test.tolist()) == ([0, 1, 2], [3, 4], [5])
    assert split.kind == "files"


def test_fingerprints_of_released_versions() -> None:
    """Runs are resumed by them, so they must never change."""
    assert ethanol().fingerprint().startswith("1dd353cad5b60af9b48a")
    assert dimer().fingerprint().startswith("712d89e625247787200a")
    hashes = ethanol().frame_hashes()
    assert hashes[0] == "1135787b22e088d5"
    plain = Dataset.from_structures([molecule(0), molecule(1)])
    default = Dataset.from_structures([molecule(0, multiplicity=1, weight=1.0), molecule(1)])
    assert plain.fingerprint() == default.fingerprint()
    for changes in ({"multiplicity": 2}, {"weight": 0.5}, {"stress": np.eye(3)}, {"charge": 1.0}):
        assert (
            Dataset.from_structures([molecule(0, **changes), molecule(1)]).fingerprint()
            != plain.fingerprint()
        )
