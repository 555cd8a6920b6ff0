"""What every reader does at the border: know the units, refuse bad numbers, turn labels into eV and Å."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from geomatt import units
from geomatt.errors import GeomAttError

QUANTITIES = ("numbers", "positions", "energy", "forces")
IGNORE = "none"  # `--key energy=none`: read without that label, on purpose
NOT_LABELS = {
    *("time", "step", "temperature", "temp", "pressure", "volume", "charge", "spin", "weight", "uid"),
    *("momenta", "velocities", "velocity", "velo", "v", "masses", "dipole", "magmoms", "magmom"),
    *("initial_magmoms", "initial_charges", "charges", "tags", "old_energies", "old_forces"),
}


@dataclass(frozen=True)
class FileUnits:
    """The units of a file, by canonical name, and how they are known."""

    energy: str
    length: str
    known: str
    force: str | None = None  # where it is not energy/length

    @property
    def energy_in_ev(self) -> float:
        return units.ENERGY_IN_EV[self.energy]

    @property
    def length_in_angstrom(self) -> float:
        return units.LENGTH_IN_ANGSTROM[self.length]

    @property
    def force_in_ev_per_angstrom(self) -> float:
        return units.force_factor(self.force or f"{self.energy}/{self.length}")

    def origin(self, path: Path, kind: str) -> dict[str, str]:
        """The beginning of `Dataset.origin`."""
        origin = {
            "path": str(path),
            "format": kind,
            "energy_unit": self.energy,
            "length_unit": self.length,
            "units_known": self.known,
        }
        return origin if self.force is None else {**origin, "force_unit": self.force}


def resolve_units(
    path: Path,
    given: tuple[str | None, str | None],
    in_file: tuple[Any, Any] = (None, None),
    known: tuple[str, str, str] | None = None,
    energies_matter: bool = True,
    force: str | None = None,
) -> FileUnits:
    """Units of energy and length: given by the user, else read from the file, else ``known``, else an error.

    ``known`` is (energy unit, length unit, why). Without any label the energy unit does not matter. Forces
    are in energy/length unless ``force`` says otherwise.
    """
    force = None if force is None else units.force_unit(force)
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
                raise GeomAttError(f"{path}: {error} Give it with --{kind}-unit.") from None
            reasons.append("read from the file")
        elif known is not None:
            chosen.append(known[i])
            reasons.append(known[2])
        elif kind == "energy" and not energies_matter:
            chosen.append(default)
            reasons.append("no energies in the file")
        else:
            raise GeomAttError(
                f"{path} does not say its {kind} unit, and it is never guessed. Give the units, for example: "
                "--energy-unit kcal/mol --length-unit Ang (in Python: energy_unit=..., length_unit=...)."
            )
    if reasons[0] == reasons[1]:
        return FileUnits(chosen[0], chosen[1], reasons[0], force)
    return FileUnits(chosen[0], chosen[1], f"energy {reasons[0]}; length {reasons[1]}", force)


def check_mapping(keys: Mapping[str, str] | None) -> dict[str, str]:
    """A key mapping whose left sides are quantities we know."""
    mapping = dict(keys or {})
    for quantity in mapping:
        if quantity not in QUANTITIES:
            raise GeomAttError(
                f"Cannot map a key to {quantity!r}. Write --key QUANTITY=KEY with QUANTITY one of "
                f"{', '.join(QUANTITIES)}, for example --key energy=my_energy."
            )
        if quantity in ("numbers", "positions") and mapping[quantity] == IGNORE:
            raise GeomAttError(f"{quantity} cannot be left out: every structure needs them.")
    return mapping


def refuse_unused_labels(path: Path, quantity: str, candidates: Iterable[str]) -> None:
    """Raise if a label was not found but something under another name looks like it."""
    names = sorted(name for name in candidates if name.lower() not in NOT_LABELS)
    if names:
        raise GeomAttError(
            f"{path} has no {quantity} under a name known here, but {', '.join(map(repr, names))} could be "
            f"it. Say which with --key {quantity}={names[0]}, or leave it out on purpose with "
            f"--key {quantity}={IGNORE}."
        )


def check_numbers(path: Path, numbers: np.ndarray) -> None:
    """Atomic numbers must be elements: 1 to 118."""
    bad = numbers[(numbers < 1) | (numbers > 118)]
    if len(bad):
        hint = " Zero usually is padding; mixed molecules belong in an extxyz file." if 0 in bad else ""
        raise GeomAttError(f"{path} has {int(bad[0])} as an atomic number; elements are 1 to 118.{hint}")


def check_finite(path: Path, what: str, values: np.ndarray | None) -> None:
    """Refuse NaN and infinity, naming the first frame that has one (first axis is the frame)."""
    if values is None or np.isfinite(values).all():
        return
    wrong = np.flatnonzero(~np.isfinite(values.reshape(len(values), -1)).all(axis=1))
    raise GeomAttError(
        f"{path}: {what} of {len(wrong)} frame(s) contain NaN or infinity (first: frame {wrong[0]}). "
        "Remove those frames or label them again."
    )


def add_notes(origin: dict[str, str], has_energy: bool, has_forces: bool) -> None:
    """Announce missing labels in ``origin['notes']``, so that nobody misses them silently."""
    missing = [name for name, there in (("energies", has_energy), ("forces", has_forces)) if not there]
    if missing:
        origin["notes"] = f"The file has no {' and no '.join(missing)}."
