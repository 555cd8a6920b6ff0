"""Damaged and hostile files give a GeomAttError or a valid result, within limits of time and memory."""

from __future__ import annotations

import io
import json
import os
import sqlite3
import struct
import sys
import tracemalloc
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import ase.db
import ase.io
import numpy as np
import pytest
from numpy.lib import format as npy

from geomatt.data import Split, read
from geomatt.errors import GeomAttError

if sys.platform != "linux":
    pytest.skip("limits of memory and the audit of files need Linux", allow_module_level=True)

from fuzzing import DATA, atoms, fuzz, npz


def test_random_damage() -> None:
    failures = [(name, case, problem) for name, case, _, problem in fuzz(DATA, 300) if problem is not None]
    assert not failures, f"{len(failures)} failures; the first: {failures[0]}"


@contextmanager
def refused(word: str) -> Iterator[None]:
    """The reader raises an error with this word before it allocates much."""
    tracemalloc.start()
    try:
        with pytest.raises(GeomAttError, match=word):
            yield
        assert tracemalloc.get_traced_memory()[1] < 50e6
    finally:
        tracemalloc.stop()


def member(shape: tuple[int, ...], dtype: str = "<f8", content: bytes = b"") -> bytes:
    stream = io.BytesIO()
    npy.write_array_header_1_0(stream, {"descr": dtype, "fortran_order": False, "shape": shape})
    return stream.getvalue() + content


def rewritten(path: Path, **members: bytes) -> Path:
    """A valid npz file in which some members have another content."""
    npz(path)
    with zipfile.ZipFile(path) as old:
        arrays = {name: old.read(name) for name in old.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new:
        for name, content in {**arrays, **{f"{k}.npy": v for k, v in members.items()}}.items():
            new.writestr(name, content)
    return path


@pytest.mark.parametrize("shape", [(10**12, 3, 3), (10**30, 3, 3), (-1, 3, 3), (10**12, 0, 3)])
def test_npz_header_with_too_many_frames(tmp_path: Path, shape: tuple[int, ...]) -> None:
    with refused("damaged" if 0 not in shape else "shape"):
        read(rewritten(tmp_path / "a.npz", R=member(shape)))


def test_npz_bomb(tmp_path: Path) -> None:
    count = 10**7  # frames; 720 MB of zeros as float64 in a file of 100 kB
    with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, shape, dtype in (("z", (3,), "|i1"), ("R", (count, 3, 3), "|i1")):
            with archive.open(f"{name}.npy", "w", force_zip64=True) as stream:
                stream.write(member(shape, dtype))
                for _ in range(int(np.prod(shape)) // 10**6):
                    stream.write(bytes(10**6))
                stream.write(bytes(int(np.prod(shape)) % 10**6))
    assert (tmp_path / "a.npz").stat().st_size < 1e6
    with refused("would expand to 0.72 GB"):
        read(tmp_path / "a.npz", energy_unit="eV", length_unit="Ang")


def test_npz_with_false_sizes(tmp_path: Path) -> None:
    """The directory of the archive claims more than the member has."""
    path = rewritten(tmp_path / "a.npz", R=member((10**9, 3, 3)))
    content = bytearray(path.read_bytes())
    entry = content.rindex(b"PK\x01\x02", 0, content.rindex(b"R.npy"))
    content[entry + 24 : entry + 28] = struct.pack("<I", 2**32 - 2)
    path.write_bytes(content)
    with refused("damaged"):
        read(path)


def test_trajectory_with_false_sizes(tmp_path: Path) -> None:
    path = tmp_path / "a.traj"
    ase.io.write(path, atoms())
    content = path.read_bytes()
    for change in (
        content[:32] + struct.pack("<q", 10**12) + content[40:],  # frames
        content.replace(b'"ndarray": [[3, 3]', b'"ndarray": [[9, 9]'),
        content.replace(b"[[3, 3], ", b"[[3,1e9],"),
    ):
        assert change != content
        path.write_bytes(change)
        with refused("claims more data|could not be read"):
            read(path)


def test_json_with_false_sizes(tmp_path: Path) -> None:
    ase.io.write(tmp_path / "a.json", atoms())
    rows = json.loads((tmp_path / "a.json").read_text())
    rows["1"]["data"] = {"x": {"__ndarray__": [[10**9], "int64", [0]]}}
    (tmp_path / "a.json").write_text(json.dumps(rows))
    with refused("another size than it says"):
        read(tmp_path / "a.json")


def test_database_of_another_program_is_not_changed(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "a.db") as connection:
        connection.execute("CREATE TABLE mine (a INTEGER)")
    connection.close()
    before = (tmp_path / "a.db").read_bytes()
    with refused("no table 'systems'"):
        read(tmp_path / "a.db")
    assert (tmp_path / "a.db").read_bytes() == before


def test_other_formats_of_ase(tmp_path: Path) -> None:
    ase.io.write(tmp_path / "POSCAR", atoms()[0])
    dataset = read(tmp_path / "POSCAR")
    assert sorted(dataset[0].numbers.tolist()) == [1, 1, 8]
    assert dataset.origin["format"] == "vasp"
    text = (tmp_path / "POSCAR").read_text()
    lines = text.splitlines()
    counts = next(i for i, line in enumerate(lines) if i > 4 and line.split()[0].isdigit())
    lines[counts] = " ".join(["999999999999"] * len(lines[counts].split()))
    (tmp_path / "POSCAR").write_text("\n".join(lines))
    with refused("could not be read as vasp"):
        read(tmp_path / "POSCAR")


def test_stored_split_with_too_many_structures() -> None:
    for text in ("0-999999999999", "1," + "9" * 30, ",".join(["0-9999999"] * 3)):
        with refused("not a stored split"):
            Split.from_dict({"train": text, "validation": "", "test": "", "kind": "random", "seed": 0})


def test_pipes_are_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.xyz")
    with refused("not a regular file"):
        read(tmp_path / "a.xyz")
