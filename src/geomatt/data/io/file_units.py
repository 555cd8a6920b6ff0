"""Units of a file: given by the caller, stated in the file, or known; never guessed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

from geomatt import units
from geomatt.errors import GeomAttError


@dataclass(frozen=True)
class FileUnits:
    """Canonical names of the units of a file, and how they are known."""

    energy: str
    length: str
    known: str
    force: str | None = None  # None: energy/length

    @property
    def energy_in_ev(self) -> float:
        return units.ENERGY_IN_EV[self.energy]

    @property
    def length_in_angstrom(self) -> float:
        return units.LENGTH_IN_ANGSTROM[self.length]

    @property
    def force_in_ev_per_angstrom(self) -> float:
        return units.force_factor(self.force or f"{self.energy}/{self.length}")

    @property
    def stress_in_ev_per_angstrom3(self) -> float:
        return self.energy_in_ev / self.length_in_angstrom**3

    def origin(self, path: Path, kind: str) -> dict[str, str]:
        """The first entries of `Dataset.origin`."""
        origin = {
            "path": str(path),
            "format": kind,
            "energy_unit": self.energy,
            "length_unit": self.length,
            "units_known": self.known,
        }
        return origin if self.force is None else {**origin, "force_unit": self.force}


class GivenUnits(TypedDict, total=False):
    """Units that the caller states, see `readers.read`."""

    energy_unit: str | None
    length_unit: str | None
    force_unit: str | None


def resolve_units(
    path: Path,
    stated: GivenUnits,
    in_file: tuple[Any, Any] = (None, None),
    known: tuple[str, str, str] | None = None,
    labelled: bool = True,
) -> FileUnits:
    """Units of energy and length: as stated, else as in the file, else ``known``, else an error.

    ``known`` is (energy unit, length unit, reason). A file that is not ``labelled`` needs no energy unit.
    """
    force = stated.get("force_unit")
    force = None if force is None else units.force_unit(force)
    given = stated.get("energy_unit"), stated.get("length_unit")
    chosen: list[str] = []
    reasons: list[str] = []
    canonical = (units.energy_unit, units.length_unit)
    for i, (kind, default) in enumerate((("energy", "eV"), ("length", "Ang"))):
        if given[i] is not None:
            chosen.append(canonical[i](given[i]))
            reasons.append("given")
            if in_file[i] is not None and units.text(in_file[i]).strip().lower() != str(given[i]).lower():
                reasons[-1] = f"given, in place of {kind} unit {units.text(in_file[i])!r} in the file"
        elif in_file[i] is not None:
            try:
                chosen.append(canonical[i](in_file[i]))
            except GeomAttError as error:
                raise GeomAttError(f"{path}: {error} Give `{kind}_unit`.") from None
            reasons.append("read from the file")
        elif known is not None:
            chosen.append(known[i])
            reasons.append(known[2])
        elif kind == "energy" and not labelled:
            chosen.append(default)
            reasons.append("no energies in the file")
        else:
            raise GeomAttError(
                f"{path} does not state its {kind} unit, and units are never guessed. Give them, for example "
                "`energy_unit` kcal/mol `length_unit` Ang."
            )
    if reasons[0] == reasons[1]:
        return FileUnits(chosen[0], chosen[1], reasons[0], force)
    return FileUnits(chosen[0], chosen[1], f"energy {reasons[0]}; length {reasons[1]}", force)
