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


# Molecular formula (None if not known with certainty) and number of atoms.
_MOLECULES: dict[str, tuple[str | None, int]] = {
    "aspirin": ("C9H8O4", 21),
    "azobenzene": ("C12H10N2", 24),
    "benzene": ("C6H6", 12),
    "ethanol": ("C2H6O", 9),
    "malonaldehyde": ("C3H4O2", 9),
    "naphthalene": ("C10H8", 18),
    "paracetamol": ("C8H9NO2", 20),
    "salicylic": ("C7H6O3", 16),
    "toluene": ("C7H8", 15),
    "uracil": ("C4H4N2O2", 12),
    "AT-AT": ("C20H22N14O4", 60),
    "AT-AT-CG-CG": ("C38H42N30O8", 118),
    "Ac-Ala3-NHMe": ("C12H22N4O4", 42),
    "DHA": ("C22H32O2", 56),
    "stachyose": ("C24H42O21", 87),
    "buckyball-catcher": ("C120H28", 148),
    "double-walled_nanotube": (None, 370),
}


def _gdml(collection: str, molecule: str, aliases: tuple[str, ...] = (), file: str | None = None) -> Entry:
    filename = f"{collection}_{file or molecule}.npz"
    formula, atoms = _MOLECULES[molecule]
    return Entry(
        f"{collection}/{molecule}", _GDML + filename, filename, aliases, formula=formula, atoms=atoms
    )


def _rmd17(molecule: str, aliases: tuple[str, ...] = ()) -> Entry:
    formula, atoms = _MOLECULES[molecule]
    name, filename = f"rmd17/{molecule}", f"rmd17_{molecule}.npz"
    return Entry(name, _RMD17, filename, aliases, archive="rmd17.tar.bz2", formula=formula, atoms=atoms)


CATALOGUE: tuple[Entry, ...] = (
    _gdml("md17", "aspirin"),
    _gdml("md17", "benzene", ("benzene2017",), file="benzene2017"),
    _gdml("md17", "ethanol"),
    _gdml("md17", "malonaldehyde"),
    _gdml("md17", "naphthalene"),
    _gdml("md17", "salicylic", ("salicylic_acid",)),
    _gdml("md17", "toluene"),
    _gdml("md17", "uracil"),
    _rmd17("aspirin"),
    _rmd17("azobenzene"),
    _rmd17("benzene"),
    _rmd17("ethanol"),
    _rmd17("malonaldehyde"),
    _rmd17("naphthalene"),
    _rmd17("paracetamol"),
    _rmd17("salicylic", ("salicylic_acid",)),
    _rmd17("toluene"),
    _rmd17("uracil"),
    _gdml("md22", "AT-AT"),
    _gdml("md22", "AT-AT-CG-CG"),
    _gdml("md22", "Ac-Ala3-NHMe"),
    _gdml("md22", "DHA"),
    _gdml("md22", "stachyose"),
    _gdml("md22", "buckyball-catcher"),
    _gdml("md22", "double-walled_nanotube"),
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
