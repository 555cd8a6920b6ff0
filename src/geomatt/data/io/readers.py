"""Read any supported file into a `Dataset` in eV and Å, and write a `Dataset` to a file."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Unpack

from geomatt import units
from geomatt.arguments import require
from geomatt.data.dataset import Dataset
from geomatt.data.io import extxyz
from geomatt.data.io.ase_io import ase_format, ase_frames
from geomatt.data.io.fields import IGNORE
from geomatt.data.io.file_units import GivenUnits
from geomatt.data.io.frames import Frame, read_frames
from geomatt.data.io.npz import read_npz, write_npz
from geomatt.data.mapped import SUFFIX, is_mapped, read_mapped, write_mapped
from geomatt.data.public.catalogue import CATALOGUE, UNITS, find_entry, locate
from geomatt.data.public.embedded import EMBEDDED
from geomatt.errors import GeomAttError
from geomatt.files import require_writable

PART = 5000  # frames of an xyz file read at a time
_LABELS = {"energy": "energies", "forces": "forces", "stress": "stress"}  # that may be left out
_ZIP = b"PK\x03\x04"


def read(
    path: str | Path,
    *,
    energy_unit: str | None = None,
    length_unit: str | None = None,
    force_unit: str | None = None,
    keys: Mapping[str, str] | None = None,
) -> Dataset:
    """Read structures with their labels.

    ``path`` is a file (sGDML or rMD17 npz, extxyz, ASE trajectory or database, any other format of ASE), a
    folder of memory-mapped arrays, the name of a downloaded data set such as ``md17/ethanol``, or
    ``embedded/ethanol`` (or ``dimer``). Units are taken from the file or the arguments and never guessed; a
    given unit overrides that of the file.
    ``force_unit``, such as ``Hartree/Bohr``, is for forces in another unit than energy/length. ``keys`` maps
    numbers, positions, energy, forces, stress, charge, multiplicity, weight to the names used in the file;
    ``{"forces": "none"}`` leaves forces out on purpose. `Dataset.origin` records what was read: path, format,
    energy_unit, length_unit, units_known, force_unit if given, theory and name if stated, and notes about
    missing or unused values.
    """
    if not isinstance(path, str | os.PathLike):
        raise GeomAttError(f"Data is a file or a name such as md17/ethanol, not {path!r}.")
    given: GivenUnits = {
        "energy_unit": energy_unit,
        "length_unit": length_unit,
        "force_unit": force_unit,
    }
    for name, unit in given.items():
        if unit is not None:
            getattr(units, name)(unit)  # report a wrong unit even if it is not needed
    file = Path(path)
    if not file.exists():
        if str(path) in EMBEDDED:
            return EMBEDDED[str(path)]()
        found = locate(str(path))
        if found is None:
            if find_entry(str(path)) is not None:
                raise GeomAttError(
                    f"{path} has not been downloaded yet. Get it with: geomatt data get {path}"
                )
            raise GeomAttError(f"There is no file {path}.")
        file = found
    if file.is_dir():
        if is_mapped(file):
            return _mapped(file, given, keys)
        raise GeomAttError(f"{file} is a directory. Give the data file inside it.")
    if not file.is_file():
        raise GeomAttError(f"{file} is not a regular file.")  # a pipe or device may never end
    try:
        with open(file, "rb") as stream:
            start = stream.read(4)
    except OSError as error:
        raise GeomAttError(f"Cannot read {file}: {error.strerror}.") from error
    if not start:
        raise GeomAttError(f"{file} is empty.")
    if start == _ZIP or file.suffix.lower() == ".npz":
        return read_npz(file, **given, keys=keys, known_units=_units_of_fetched(file))
    kind = "extxyz" if extxyz.is_extxyz(file) else ase_format(file)
    frames = extxyz.frames(file) if kind in ("extxyz", "xyz") else ase_frames(file, kind)
    return read_frames(file, kind, frames, **given, keys=keys)


def write(dataset: Dataset, path: str | Path, *, energy_unit: str | None = None) -> None:
    """Write a data set atomically as .npz with the keys of sGDML, as .xyz or .extxyz, or as .arrays.

    npz stores energies in ``energy_unit`` (by default the unit of the original file), extxyz in eV. A folder
    .arrays is mapped into memory when it is read.
    """
    require("data", dataset, Dataset, "Dataset.from_structures([...])")
    if Path(path).suffix.lower() == SUFFIX:
        write_mapped([dataset], Path(path))
        return
    path = require_writable(path)
    if not len(dataset):
        raise GeomAttError("There are no structures to write.")
    suffix = path.suffix.lower()
    if suffix == ".npz":
        write_npz(dataset, path, units.energy_unit(energy_unit or report_unit(dataset)))
    elif suffix in (".xyz", ".extxyz"):
        if energy_unit is not None and units.energy_unit(energy_unit) != "eV":
            raise GeomAttError("extxyz files are in eV and Å. Write an npz file for another unit.")
        extxyz.write_extxyz(dataset, path)
    else:
        raise GeomAttError(f"Cannot write {path}: the name must end in .npz, .xyz, .extxyz or {SUFFIX}.")


def read_parts(
    path: str | Path, *, keys: Mapping[str, str] | None = None, **given: Unpack[GivenUnits]
) -> Iterator[Dataset]:
    """The data of `read` in parts: frames of xyz files are never all in memory, other files are one part."""
    file = Path(path)
    if not (file.is_file() and file.stat().st_size and extxyz.is_extxyz(file)):
        yield read(path, **given, keys=keys)
        return
    frames = extxyz.frames(file)
    ahead: list[Frame] = []  # the first of the next part, if there is one

    def part() -> Iterator[Frame]:
        first = [*ahead]
        yield from first
        yield from islice(frames, PART - len(first))
        ahead[:] = islice(frames, 1)

    yield read_frames(file, "extxyz", part(), **given, keys=keys)
    while ahead:
        yield read_frames(file, "extxyz", part(), **given, keys=keys)


def _mapped(folder: Path, units_given: GivenUnits, keys: Mapping[str, str] | None) -> Dataset:
    """A data set of memory-mapped arrays, without the labels that are to be left out."""
    wrong = [name for name, unit in units_given.items() if unit is not None]
    wrong += ["keys"] if any(k not in _LABELS or v != IGNORE for k, v in (keys or {}).items()) else []
    if wrong:
        raise GeomAttError(f"{folder} is in eV and Å under names of its own: leave `{wrong[0]}` out.")
    dataset = read_mapped(folder)
    for quantity in keys or {}:
        setattr(dataset, _LABELS[quantity], None)
    return dataset


def report_unit(dataset: Dataset) -> str:
    """Energy unit for reports: that of the original file, or eV."""
    return dataset.origin.get("energy_unit", "eV")


def _units_of_fetched(file: Path) -> tuple[str, str, str] | None:
    """Units of a file in the download cache, which may not state them."""
    if any(entry.target.resolve() == file.resolve() for entry in CATALOGUE):
        return (*UNITS, "known for this public data set")
    return None
