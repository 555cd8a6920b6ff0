"""Checks that every reader applies to the fields of a file: names, atomic numbers, finite values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from geomatt.errors import GeomAttError

QUANTITIES = ("numbers", "positions", "energy", "forces")
IGNORE = "none"  # keys={"energy": "none"} leaves a label out on purpose
NOT_LABELS = {
    *("time", "step", "temperature", "temp", "pressure", "volume", "charge", "spin", "weight", "uid"),
    *("momenta", "velocities", "velocity", "velo", "v", "masses", "dipole", "magmoms", "magmom"),
    *("initial_magmoms", "initial_charges", "charges", "tags", "old_energies", "old_forces"),
}


def check_mapping(keys: Mapping[str, str] | None) -> dict[str, str]:
    """``keys`` as a dictionary; raise an error for unknown quantities."""
    mapping = dict(keys or {})
    for quantity in mapping:
        if quantity not in QUANTITIES:
            raise GeomAttError(
                f"{quantity!r} is not a quantity that `keys` can map. Known are {', '.join(QUANTITIES)}; for "
                "example `keys` energy=my_energy."
            )
        if quantity in ("numbers", "positions") and mapping[quantity] == IGNORE:
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
        raise GeomAttError(f"{path} has {int(bad[0])} as an atomic number; elements are 1 to 118.{hint}")


def check_finite(path: Path, what: str, values: np.ndarray | None) -> None:
    """Raise an error for NaN or infinity, naming the first such frame (the first axis is the frame)."""
    if values is None or np.isfinite(values).all():
        return
    wrong = np.flatnonzero(~np.isfinite(values.reshape(len(values), -1)).all(axis=1))
    raise GeomAttError(
        f"{path}: {what} of {len(wrong)} frame(s) contain NaN or infinity (first: frame {wrong[0]}). "
        "Remove these frames or compute their labels again."
    )


def add_notes(origin: dict[str, str], has_energy: bool, has_forces: bool) -> None:
    """Record missing labels in ``origin['notes']``."""
    missing = [name for name, there in (("energies", has_energy), ("forces", has_forces)) if not there]
    if missing:
        origin["notes"] = f"The file has no {' and no '.join(missing)}."
