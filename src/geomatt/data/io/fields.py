"""Checks that every reader applies to the fields of a file: names, atomic numbers, finite values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from geomatt.data.dataset import Dataset
from geomatt.errors import GeomAttError
from geomatt.settings import typed

NEEDED = ("numbers", "positions")
QUANTITIES = (*NEEDED, "energy", "forces", "stress", "charge", "multiplicity", "weight")
WEIGHT_KEYS = ("weight", "config_weight")  # used only if mapped: the name may mean something else
IGNORE = "none"  # keys={"energy": "none"} leaves a label out on purpose
LARGEST = 1e12  # Å, eV, ...; larger numbers come from damaged files
NOT_LABELS = {
    *("time", "step", "temperature", "temp", "pressure", "volume", "spin", "weight", "config_weight", "uid"),
    *("charge", "total_charge", "multiplicity", "spin_multiplicity"),
    *("momenta", "velocities", "velocity", "velo", "v", "masses", "dipole", "magmoms", "magmom"),
    *("initial_magmoms", "initial_charges", "charges", "tags", "old_energies", "old_forces"),
}


def check_mapping(keys: Mapping[str, str] | None) -> dict[str, str]:
    """``keys`` as a dictionary; raise an error for unknown quantities."""
    mapping: dict[str, str] = typed("keys", keys or {}, dict[str, str])
    for quantity in mapping:
        if quantity not in QUANTITIES:
            raise GeomAttError(
                f"{quantity!r} is not a quantity that `keys` can map. Known are {', '.join(QUANTITIES)}; for "
                "example `keys` energy=my_energy."
            )
        if quantity in NEEDED and mapping[quantity] == IGNORE:
            raise GeomAttError(f"{quantity} cannot be left out: every structure needs them.")
    return mapping


def refuse_unused_labels(path: Path, quantity: str, candidates: Iterable[str]) -> None:
    """Raise an error if a label was not found but a field of another name has its shape."""
    names = sorted(name for name in candidates if name.lower() not in NOT_LABELS)
    if names:
        raise GeomAttError(
            f"{path} has no {quantity} under a known name, but {', '.join(map(repr, names))} could be it. "
            f"Give `keys` {quantity}={names[0]} to read it, or `keys` {quantity}={IGNORE} to leave it out."
        )


def check_numbers(path: Path, numbers: np.ndarray) -> None:
    """Raise an error for atomic numbers outside 1 to 118."""
    bad = numbers[(numbers < 1) | (numbers > 118)]
    if len(bad):
        hint = (
            " Zero usually is padding; store molecules of different sizes in an extxyz file."
            if 0 in bad
            else ""
        )
        raise GeomAttError(f"{path} has {bad[0]:g} as an atomic number; elements are 1 to 118.{hint}")


def check_weight(value: Any) -> float:
    """The weight of a structure as float, or an error."""
    array = np.asarray(value)
    if array.size != 1 or array.dtype.kind not in "fiu" or not 0 <= array.reshape(-1)[0] <= LARGEST:
        raise GeomAttError(f"The weight of a structure is {value!r}; it should be a number, 0 or larger.")
    return float(array.reshape(-1)[0])


def unused_weight(name: str) -> str:
    """A note about a field that could be the weight."""
    return f"'{name}' is not used as a weight unless `keys` weight={name} is given."


def in_range(values: np.ndarray | float) -> bool:
    """True if all values are finite and of a size that occurs."""
    return bool((np.abs(values) <= LARGEST).all())  # false for NaN


def check_finite(path: Path, what: str, values: np.ndarray | None) -> None:
    """Raise an error for NaN, infinity and absurd values (the first axis is the frame)."""
    if values is not None and not in_range(values):
        refuse_frames(path, what, np.flatnonzero([not in_range(frame) for frame in values]))


def refuse_frames(path: Path, what: str, frames: np.ndarray | list[int]) -> None:
    """Raise an error if there are frames with unusable numbers, naming the first."""
    if len(frames):
        raise GeomAttError(
            f"{path}: {what} of {len(frames)} frame(s) contain NaN, infinity or numbers beyond {LARGEST:g} "
            f"(first: frame {frames[0]}). Remove these frames or compute their labels again."
        )


def add_notes(dataset: Dataset, notes: Iterable[str] = ()) -> None:
    """Record missing labels and `notes` in ``origin['notes']``."""
    found = list(dict.fromkeys(notes))
    missing = [name for name in ("energies", "forces") if getattr(dataset, name) is None]
    if missing:
        found.insert(0, f"The file has no {' and no '.join(missing)}.")
    for name, known in (("forces", dataset.has_forces), ("stress", dataset.has_stress)):
        if known.any() and not known.all():
            found.append(f"{np.count_nonzero(~known)} of {len(known)} structures have no {name}.")
    if found:
        dataset.origin["notes"] = " ".join(found)
