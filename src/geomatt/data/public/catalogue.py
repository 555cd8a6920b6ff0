"""Catalogue of public data sets: names, addresses and locations in the cache."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from geomatt.cache import cache_directory

UNITS = ("kcal/mol", "Ang")  # of every data set in the catalogue

_GDML = "http://www.quantum-machine.org/gdml/data/npz/"
_RMD17 = "https://archive.materialscloud.org/record/file?filename=rmd17.tar.bz2&record_id=466"


@dataclass(frozen=True)
class Entry:
    """One public data set: its name, its address and its file name in the cache."""

    name: str  # such as md17/aspirin
    address: str
    filename: str
    aliases: tuple[str, ...] = ()  # other names of the molecule
    archive: str | None = None  # name of the file at the address if it is an archive
    formula: str | None = None  # in Hill order
    atoms: int | None = None

    @property
    def collection(self) -> str:
        return self.name.split("/")[0]

    @property
    def target(self) -> Path:
        """Path of the downloaded file in the cache."""
        return cache_directory() / self.collection / self.filename


# Molecular formula (None if not known with certainty), number of atoms, and the collections with it.
_MOLECULES: dict[str, tuple[str | None, int, tuple[str, ...]]] = {
    "aspirin": ("C9H8O4", 21, ("md17", "rmd17")),
    "azobenzene": ("C12H10N2", 24, ("rmd17",)),
    "benzene": ("C6H6", 12, ("md17", "rmd17")),
    "ethanol": ("C2H6O", 9, ("md17", "rmd17")),
    "malonaldehyde": ("C3H4O2", 9, ("md17", "rmd17")),
    "naphthalene": ("C10H8", 18, ("md17", "rmd17")),
    "paracetamol": ("C8H9NO2", 20, ("rmd17",)),
    "salicylic": ("C7H6O3", 16, ("md17", "rmd17")),
    "toluene": ("C7H8", 15, ("md17", "rmd17")),
    "uracil": ("C4H4N2O2", 12, ("md17", "rmd17")),
    "AT-AT": ("C20H22N14O4", 60, ("md22",)),
    "AT-AT-CG-CG": ("C38H42N30O8", 118, ("md22",)),
    "Ac-Ala3-NHMe": ("C12H22N4O4", 42, ("md22",)),
    "DHA": ("C22H32O2", 56, ("md22",)),
    "stachyose": ("C24H42O21", 87, ("md22",)),
    "buckyball-catcher": ("C120H28", 148, ("md22",)),
    "double-walled_nanotube": (None, 370, ("md22",)),
}
_ALIASES = {
    "md17/benzene": "benzene2017",
    "md17/salicylic": "salicylic_acid",
    "rmd17/salicylic": "salicylic_acid",
}
_FILES = {"md17/benzene": "md17_benzene2017.npz"}  # where the name does not say it


def _entry(collection: str, molecule: str) -> Entry:
    formula, atoms, _ = _MOLECULES[molecule]
    name = f"{collection}/{molecule}"
    file = _FILES.get(name, f"{collection}_{molecule}.npz")
    aliases = (_ALIASES[name],) if name in _ALIASES else ()
    if collection == "rmd17":
        return Entry(name, _RMD17, file, aliases, "rmd17.tar.bz2", formula, atoms)
    return Entry(name, _GDML + file, file, aliases, None, formula, atoms)


CATALOGUE: tuple[Entry, ...] = tuple(
    _entry(collection, molecule)
    for collection in ("md17", "rmd17", "md22")
    for molecule, (_, _, collections) in _MOLECULES.items()
    if collection in collections
)


def find_entry(name: str) -> Entry | None:
    """The entry with this name or alias (case-insensitive), or None."""
    wanted = str(name).strip().lower()
    for entry in CATALOGUE:
        if wanted in {entry.name.lower(), *(f"{entry.collection}/{a}".lower() for a in entry.aliases)}:
            return entry
    return None


def locate(name: str) -> Path | None:
    """Path of the downloaded data set, or None if it is unknown or not downloaded."""
    entry = find_entry(name)
    return entry.target if entry is not None and entry.target.is_file() else None
