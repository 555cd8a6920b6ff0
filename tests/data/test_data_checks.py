"""Label checks: no warning on correct data, the right warning on each kind of damage."""

from __future__ import annotations

import copy
import os
import time
from pathlib import Path

import numpy as np
import pytest

from geomatt.data import (
    Dataset,
    Structure,
    check_labels,
    concatenate,
    drop_outliers,
    ethanol,
    find_outliers,
    read,
)
from geomatt.data.checks import energies_compared
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
    (warning,) = check_labels(stretched(good, 0.1))  # nm
    assert "close together" in warning
    argon = np.array([18, 18, 18])  # no bonds
    assert check_labels(Dataset.from_frames(argon, 3.8 * np.eye(3)[None])) == []
    assert check_labels(Dataset.from_frames(np.array([98, 1, 1]), np.eye(3)[None])) == []  # no radius known


@pytest.mark.parametrize("name", FACTORS)
def test_forces_of_wrong_sign_or_unit(good: Dataset, name: str) -> None:
    (warning,) = check_labels(scaled(good, FACTORS[name]))
    assert ("wrong sign" if name == "gradient" else "cannot belong") in warning
    assert name == "gradient" or "`force_unit`" in warning
    hints = {"kcal": "eV and kcal/mol", "Hartree": "Hartree and kcal/mol"}
    assert hints.get(name, "") in warning


def test_wrong_sign_with_few_frames(good: Dataset) -> None:
    few = good.select(np.arange(0, 2000, 40))
    assert "wrong sign" in check_labels(scaled(few, -1))[0]


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
    assert any("wrong sign" in w for w in check_labels(scaled(mixture, -1)))
    unlabelled = Dataset.from_frames(np.array([1, 1]), np.random.default_rng(0).normal(size=(50, 2, 3)))
    assert check_labels(unlabelled) == []
    still = Dataset.from_frames(
        np.array([1, 1]), unlabelled.positions.reshape(50, 2, 3), np.zeros(50), np.zeros((50, 2, 3))
    )
    assert check_labels(still) == []


def read_atom() -> Structure:
    return Structure(np.array([1]), np.zeros((1, 3)), -13.6, np.zeros((1, 3)))


def changed(dataset: Dataset, energies: float = 1.0, forces: float = 1.0) -> Dataset:
    """A copy with scaled labels."""
    copied = scaled(dataset, forces)
    assert dataset.energies is not None
    copied.energies = dataset.energies * energies
    return copied


def without_forces(dataset: Dataset) -> Dataset:
    copied = copy.copy(dataset)
    copied.forces = None
    return copied


def rows(dataset: Dataset, frame: int) -> slice:
    return slice(dataset.offsets[frame], dataset.offsets[frame + 1])


def damaged(dataset: Dataset, frame: int, kind: str) -> Dataset:
    """One structure with wrong labels or positions."""
    copied = changed(dataset)
    copied.positions = dataset.positions.copy()
    assert copied.energies is not None
    assert copied.forces is not None
    if kind == "energy":
        copied.energies[frame] += 100
    elif kind == "forces":
        copied.forces[rows(copied, frame)] *= 1e4
    else:
        copied.positions[copied.offsets[frame]] = copied.positions[copied.offsets[frame] + 1] + 0.01
    return copied


@pytest.mark.parametrize("kind", ["energy", "forces", "positions"])
@pytest.mark.parametrize("size", [12, 100, 2000])
def test_outliers_are_named(good: Dataset, kind: str, size: int) -> None:
    data = damaged(good.select(np.linspace(0, 1999, size).astype(int)), 7, kind)
    (warning,) = check_labels(data)
    assert f"1 of {size} structures are outliers: structure 7 (" in warning
    assert "`drop_outliers`" in warning
    assert {"energy": "energy +1", "forces": "times the typical", "positions": "0.017 Å apart"}[
        kind
    ] in warning
    assert list(find_outliers(data)) == [7]
    kept, outliers = drop_outliers(data)
    assert len(kept) == size - 1
    assert list(outliers) == [7]
    assert kept.origin["dropped"] == "7"
    assert check_labels(kept) == []


def test_many_outliers(good: Dataset) -> None:
    data = damaged(damaged(good, 3, "energy"), 3, "forces")
    for frame in range(10, 90, 10):
        data = damaged(data, frame, "energy")
    (warning,) = check_labels(data)
    assert "9 of 2000" in warning
    assert "and 4 more" in warning
    assert list(find_outliers(data)) == [3, *range(10, 90, 10)]
    assert "energy" in find_outliers(data)[3]
    assert "forces" in find_outliers(data)[3]
    assert drop_outliers(good) == (good, {})
    (warning,) = check_labels(damaged(good.select([0]), 0, "positions"))  # nothing is left without it
    assert "1 of 1 structures" in warning


def test_outliers_of_mixtures() -> None:
    """Molecules that occur once each are compared by their composition."""
    rng = np.random.default_rng(0)
    structures = []
    for i in range(200):
        numbers = rng.choice([1, 6, 8], size=rng.integers(3, 12))
        energy = float(np.array([0, -14, 0, 0, 0, 0, -1030, 0, -2040])[numbers].sum() + 0.3 * rng.normal())
        positions = 3.0 * np.arange(len(numbers))[:, None] * np.eye(3)[0] + 0.1 * rng.normal(
            size=(len(numbers), 3)
        )
        structures.append(Structure(numbers, positions, energy + 100 * (i == 33)))
    assert list(find_outliers(Dataset.from_structures(structures))) == [33]


def test_distorted_structures_among_relaxed_ones_are_no_outliers(good: Dataset) -> None:
    relaxed = changed(good, 1.0, 0.01)
    assert relaxed.energies is not None
    relaxed.energies = relaxed.energies.mean() + 0.01 * (relaxed.energies - relaxed.energies.mean())
    few = good.select(np.arange(10))
    assert find_outliers(concatenate([relaxed, few])) == {}


@pytest.mark.parametrize("size", [60, 100, 150, 500, 2000])
def test_shuffled_energies_of_few_and_many_frames(good: Dataset, size: int) -> None:
    data = good.select(np.linspace(0, 1999, size).astype(int))
    assert check_labels(data) == []
    assert data.energies is not None
    data.energies = np.random.default_rng(1).permutation(data.energies)
    (warning,) = check_labels(data)
    assert "do not belong to the energies" in warning


def test_too_few_frames_to_compare_energies_are_known(good: Dataset) -> None:
    assert energies_compared(good.select(np.arange(30)))
    assert not energies_compared(good.select(np.arange(29)))


def test_constant_energies(good: Dataset) -> None:
    data = changed(good)
    assert data.energies is not None
    data.energies[:] = data.energies[0]
    for case in (data, without_forces(data), data.select(np.arange(4))):
        (warning,) = check_labels(case)
        assert f"All {len(case)} energies of C2H6O are equal" in warning
    repeated = data.select([0, 0, 0])
    assert all("repeat" in warning for warning in check_labels(repeated))


@pytest.mark.parametrize(
    ("unit", "factor"), [("kcal/mol", 23.0605), ("kJ/mol", 96.4853), ("Hartree", 1 / 27.2114)]
)
def test_energies_and_forces_in_one_wrong_unit(good: Dataset, unit: str, factor: float) -> None:
    """The file was read as eV but has another unit."""
    data = changed(good, factor, factor)
    data.origin = {**good.origin, "energy_unit": "eV"}
    for case in (data, data.select(np.arange(0, 2000, 100))):
        (warning,) = check_labels(case)
        assert "stiffness" in warning
        assert f"give `energy_unit` {unit}" in warning
    # The same from a file that was said to be in kcal/mol: the numbers in the file decide.
    data.origin = {**good.origin, "energy_unit": "kcal/mol"}
    (warning,) = check_labels(data)
    assert "stiffness" in warning


def test_magnitudes_out_of_range(good: Dataset) -> None:
    few = changed(good, 500, 500).select([0, 1, 2])  # too few frames to know how stiff the bonds are
    (warning,) = check_labels(few)
    assert "typically" in warning
    assert "`energy_unit`" in warning
    (warning,) = check_labels(without_forces(changed(good, 23.06)))
    assert "more than at 5000 K" in warning
    assert check_labels(without_forces(good)) == []


def test_stress_out_of_range() -> None:
    cell = {"cell": 5.6 * np.eye(3), "pbc": (True, True, True), "energy": -7.0}
    structure = Structure(np.array([11, 17]), np.array([[0.0, 0, 0], [2.8, 0, 0]]), stress=np.eye(3), **cell)  # type: ignore[arg-type]
    (warning,) = check_labels(Dataset.from_structures([structure]))
    assert "160 GPa" in warning


def test_structures_without_forces(good: Dataset) -> None:
    part = concatenate([good, without_forces(good.select([0]))])
    assert part.forces is not None
    assert not part.has_forces.all()
    assert all("repeat" in warning for warning in check_labels(part))
    assert any("wrong sign" in warning for warning in check_labels(scaled(part, -1)))


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
    for kind in ("energy", "forces"):
        (warning,) = check_labels(damaged(dataset, 99, kind))
        assert "structure 99 (" in warning
    shuffled = changed(dataset)
    assert shuffled.energies is not None
    shuffled.energies = np.random.default_rng(0).permutation(shuffled.energies)
    assert "do not belong" in check_labels(shuffled)[0]
    mistaken = changed(dataset, 23.0605, 23.0605)
    mistaken.origin = {**dataset.origin, "energy_unit": "eV"}
    assert "give `energy_unit` kcal/mol" in check_labels(mistaken)[0]
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
