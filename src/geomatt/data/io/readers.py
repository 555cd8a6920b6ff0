"""Read any supported file as a `Dataset` in eV and Å; write one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from geomatt import units
from geomatt.data.files import require_writable
from geomatt.data.io.ase_io import read_ase, write_extxyz
from geomatt.data.io.npz import read_npz, write_npz
from geomatt.data.public.catalogue import CATALOGUE, UNITS, find_entry, locate
from geomatt.data.public.embedded import EMBEDDED
from geomatt.data.structures import Dataset
from geomatt.errors import GeomAttError

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

    ``path`` is a file (sGDML or rMD17 npz, extxyz, whatever ASE reads, ASE db), the name of a fetched data
    set such as ``md17/ethanol``, or ``embedded/ethanol`` (or ``dimer``). Units come from the file or from
    the arguments and are never guessed; a given unit wins over the file's. ``force_unit``, such as
    ``Hartree/Bohr``, is for forces in another unit than energy/length. ``keys`` maps numbers, positions,
    energy, forces to the names used in the file; ``{"forces": "none"}`` leaves forces out on purpose.
    `Dataset.origin` says what was read: path, format, energy_unit, length_unit, units_known, force_unit if
    given, theory and name if stated, and notes about what is missing.
    """
    given = {"energy_unit": energy_unit, "length_unit": length_unit, "force_unit": force_unit}
    for name, unit in given.items():
        if unit is not None:
            getattr(units, name)(unit)  # a wrong unit is reported even where it would not be needed
    file = Path(path)
    if not file.exists():
        if str(path) in EMBEDDED:
            return EMBEDDED[str(path)]()
        found = locate(str(path))
        if found is None:
            if find_entry(str(path)) is not None:
                raise GeomAttError(f"{path} has not been fetched yet. Get it with: geomatt data get {path}")
            raise GeomAttError(f"There is no file {path}.")
        file = found
    if file.is_dir():
        raise GeomAttError(f"{file} is a directory. Give the file inside it that holds the data.")
    try:
        with open(file, "rb") as stream:
            start = stream.read(4)
    except OSError as error:
        raise GeomAttError(f"Cannot read {file}: {error.strerror}.") from error
    if not start:
        raise GeomAttError(f"{file} is empty.")
    if start == _ZIP or file.suffix.lower() == ".npz":
        return read_npz(file, **given, keys=keys, known_units=_units_of_fetched(file))
    return read_ase(file, **given, keys=keys)


def write(dataset: Dataset, path: str | Path, *, energy_unit: str | None = None) -> None:
    """Write a data set, whole or not at all: ``.npz`` with sGDML's keys, or ``.xyz``/``.extxyz``.

    npz stores energies in ``energy_unit`` (the unit of the file they came from by default), extxyz in eV.
    """
    path = require_writable(path)
    if not len(dataset):
        raise GeomAttError("There is no structure to write.")
    suffix = path.suffix.lower()
    if suffix == ".npz":
        write_npz(dataset, path, units.energy_unit(energy_unit or report_unit(dataset)))
    elif suffix in (".xyz", ".extxyz"):
        if energy_unit is not None and units.energy_unit(energy_unit) != "eV":
            raise GeomAttError("extxyz files are in eV and Å. For another unit write an npz file.")
        write_extxyz(dataset, path)
    else:
        raise GeomAttError(f"Cannot write {path}: the name must end in .npz, .xyz or .extxyz.")


def report_unit(dataset: Dataset) -> str:
    """The energy unit for reports: that of the file (kcal/mol for MD17 and its kin), eV without a file."""
    return dataset.origin.get("energy_unit", "eV")


def _units_of_fetched(file: Path) -> tuple[str, str, str] | None:
    """Files in the download cache have known units, whether or not they state them."""
    if any(entry.target.resolve() == file.resolve() for entry in CATALOGUE):
        return (*UNITS, "known for this public data set")
    return None
