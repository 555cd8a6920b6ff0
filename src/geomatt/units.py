"""Units. Inside the package everything is in eV and Å; files and reports may use other units."""

from __future__ import annotations

from typing import Any

import numpy as np

from geomatt.errors import GeomAttError

# CODATA 2018: one unit in eV (energy) or Å (length).
ENERGY_IN_EV = {
    "eV": 1.0,
    "kcal/mol": 0.043364104241800934,
    "kJ/mol": 0.010364269656262174,
    "Hartree": 27.211386245988,
}
LENGTH_IN_ANGSTROM = {"Ang": 1.0, "Bohr": 0.529177210903}
GIGAPASCAL = 160.21766208  # in one eV/Å³
BOLTZMANN = 8.617333262e-5  # eV/K
# With eV, Å and atomic mass units, the unit of time is Å √(u/eV), about 10.18 fs.
FEMTOSECOND = 1e-5 / (1.66053906660e-27 / 1.602176634e-19) ** 0.5

_ENERGY_ALIASES = {
    "ev": "eV",
    "electronvolt": "eV",
    "kcal/mol": "kcal/mol",
    "kcalmol": "kcal/mol",
    "kcal mol-1": "kcal/mol",
    "kcal": "kcal/mol",
    "kj/mol": "kJ/mol",
    "kjmol": "kJ/mol",
    "hartree": "Hartree",
    "ha": "Hartree",
    "eh": "Hartree",
    "a.u.": "Hartree",
    "au": "Hartree",
}
_LENGTH_ALIASES = {
    "ang": "Ang",
    "angstrom": "Ang",
    "angstroms": "Ang",
    "å": "Ang",
    "a": "Ang",
    "bohr": "Bohr",
    "a0": "Bohr",
    "au": "Bohr",
    "a.u.": "Bohr",
}


def text(value: Any) -> str:
    """A string field of a file (str, bytes or an array of one of them) as str."""
    if isinstance(value, np.ndarray):
        value = value.reshape(-1)[0] if value.size == 1 else value.tolist()
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def energy_unit(name: Any) -> str:
    """Canonical name of an energy unit; an unknown one raises an error that lists the known ones."""
    return _canonical(name, _ENERGY_ALIASES, "energy", ENERGY_IN_EV)


def length_unit(name: Any) -> str:
    """Canonical name of a length unit; an unknown one raises an error that lists the known ones."""
    return _canonical(name, _LENGTH_ALIASES, "length", LENGTH_IN_ANGSTROM)


def force_unit(name: Any) -> str:
    """Canonical name of a force unit ENERGY/LENGTH such as kcal/mol/Ang, split at the last slash."""
    energy, slash, length = text(name).rpartition("/")
    try:
        if not slash:
            raise GeomAttError("The length is missing.")
        return f"{energy_unit(energy)}/{length_unit(length)}"
    except GeomAttError as error:
        raise GeomAttError(
            f"Unknown force unit {text(name)!r}. {error} Write ENERGY/LENGTH, for example Hartree/Bohr, "
            "eV/Ang or kcal/mol/Ang."
        ) from None


def force_factor(force_unit_name: Any) -> float:
    """Factor that converts forces in this unit to eV/Å."""
    energy, _, length = force_unit(force_unit_name).rpartition("/")
    return ENERGY_IN_EV[energy] / LENGTH_IN_ANGSTROM[length]


def _canonical(name: Any, aliases: dict[str, str], kind: str, known: dict[str, float]) -> str:
    key = text(name).strip().lower()
    if key not in aliases:
        raise GeomAttError(f"Unknown {kind} unit {text(name)!r}. Use one of: {', '.join(known)}.")
    return aliases[key]


def from_ev(unit: str) -> float:
    """Factor that converts eV to ``unit``, and eV/Å to ``unit``/Å."""
    return 1.0 / ENERGY_IN_EV[energy_unit(unit)]
