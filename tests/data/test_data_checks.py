"""Label checks: no warning on correct data, the right warning on each kind of damage."""

from __future__ import annotations

import copy
import os
import time
from pathlib import Path

import numpy as np
import pytest

from geomatt.data import Dataset, check_labels, ethanol, read
from geomatt.data.public.embedded import dimer
from geomatt.elements import formula
from geomatt.errors import GeomAttError

FACTORS = {"gradient": -1.0, "eV": 1 / 23.06, "kcal": 23.06, "Hartree": 627.5, "Bohr": 0.529177}
BOHR = 0.529177


def shared_files() -> list[Path]:
    root = os.environ.get("GEOMATT_DATA")
    return [] if root is None else [*sorted(Path(root).glob("*md17/*.npz")), Path(root) / "gfn2/cg-cg.npz"]


@pytest.fixture(scope="module")
def good() -> Dataset:
    return ethanol()


def scaled(dataset: Dataset, factor: float) -> Dataset:
    changed = copy.copy(dataset)
    assert dataset.forces is not None
    changed.forces = dataset.forces * factor
    return changed


def test_no_warning_on_correct_data(good: Dataset) -> None:
    assert check_labels(good) == []
    assert check_labels(good.select(np.random.default_rng(0).permutation(2000)[:100])) == []
    assert check_labels(good.select([0])) == []


def stretched(dataset: Dataset, factor: float) -> Dataset:
    """As read with a wrong length unit: forces, energies per length, change inversely."""
    changed = scaled(dataset, 1 / factor)
    changed.positions = dataset.positions * factor
    return changed


def test_wrong_length_unit(good: Dataset) -> None:
    (warning,) = check_labels(stretched(good, BOHR))
    assert "close together" in warning
    assert "`length_unit`" in warning
    (warning,) = check_labels(stretched(good, 1 / BOHR))
    assert "far apart" in warning
    argon = np.array([18, 18, 18])  # no bonds
    assert check_labels(Dataset.from_frames(argon, 3.8 * np.eye(3)[None])) == []
    assert check_labels(Dataset.from_frames(np.array([98, 1, 1]), np.eye(3)[None])) == []  # no radius known


@pytest.mark.parametrize("name", FACTORS)
def test_forces_of_wrong_sign_or_unit(good: Dataset, name: str) -> None:
    (warning,) = check_labels(scaled(good, FACTORS[name]))
    assert ("uphill" if name == "gradient" else "cannot belong") in warning
    assert name == "gradient" or "`force_unit`" in warning
    hints = {"kcal": "eV and kcal/mol", "Hartree": "Hartree and kcal/mol"}
    assert hints.get(name, "") in warning


def test_wrong_sign_with_few_frames(good: Dataset) -> None:
    few = good.select(np.arange(0, 2000, 40))
    assert "uphill" in check_labels(scaled(few, -1))[0]


def test_shuffled_energies(good: Dataset) -> None:
    shuffled = scaled(good, 1)
    assert shuffled.energies is not None
    shuffled.energies = np.random.default_rng(0).permutation(shuffled.energies)
    (warning,) = check_labels(shuffled)
    assert "do not belong" in warning


def test_net_force_torque_repeated_frames_and_nan(good: Dataset) -> None:
    pushed = scaled(good, 1)
    assert pushed.forces is not None
    pushed.forces[:, 0] += 0.05
    assert "do not add up to zero" in check_labels(pushed)[0]

    turned = good.select(np.arange(100))
    assert turned.forces is not None
    turned.forces = turned.forces[:, [1, 2, 0]]  # rotated away from the positions
    assert any("torque" in w for w in check_labels(turned))

    (warning,) = check_labels(good.select([0, 1, 2, 1, 1]))
    assert "2 of 5 structures repeat" in warning

    broken = scaled(good, 1)
    assert broken.forces is not None
    broken.forces[5, 1] = np.nan
    assert check_labels(broken) == ["The forces contain NaN or infinity."]


def test_mixtures_and_data_without_labels(good: Dataset) -> None:
    mixture = Dataset.from_structures(list(good[:60]) + [read_atom() for _ in range(40)])
    assert all("repeat" in w for w in check_labels(mixture))
    assert any("uphill" in w for w in check_labels(scaled(mixture, -1)))
    unlabelled = Dataset.from_frames(np.array([1, 1]), np.random.default_rng(0).normal(size=(50, 2, 3)))
    assert check_labels(unlabelled) == []
    still = Dataset.from_frames(
        np.array([1, 1]), unlabelled.positions.reshape(50, 2, 3), np.zeros(50), np.zeros((50, 2, 3))
    )
    assert check_labels(still) == []


def read_atom() -> object:
    from geomatt.data import Structure

    return Structure(np.array([1]), np.zeros((1, 3)), -13.6, np.zeros((1, 3)))


@pytest.mark.skipif(not shared_files(), reason="GEOMATT_DATA is not set")
@pytest.mark.parametrize("path", shared_files(), ids=lambda p: p.stem)
def test_public_data(path: Path) -> None:
    dataset = read(path)
    start = time.perf_counter()
    assert check_labels(dataset) == []
    assert time.perf_counter() - start < 10  # takes about a second on an idle core
    for name in ("gradient", "kcal", "Bohr"):
        assert len(check_labels(scaled(dataset, FACTORS[name]))) == 1
    pushed = scaled(dataset, 1)
    assert pushed.forces is not None
    pushed.forces[:, 1] += 0.1
    assert "do not add up" in check_labels(pushed)[0]
    assert "repeat" in check_labels(dataset.select([*range(100), 7]))[0]
    assert "close together" in check_labels(stretched(dataset, BOHR))[0]
    assert "far apart" in check_labels(stretched(dataset, 1 / BOHR))[0]


def test_embedded_ethanol() -> None:
    dataset = ethanol()
    assert len(dataset) == 2000
    assert sorted(dataset[0].numbers.tolist()) == [1] * 6 + [6, 6, 8]
    assert dataset.origin["theory"].startswith("GFN2-xTB (tblite")
    assert dataset.energies is not None
    assert dataset.energies.std() / 0.0433641 == pytest.approx(3.2, abs=0.3)
    assert read("embedded/ethanol").fingerprint() == dataset.fingerprint()


def test_embedded_ethanol_labels_against_tblite() -> None:
    TBLite = pytest.importorskip("tblite.ase").TBLite
    from ase import Atoms

    dataset = ethanol()
    for i in (0, 999, 1999):
        structure = dataset[i]
        atoms = Atoms(structure.numbers, structure.positions)
        atoms.calc = TBLite(method="GFN2-xTB", verbosity=0, accuracy=0.01)
        assert atoms.get_potential_energy() == pytest.approx(structure.energy, abs=1e-5)
        assert np.allclose(atoms.get_forces(), structure.forces, atol=1e-5)


def test_embedded_dimer() -> None:
    dataset = dimer()
    assert len(dataset) == 70
    assert formula(dataset[0].numbers) == "C18H20N16O4"
    assert dataset.origin["theory"].startswith("GFN2-xTB (tblite")
    assert dataset.energies is not None
    assert dataset.forces is not None
    assert dataset.energies.std() / 0.0433641 == pytest.approx(9.5, abs=2.0)
    assert dataset.forces.std() / 0.0433641 == pytest.approx(28, abs=1.5)
    assert check_labels(dataset) == []
    with np.load(dataset.origin["path"], allow_pickle=False) as file:
        assert file["segment"].tolist() == np.repeat(np.arange(7), 10).tolist()
        assert "make_dimer.py --segments 7 --frames 10 --every 50" in str(file["made_by"])


def test_embedded_dimer_labels_against_tblite() -> None:
    TBLite = pytest.importorskip("tblite.ase").TBLite
    from ase import Atoms

    structure = dimer()[69]
    atoms = Atoms(structure.numbers, structure.positions)
    atoms.calc = TBLite(method="GFN2-xTB", verbosity=0)
    assert atoms.get_potential_energy() == pytest.approx(structure.energy, abs=1e-4)
    assert np.allclose(atoms.get_forces(), structure.forces, atol=1e-3)


def test_unknown_embedded_name() -> None:
    with pytest.raises(GeomAttError, match="There is no file"):
        read("embedded/methanol")
