"""Trajectories of one molecule in npz files with the keys of sGDML (MD17, MD22), rMD17, or mapped ones."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from geomatt import units
from geomatt.data.files import atomic_output
from geomatt.data.io.fields import (
    IGNORE,
    add_notes,
    check_finite,
    check_mapping,
    check_numbers,
    refuse_unused_labels,
)
from geomatt.data.io.file_units import resolve_units
from geomatt.data.structures import Dataset
from geomatt.errors import GeomAttError

# Known array names of each quantity; the first is that of sGDML, the second that of rMD17.
KNOWN_KEYS = {
    "numbers": ("z", "nuclear_charges", "numbers", "atomic_numbers", "Z"),
    "positions": ("R", "coords", "positions", "coordinates"),
    "energy": ("E", "energies", "energy"),
    "forces": ("F", "forces"),
}
_RMD17_KEYS = {"nuclear_charges", "coords", "energies", "forces"}
_RMD17_MARKS = {"old_indices", "old_energies", "old_forces"}


def load_arrays(path: Path) -> dict[str, np.ndarray]:
    """All arrays of an npz file. Nothing is ever unpickled."""
    damaged = f"{path} is damaged or incomplete. Copy or download it again."
    if not zipfile.is_zipfile(path):
        with open(path, "rb") as stream:
            start = stream.read(2)
        if start == b"PK":
            raise GeomAttError(damaged)
        raise GeomAttError(f"{path} is not an npz file, whatever its name says.")
    arrays: dict[str, np.ndarray] = {}
    try:
        with np.load(path, allow_pickle=False) as archive:
            for key in archive.files:
                try:
                    value = archive[key]
                except ValueError as error:
                    if "allow_pickle" not in str(error) and "Object arrays" not in str(error):
                        raise
                    raise GeomAttError(
                        f"{path}: {key!r} is an array of Python objects. They are never unpickled, because "
                        "a pickle can run any code. Store plain numeric arrays; for molecules of different "
                        "sizes use an extxyz file."
                    ) from None
                if not isinstance(value, np.ndarray):  # numpy returns other zip members as bytes
                    raise GeomAttError(f"{path}: {key!r} is not a numpy array, so this is not an npz file.")
                arrays[key] = value
    except GeomAttError:
        raise
    except Exception:  # a damaged zip file makes its readers raise nearly anything
        raise GeomAttError(damaged) from None
    return arrays


def read_npz(
    path: str | Path,
    *,
    energy_unit: str | None = None,
    length_unit: str | None = None,
    force_unit: str | None = None,
    keys: Mapping[str, str] | None = None,
    known_units: tuple[str, str, str] | None = None,
) -> Dataset:
    """Read frames of one molecule, or of molecules with the same number of atoms.

    ``keys`` maps numbers, positions, energy, forces to other array names. ``known_units`` (energy, length,
    reason) are used if neither the file nor the caller states units.
    """
    path = Path(path)
    arrays = load_arrays(path)
    mapping = check_mapping(keys)
    names = {quantity: _find(path, arrays, quantity, mapping.get(quantity)) for quantity in KNOWN_KEYS}
    for quantity in ("numbers", "positions"):
        if names[quantity] is None:
            raise GeomAttError(
                f"{path} has no {quantity} under a known name ({', '.join(KNOWN_KEYS[quantity])}). "
                f"It contains {_describe(arrays)}. Name the array with `keys` {quantity}=NAME."
            )
    positions = _numeric(path, arrays, names["positions"])
    shape = positions.shape  # as in the file, for messages
    if shape and shape[0] == 0:
        raise GeomAttError(f"{path} contains no frames: {names['positions']!r} has shape {shape}.")
    if positions.ndim == 2:  # a single frame
        positions = positions[None]
    if positions.ndim != 3 or positions.shape[2] != 3 or 0 in shape:
        raise GeomAttError(
            f"{path}: {names['positions']!r} has shape {shape}; positions are (frames, atoms, 3)."
        )
    n, atoms, _ = positions.shape
    numbers = _atomic_numbers(path, arrays, names["numbers"], n, atoms)
    energies = forces = None
    if names["energy"] is not None:
        energies = _numeric(path, arrays, names["energy"])
        if energies.size != n or energies.shape not in ((n,), (n, 1), ()):
            raise GeomAttError(
                f"{path}: {names['energy']!r} has shape {energies.shape} for {n} frames; energies are "
                "(frames,) or (frames, 1)."
            )
        energies = energies.reshape(n)
    if names["forces"] is not None:
        forces = _numeric(path, arrays, names["forces"])
        forces = forces[None] if forces.ndim == 2 else forces
        if forces.shape != positions.shape:
            raise GeomAttError(
                f"{path}: {names['forces']!r} has shape {arrays[names['forces']].shape} but positions have "
                f"{shape}; forces are (frames, atoms, 3)."
            )
    _refuse_forgotten(path, arrays, names, mapping, n, atoms)
    check_finite(path, "positions", positions)
    check_finite(path, "energies", energies)
    check_finite(path, "forces", forces)

    kind = "sGDML npz" if {"R", "z"} <= set(names.values()) else "npz"
    if set(names.values()) == _RMD17_KEYS and (_RMD17_MARKS & set(arrays) or path.name.startswith("rmd17")):
        kind = "rMD17 npz"
        known_units = known_units or ("kcal/mol", "Ang", "recognised as a file of rMD17")
    file_units = resolve_units(
        path,
        (energy_unit, length_unit),
        (arrays.get("e_unit"), arrays.get("r_unit")),
        known_units,
        energies_matter=energies is not None or (forces is not None and force_unit is None),
        force=force_unit,
    )
    origin = file_units.origin(path, kind)
    for field in ("theory", "name"):
        if field in arrays and arrays[field].size == 1:
            origin[field] = units.text(arrays[field])
    add_notes(origin, energies is not None, forces is not None)
    return Dataset(
        numbers.reshape(-1),
        positions.reshape(-1, 3) * file_units.length_in_angstrom,
        np.arange(n + 1) * atoms,
        energies=None if energies is None else energies * file_units.energy_in_ev,
        forces=None if forces is None else forces.reshape(-1, 3) * file_units.force_in_ev_per_angstrom,
        name=origin.get("name", path.stem),
        origin=origin,
    )


def write_npz(dataset: Dataset, path: Path, energy_unit: str) -> None:
    """Write frames of one molecule with the keys of sGDML: positions in Å, energies in ``energy_unit``."""
    sizes = dataset.sizes
    frames = dataset.numbers.reshape(len(dataset), -1) if (sizes == sizes[0]).all() else None
    if frames is None or (frames != frames[0]).any():
        raise GeomAttError(
            "An npz file contains one molecule with a fixed order of atoms; these structures differ. "
            "Write an extxyz file instead."
        )
    if dataset.pbc is not None and dataset.pbc.any():
        raise GeomAttError("An npz file cannot store a periodic cell. Write an extxyz file instead.")
    factor = units.from_ev(energy_unit)
    arrays = {
        "type": np.array("d"),
        "name": np.array(dataset.name or path.stem),
        "theory": np.array(dataset.origin.get("theory", "unknown")),
        "z": frames[0].astype(np.uint8),
        "R": dataset.positions.reshape(len(dataset), -1, 3),
        "r_unit": np.array("Ang"),
        "e_unit": np.array(energy_unit),
    }
    if dataset.energies is not None:
        arrays["E"] = dataset.energies * factor
    if dataset.forces is not None:
        arrays["F"] = dataset.forces.reshape(len(dataset), -1, 3) * factor
    with atomic_output(path) as temporary, open(temporary, "wb") as stream:
        np.savez_compressed(stream, **arrays)


def _describe(arrays: Mapping[str, np.ndarray]) -> str:
    return ", ".join(f"{k} {v.dtype}{list(v.shape)}" for k, v in arrays.items()) or "no arrays"


def _find(path: Path, arrays: Mapping[str, np.ndarray], quantity: str, mapped: str | None) -> str | None:
    """Name of the array with a quantity, or None."""
    if mapped == IGNORE:
        return None
    if mapped is not None:
        if mapped not in arrays:
            raise GeomAttError(f"{path} has no array {mapped!r}. It contains {_describe(arrays)}.")
        return mapped
    found = [name for name in KNOWN_KEYS[quantity] if name in arrays]
    if len(found) > 1:
        raise GeomAttError(
            f"{path} has {' and '.join(map(repr, found))}, each of which could be the {quantity}. "
            f"Choose one, for example with `keys` {quantity}={found[0]}."
        )
    return found[0] if found else None


def _numeric(path: Path, arrays: Mapping[str, np.ndarray], name: str | None) -> np.ndarray:
    assert name is not None
    if arrays[name].dtype.kind not in "fiu":
        raise GeomAttError(f"{path}: {name!r} contains {arrays[name].dtype}, not real numbers.")
    return arrays[name].astype(np.float64)


def _atomic_numbers(
    path: Path, arrays: Mapping[str, np.ndarray], name: str | None, n: int, atoms: int
) -> np.ndarray:
    """Atomic numbers of every frame, (n, atoms)."""
    numbers = _numeric(path, arrays, name)
    if numbers.shape not in ((atoms,), (n, atoms)):
        raise GeomAttError(
            f"{path}: {name!r} has shape {numbers.shape} but positions have {atoms} atoms in {n} frames; "
            "atomic numbers are (atoms,) or (frames, atoms)."
        )
    if (numbers != np.round(numbers)).any():
        raise GeomAttError(f"{path}: {name!r} has values that are not integers; atomic numbers are.")
    check_numbers(path, numbers.reshape(-1))
    return np.broadcast_to(numbers.astype(np.int64), (n, atoms))


def _refuse_forgotten(
    path: Path,
    arrays: Mapping[str, np.ndarray],
    names: Mapping[str, str | None],
    mapping: Mapping[str, str],
    n: int,
    atoms: int,
) -> None:
    """Raise an error if a label seems to be present under an unknown name."""
    shapes = {"energy": ((n,), (n, 1)), "forces": ((n, atoms, 3), (n, atoms * 3))}
    for quantity, wanted in shapes.items():
        if names[quantity] is None and mapping.get(quantity) != IGNORE:
            used = set(names.values())
            candidates = (
                k for k, v in arrays.items() if v.dtype.kind == "f" and v.shape in wanted and k not in used
            )
            refuse_unused_labels(path, quantity, candidates)
