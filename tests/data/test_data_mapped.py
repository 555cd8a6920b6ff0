"""Data sets as folders of memory-mapped arrays: the same data as in memory, damaged folders."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from conftest import small_network
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from geomatt import Potential
from geomatt.cli import app
from geomatt.data import Dataset, Structure, concatenate, read, write
from geomatt.data.io import readers
from geomatt.data.mapped import MappedDataset, excerpt, write_mapped
from geomatt.errors import GeomAttError
from geomatt.model import Normalisation
from geomatt.pages import explain


def structure(seed: int, *, forces: bool, cell: bool, charge: float) -> Structure:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 5))
    return Structure(
        rng.choice([1, 6, 8], n),
        rng.normal(size=(n, 3)),
        energy=float(rng.normal()),
        forces=rng.normal(size=(n, 3)) if forces else None,
        cell=5 * np.eye(3) if cell else None,
        pbc=(cell, cell, cell),
        charge=charge,
        multiplicity=2 if charge else None,
        weight=1.0 + charge,
    )


def same(one: Dataset, two: Dataset) -> None:
    assert len(one) == len(two)
    assert one.fingerprint() == two.fingerprint()
    for a, b in zip(one, two, strict=True):
        np.testing.assert_array_equal(a.positions, b.positions)
        assert (a.forces is None) == (b.forces is None)
        assert (a.energy, a.charge, a.multiplicity, a.weight, a.pbc) == (
            b.energy, b.charge, b.multiplicity, b.weight, b.pbc
        )  # fmt: skip


kinds = st.fixed_dictionaries(
    {"forces": st.booleans(), "cell": st.booleans(), "charge": st.sampled_from([0.0, 1.0])}
)


@given(st.lists(st.lists(kinds, min_size=1, max_size=3), min_size=1, max_size=3))
def test_parts_written_one_after_the_other(tmp_path_factory, parts):
    """Labels that only a later part has are filled in for the earlier ones."""
    data = [
        Dataset.from_structures([structure(10 * p + i, **kind) for i, kind in enumerate(part)])
        for p, part in enumerate(parts)
    ]
    folder = tmp_path_factory.mktemp("mapped") / "data.arrays"
    assert write_mapped(iter(data), folder) == sum(map(len, data))
    found, whole = read(folder), concatenate(data)
    assert isinstance(found, MappedDataset)
    same(found, whole)
    assert found.elements == whole.elements
    assert Dataset.fingerprint(found) == found.fingerprint()
    chosen = np.array([len(whole) - 1, 0])
    same(found.select(chosen), whole.select(chosen))


def test_convert_reads_xyz_in_parts(tmp_path, monkeypatch):
    many = Dataset.from_structures([structure(i, forces=True, cell=False, charge=0.0) for i in range(8)])
    write(many, tmp_path / "a.extxyz")
    monkeypatch.setattr(readers, "PART", 4)
    assert [len(part) for part in readers.read_parts(tmp_path / "a.extxyz")] == [4, 4]
    monkeypatch.setattr(readers, "PART", 3)
    assert [len(part) for part in readers.read_parts(tmp_path / "a.extxyz")] == [3, 3, 2]
    out = tmp_path / "both.arrays"
    words = ["data", "convert", str(tmp_path / "a.extxyz"), str(tmp_path / "a.extxyz"), str(out)]
    answer = CliRunner().invoke(app, words)
    assert answer.exit_code == 0, answer.output
    assert "geomatt train" in answer.output
    once = read(tmp_path / "a.extxyz")
    same(read(out), concatenate([once, once]))
    assert CliRunner().invoke(app, ["data", "info", str(out)]).exit_code == 0
    assert read(out, keys={"forces": "none"}).forces is None
    (tmp_path / "cut.extxyz").write_text((tmp_path / "a.extxyz").read_text()[:-20])
    with pytest.raises(GeomAttError, match="after 1 complete"):
        list(readers.read_parts(tmp_path / "cut.extxyz"))


def test_invalid_uses_are_refused(tmp_path):
    data = Dataset.from_structures([structure(i, forces=True, cell=False, charge=0.0) for i in range(3)])
    folder = tmp_path / "data.arrays"
    write(data, folder)
    with pytest.raises(GeomAttError, match="exists already"):
        write(data, folder)
    with pytest.raises(GeomAttError, match="leave `energy_unit` out"):
        read(folder, energy_unit="kcal/mol")
    with pytest.raises(GeomAttError, match="leave `keys` out"):
        read(folder, keys={"forces": "f"})
    with pytest.raises(GeomAttError, match="cannot be joined"):
        concatenate([read(folder), data])
    unlabelled = Dataset(data.numbers, data.positions, data.offsets)
    with pytest.raises(GeomAttError, match="Some structures have energies"):
        write_mapped([data, unlabelled], tmp_path / "other.arrays")
    assert [p.name for p in tmp_path.iterdir()] == ["data.arrays"]  # nothing half written
    (folder / "forces.npy").write_bytes((folder / "forces.npy").read_bytes()[:-8])
    with pytest.raises(GeomAttError, match="is damaged or incomplete"):
        read(folder)
    about = json.loads((folder / "dataset.json").read_text())
    for changes, message in [({"format": 99}, "newer geomatt"), ({"atoms": 1}, "damaged")]:
        (folder / "dataset.json").write_text(json.dumps({**about, **changes}))
        with pytest.raises(GeomAttError, match=message):
            read(folder)


def test_statistics_are_taken_from_some(tmp_path):
    rare = Structure(np.array([17]), np.zeros((1, 3)), energy=0.0)
    common = [structure(i, forces=False, cell=False, charge=0.0) for i in range(60)]
    data = Dataset.from_structures([*common[:7], rare, *common[7:]])
    write(data, tmp_path / "data.arrays")
    mapped = read(tmp_path / "data.arrays")
    chosen = excerpt(mapped, count=5)
    assert 5 <= len(chosen) <= 5 + 20 * len(data.elements)
    assert 7 in chosen  # the only chlorine
    assert mapped.select(chosen).elements == data.elements
    np.testing.assert_array_equal(chosen, excerpt(mapped, count=5))
    assert set(excerpt(mapped, np.arange(20), count=5)) <= set(range(20))
    assert len(excerpt(data, count=5)) == len(data)  # data in memory is used as a whole


def test_explained_without_a_warning(tmp_path):
    """Arrays on disk cannot be written to, of which torch warns when it shares them."""
    one = Structure(np.array([8, 1, 1]), np.array([[0.0, 0, 0], [0.96, 0, 0], [-0.24, 0.93, 0]]))
    write_mapped([Dataset.from_structures([one])], tmp_path / "w.arrays")
    mapped = read(tmp_path / "w.arrays", keys={"energy": "none", "forces": "none"})
    before = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    try:
        explain(Potential(small_network(), Normalisation(0.0, 1.0)), [mapped[0]])
    finally:
        torch.set_warn_always(before)
