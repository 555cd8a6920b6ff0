"""Data sets larger than memory: a folder of arrays on disk, mapped into memory and read where needed.

`OUT.arrays` holds `dataset.json` and one .npy file for every array of `Dataset`, in eV and Å. It is written
part by part. A `MappedDataset` is a `Dataset` whose arrays stay on disk: `select` copies what is chosen.
"""

from __future__ import annotations

import json
import mmap
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy

from geomatt.data.dataset import Dataset
from geomatt.errors import GeomAttError
from geomatt.files import atomic_write, make_folder, write_error

SUFFIX = ".arrays"
EXCERPT = 10_000  # structures that statistics are taken from
_FILE, _FORMAT = "dataset.json", 1
_EXAMPLES = 20  # structures named for each element
_AT_ONCE = 10_000  # atoms read before memory is given back: each may map 64 kB of the file
_HEADER = 128  # bytes before the content of an array
# Type and shape of a row, and what stands for a missing one; None: it may not be missing.
_ARRAYS: dict[str, tuple[str, tuple[int, ...], Any]] = {
    "numbers": ("<i8", (), None),
    "positions": ("<f8", (3,), None),
    "offsets": ("<i8", (), None),
    "energies": ("<f8", (), None),
    "forces": ("<f8", (3,), np.nan),
    "stress": ("<f8", (3, 3), np.nan),
    "cells": ("<f8", (3, 3), 0.0),
    "pbc": ("|b1", (3,), False),
    "charges": ("<f8", (), 0.0),
    "multiplicities": ("<i8", (), 0),
    "weights": ("<f8", (), 1.0),
}
_PER_ATOM = ("numbers", "positions", "forces")


class MappedDataset(Dataset):
    """A data set in a folder of arrays. Only numbers per structure are held in memory."""

    def __init__(self, arrays: Mapping[str, np.ndarray], about: Mapping[str, Any]) -> None:
        self._maps = [array for name, array in arrays.items() if name in _PER_ATOM]
        held: dict[str, Any] = {n: a if n in _PER_ATOM else np.array(a) for n, a in arrays.items()}
        numbers, positions, offsets = (held.pop(name) for name in ("numbers", "positions", "offsets"))
        super().__init__(numbers, positions, offsets, **held, name=about["name"], origin=about["origin"])
        self._about = about

    def _rows(self, array: np.ndarray, rows: np.ndarray) -> np.ndarray:
        found = np.empty((len(rows), *array.shape[1:]), array.dtype)
        for start in range(0, len(rows), _AT_ONCE):
            part = slice(start, start + _AT_ONCE)
            found[part] = array[rows[part]]
            self.release()
        return found

    def release(self) -> None:
        """Give the memory of what was read back to the system, which may keep it in its cache."""
        for array in self._maps:
            held = getattr(array, "_mmap", None)
            if held is not None and hasattr(mmap, "MADV_DONTNEED"):
                held.madvise(mmap.MADV_DONTNEED)

    @property
    def elements(self) -> list[int]:
        return list(self._about["elements"])

    def fingerprint(self) -> str:
        return str(self._about["fingerprint"])

    @property
    def examples(self) -> np.ndarray:
        """Some structures of every element."""
        return np.array(self._about["examples"], dtype=np.int64)


def excerpt(dataset: Dataset, indices: np.ndarray | None = None, count: int = EXCERPT) -> np.ndarray:
    """The numbers of the structures that statistics are computed from, ascending, out of `indices` or of all.

    All of them, unless the data set is mapped and has more than `count`; then that many at random, the same
    ones every time, and examples of every element.
    """
    every = np.arange(len(dataset)) if indices is None else np.asarray(indices, dtype=np.int64)
    if not isinstance(dataset, MappedDataset) or len(every) <= count:
        return every
    drawn = np.random.default_rng(len(every)).choice(len(every), count, replace=False)
    return np.union1d(every[drawn], np.intersect1d(dataset.examples, every))


def read_mapped(folder: Path) -> MappedDataset:
    """The data set in a folder that `write_mapped` has written."""
    damaged = GeomAttError(f"{folder} is damaged or incomplete. Convert the data again.")
    try:
        about = json.loads((folder / _FILE).read_text(encoding="utf-8"))
        if about["format"] > _FORMAT:
            raise GeomAttError(f"{folder} was written by a newer geomatt. Update the package to read it.")
        arrays = {
            name: np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False)
            for name in about["arrays"]
        }
        rows = {True: about["atoms"], False: about["structures"]}
        for name, array in arrays.items():
            kind, shape, _ = _ARRAYS[name]
            length = rows[name in _PER_ATOM] + (name == "offsets")
            if array.dtype != np.dtype(kind) or array.shape != (length, *shape):
                raise damaged
        offsets = arrays["offsets"]
        if offsets[0] != 0 or offsets[-1] != about["atoms"] or (np.diff(offsets) < 1).any():
            raise damaged
        about["origin"] = {**about["origin"], "path": str(folder)}
        return MappedDataset(arrays, about)
    except (OSError, ValueError, KeyError, TypeError, IndexError, EOFError, AttributeError):
        raise damaged from None


def is_mapped(folder: Path) -> bool:
    """True for a folder that `write_mapped` has written."""
    return (folder / _FILE).is_file()


def write_mapped(parts: Iterable[Dataset], folder: Path) -> int:
    """Write parts of a data set, one after the other, into a new folder; the number of structures.

    Other information of structures (`info`) is not kept.
    """
    if folder.exists():
        raise GeomAttError(f"{folder} exists already. Move it, or choose another name.")
    make_folder(folder.parent)
    try:
        temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
        try:
            count = _write(parts, temporary)
            temporary.chmod(0o755)
            temporary.rename(folder)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    except OSError as error:
        raise write_error(folder, error) from error
    return count


def _write(parts: Iterable[Dataset], folder: Path) -> int:
    files: dict[str, _ArrayFile] = {}
    try:
        about = _append_all(parts, folder, files)
    finally:
        for file in files.values():
            file.close()
    arrays = {name: np.load(folder / f"{name}.npy", mmap_mode="r") for name in files}
    about["fingerprint"] = Dataset.fingerprint(MappedDataset(arrays, about))
    atomic_write(folder / _FILE, (json.dumps(about, indent=1) + "\n").encode())
    return int(about["structures"])


def _append_all(parts: Iterable[Dataset], folder: Path, files: dict[str, _ArrayFile]) -> dict[str, Any]:
    """Append the parts to files, which are made where needed; what `dataset.json` says of them."""
    structures = atoms = 0
    first: Dataset | None = None
    names: dict[str, None] = {}
    examples: dict[int, list[int]] = {}
    for part in parts:
        first = first or part
        names[part.name] = None
        if (part.energies is None) != (first.energies is None):
            raise GeomAttError(
                "Some structures have energies and some do not: label them, or leave them out."
            )
        for name, (kind, shape, default) in _ARRAYS.items():
            values = part.offsets[1:] + atoms if name == "offsets" else getattr(part, name)
            if values is None and name not in files:
                continue
            per_atom = name in _PER_ATOM
            if name not in files:
                files[name] = _ArrayFile(folder / f"{name}.npy", kind, shape)
                if name == "offsets":
                    files[name].append(np.zeros(1, dtype=np.int64))
                else:
                    files[name].fill(atoms if per_atom else structures, default)
            if values is None:
                files[name].fill(len(part.numbers) if per_atom else len(part), default)
            else:
                files[name].append(values)
        for z in part.elements:
            known = examples.setdefault(z, [])
            if len(known) < _EXAMPLES:
                owners = np.searchsorted(part.offsets, np.flatnonzero(part.numbers == z), side="right") - 1
                known += (structures + np.unique(owners)[: _EXAMPLES - len(known)]).tolist()
        structures, atoms = structures + len(part), atoms + len(part.numbers)
    if first is None:
        raise GeomAttError("There are no structures to write.")
    return {
        "format": _FORMAT,
        "structures": structures,
        "atoms": atoms,
        "arrays": list(files),
        "elements": sorted(examples),
        "examples": sorted({i for found in examples.values() for i in found}),
        "name": " + ".join(filter(None, names)),
        "origin": _origin(first, folder),
        "fingerprint": "",
    }


def _origin(first: Dataset, folder: Path) -> dict[str, str]:
    """Where the data comes from; reports are in the unit of the first file."""
    origin = {**first.origin, "path": folder.name, "format": "memory-mapped arrays"}
    if "units_known" in origin:
        origin["units_known"] = "of the file that was converted; stored in eV and Å"
    return origin


class _ArrayFile:
    """A .npy file that grows."""

    def __init__(self, path: Path, kind: str, shape: tuple[int, ...]) -> None:
        self.kind, self.shape, self.rows = np.dtype(kind), shape, 0
        self.stream = open(path, "wb")  # noqa: SIM115 - closed by `close`
        self.stream.write(bytes(_HEADER))

    def append(self, values: np.ndarray) -> None:
        self.stream.write(np.ascontiguousarray(values, dtype=self.kind).data)
        self.rows += len(values)

    def fill(self, rows: int, value: Any) -> None:
        for start in range(0, rows, EXCERPT):
            self.append(np.full((min(EXCERPT, rows - start), *self.shape), value, dtype=self.kind))

    def close(self) -> None:
        """Write the header, now that the length is known."""
        header = BytesIO()
        descr = npy.dtype_to_descr(self.kind)
        shape = (self.rows, *self.shape)
        npy.write_array_header_1_0(header, {"descr": descr, "fortran_order": False, "shape": shape})
        content = header.getvalue()
        assert len(content) == _HEADER
        self.stream.seek(0)
        self.stream.write(content)
        self.stream.close()
