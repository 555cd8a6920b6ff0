"""The extxyz reader and writer against ASE's, and files that are not valid."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import ase
import ase.io
import numpy as np
import pytest
from ase.calculators.singlepoint import SinglePointCalculator
from hypothesis import given
from hypothesis import strategies as st

from geomatt.data import Dataset, Structure, read, write
from geomatt.data.io import extxyz
from geomatt.errors import GeomAttError

NAMES = st.text("abcdefgXYZ_", min_size=3, max_size=8).filter(lambda name: name.lower() not in ("uid", "pbc"))
WORDS = st.text(st.sampled_from("abc XYZ\"'{}[]=\\,:;.-_T1"), min_size=1, max_size=12)
NUMBERS = st.floats(-1e6, 1e6) | st.integers(-1000, 1000)
VALUES = NUMBERS | st.booleans() | WORDS | st.lists(st.integers(-9, 9), min_size=2, max_size=4).map(np.array)


@st.composite
def images(draw: Any) -> ase.Atoms:
    size = draw(st.integers(1, 5))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    atoms = ase.Atoms(rng.integers(1, 118, size), rng.normal(size=(size, 3)) * 10)
    results: dict[str, Any] = {"energy": rng.normal() * 1e4}
    if draw(st.booleans()):
        results["forces"] = rng.normal(size=(size, 3))
    if draw(st.booleans()):
        atoms.cell = rng.normal(size=(3, 3)) + 5 * np.eye(3)
        atoms.pbc = True
        results["stress"] = rng.normal(size=6)
    atoms.calc = SinglePointCalculator(atoms, **results)
    atoms.info = draw(st.dictionaries(NAMES, NUMBERS.map(str) | st.just("text"), max_size=2))
    if draw(st.booleans()):
        atoms.arrays["tags"] = rng.integers(0, 3, size)
    return atoms


@given(frames=st.lists(images(), min_size=1, max_size=3))
def test_reads_what_ase_writes(tmp_path_factory: pytest.TempPathFactory, frames: list[ase.Atoms]) -> None:
    path = tmp_path_factory.mktemp("xyz") / "a.xyz"
    ase.io.write(path, frames, format="extxyz")
    dataset = read(path)
    for structure, atoms in zip(dataset, ase.io.iread(path, index=":"), strict=True):
        results = atoms.calc.results
        assert structure.numbers.tolist() == atoms.numbers.tolist()
        assert np.array_equal(structure.positions, atoms.positions)
        assert structure.energy == results["energy"]
        assert (structure.forces is None) == ("forces" not in results)
        if structure.forces is not None:
            assert np.array_equal(structure.forces, results["forces"])
        if structure.stress is not None:
            assert np.allclose(structure.stress, atoms.get_stress(voigt=False), rtol=1e-15)
        assert structure.pbc == tuple(atoms.pbc)
        assert np.array_equal(np.zeros((3, 3)) if structure.cell is None else structure.cell, atoms.cell)
        assert structure.info == atoms.info


@given(info=st.dictionaries(NAMES | WORDS, VALUES, max_size=4), seed=st.integers(0, 99))
def test_writes_what_it_reads(tmp_path_factory: pytest.TempPathFactory, info: dict, seed: int) -> None:
    rng = np.random.default_rng(seed)
    info = {key: value for key, value in info.items() if key.strip() == key and key not in ("energy", "spin")}
    stress = rng.normal(size=(3, 3))
    structure = Structure(
        rng.integers(1, 118, 3),
        np.round(rng.normal(size=(3, 3)), 8),
        rng.normal(),
        np.round(rng.normal(size=(3, 3)), 8),
        cell=rng.normal(size=(3, 3)) + 5 * np.eye(3),
        pbc=(True, True, True),
        charge=2.0,
        info=info,
        stress=stress + stress.T,
        multiplicity=3,
        weight=0.5,
    )
    path = tmp_path_factory.mktemp("xyz") / "a.xyz"
    write(Dataset.from_structures([structure]), path)
    (again,) = read(path, keys={"weight": "weight"})
    for name in ("numbers", "positions", "forces", "cell", "stress"):
        assert np.array_equal(getattr(again, name), getattr(structure, name)), name
    for name in ("energy", "charge", "multiplicity", "weight", "pbc"):
        assert getattr(again, name) == getattr(structure, name), name
    assert list(again.info) == list(info)
    for key, value in info.items():
        if isinstance(value, str) and not isinstance(extxyz._value(key, value), str):
            continue  # a text that looks like a number or a truth value comes back as one
        assert np.array_equal(again.info[key], value), key
    atoms = ase.io.read(path)
    assert np.array_equal(atoms.positions, structure.positions)
    assert atoms.calc.results["energy"] == structure.energy


def test_comment_line() -> None:
    parsed = extxyz.parse_comment(
        r"""energy = -1.5 note="a 'b' \"c\"" flag n=3 l=[1, 2] truth="T F" data="_JSON {\"a\": [1]}" x=a=b"""
    )
    assert parsed.pop("l").tolist() == [1, 2]
    assert parsed.pop("truth").tolist() == [True, False]
    expected = {"energy": -1.5, "note": "a 'b' \"c\"", "flag": True, "n": 3, "data": {"a": [1]}, "x": "a=b"}
    assert parsed == expected


def test_nested_info_is_written_as_json(tmp_path: Path) -> None:
    info = {"ragged": [[1, 2], [3]], "mapping": {"a": None}, "matrix": [[1, 2], [3, 4]]}
    write(
        Dataset.from_structures([Structure(np.array([1]), np.zeros((1, 3)), info=info)]), tmp_path / "a.xyz"
    )
    assert read(tmp_path / "a.xyz")[0].info == info


def test_blank_lines_between_frames_and_compression(tmp_path: Path) -> None:
    text = "1\nenergy=1.0\nH 0 0 0\n\n1\nenergy=2.0\nH 0 0 1 extra\n\n\n"
    (tmp_path / "a.xyz").write_text(text)
    (tmp_path / "a.extxyz.gz").write_bytes(gzip.compress(text.encode()))
    for name in ("a.xyz", "a.extxyz.gz"):
        dataset = read(tmp_path / name)
        assert dataset.energies is not None
        assert dataset.energies.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("1000000000000\n\nH 0 0 0\n", "instead of 1000000000000"),
        ("-1\n\nH 0 0 0\n", "instead of -1"),
        ("0\n\n", "no atoms"),
        ("H 0 0 0\n", "expected a number of atoms"),
        ("1\n\nH 0 0\n", "fewer than 4 columns"),
        ("1\n\nH 0 0 a\n", "could not convert"),
        ("1\nProperties=species:S:1:pos:R:1000000000\nH 0 0 0\n", "invalid column"),
        ("1\nProperties=species:S:1:pos:R\nH 0 0 0\n", "could not be read"),
        ("1\nProperties=species:S:1\nH 0 0 0\n", "could not be read"),
        ('1\nLattice="1 2 3"\nH 0 0 0\n', "nine numbers"),
        ('1\npbc="T T T"\nH 0 0 0\n', "no valid cell"),
        ('1\nLattice="1 0 0 2 0 0 0 0 1"\nH 0 0 0\n', "span no volume"),
        ("1\nenergy=1e300\nH 0 0 0\n", "beyond 1e"),
        ("1\nenergy=text\nH 0 0 0\n", "should contain the energy"),
        ("1\ncharge=much\nH 0 0 0\n", "total charge"),
        ("1\nmultiplicity=0\nH 0 0 0\n", "multiplicity"),
        ("1\n\nX 0 0 0\n", "0 as an atomic number"),
        ("1\nProperties=Z:R:1:pos:R:3\n1.5 0 0 0\n", "not integers"),
        ('1\ninfo="_JSON [[[["\nH 0 0 0\n', "could not be read"),
    ],
)
def test_invalid_files(tmp_path: Path, text: str, word: str) -> None:
    (tmp_path / "a.xyz").write_text(text)
    with pytest.raises(GeomAttError, match=word) as caught:
        read(tmp_path / "a.xyz")
    assert str(tmp_path / "a.xyz") in str(caught.value)


def test_compressed_bomb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extxyz, "_FREE_CHARACTERS", 10_000)
    (tmp_path / "a.xyz.gz").write_bytes(gzip.compress(b"1\n\nH 0 0 0\n" * 10_000))
    with pytest.raises(GeomAttError, match="expands to more than"):
        read(tmp_path / "a.xyz.gz")
