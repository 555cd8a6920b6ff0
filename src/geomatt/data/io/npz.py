"""Trajectories of one molecule in npz files with the keys of sGDML (MD17, MD22), rMD17, or mapped ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Unpack

import numpy as np

from geomatt import units
from geomatt.data.dataset import Dataset
from geomatt.data.electrons import CHARGE_KEYS, MULTIPLICITY_KEYS, check_charge, check_multiplicity
from geomatt.data.io.archive import Archive
from geomatt.data.io.fields import (
    IGNORE,
    NEEDED,
    WEIGHT_KEYS,
    add_notes,
    check_finite,
    check_mapping,
    check_numbers,
    check_weight,
    refuse_unused_labels,
    unused_weight,
)
from geomatt.data.io.file_units import GivenUnits, resolve_units
from geomatt.errors import GeomAttError
from geomatt.files import atomic_output

# Known array names of each quantity; the first is that of sGDML, the second that of rMD17.
KNOWN_KEYS: dict[str, tuple[str, ...]] = {
    "numbers": ("z", "nuclear_charges", "numbers", "atomic_numbers", "Z"),
    "positions": ("R", "coords", "positions", "coordinates"),
    "energy": ("E", "energies", "energy"),
    "forces": ("F", "forces"),
    "charge": CHARGE_KEYS,
    "multiplicity": MULTIPLICITY_KEYS,
    "weight": (),  # only if mapped
}
_RMD17_KEYS = {"nuclear_charges", "coords", "energies", "forces"}
_RMD17_MARKS = {"old_indices", "old_energies", "old_forces"}
_LONGEST_TEXT = 10_000  # bytes


def read_npz(
    path: str | Path,
    *,
    keys: Mapping[str, str] | None = None,
    known_units: tuple[str, str, str] | None = None,
    **stated: Unpack[GivenUnits],
) -> Dataset:
    """Read frames of one molecule, or of molecules with the same number of atoms.

    ``keys`` maps quantities to other array names. ``known_units`` (energy, length, reason) are used if
    neither the file nor the caller states units.
    """
    path = Path(path)
    mapping = check_mapping(keys)
    if mapping.get("stress", IGNORE) != IGNORE:
        raise GeomAttError(
            f"{path}: stress is not read from npz files, which have no cell. Use an extxyz file."
        )
    archive = Archive(path)
    for name in mapping.values():
        if name != IGNORE and name not in archive:
            raise GeomAttError(f"{path} has no array {name!r}. It contains {archive!r}.")
    names = {quantity: _find(archive, quantity, mapping.get(quantity)) for quantity in KNOWN_KEYS}
    n, atoms = _check_shapes(archive, names)
    _refuse_forgotten(archive, names, mapping, n, atoms)
    kind = "sGDML npz" if {"R", "z"} <= set(names.values()) else "npz"
    labels = {name for quantity, name in names.items() if quantity in (*NEEDED, "energy", "forces")}
    if labels == _RMD17_KEYS and (_RMD17_MARKS & set(archive) or path.name.startswith("rmd17")):
        kind = "rMD17 npz"
        known_units = known_units or ("kcal/mol", "Ang", "recognised as a file of rMD17")
    in_file = _text(archive, "e_unit"), _text(archive, "r_unit")
    labelled = names["energy"] is not None
    labelled |= names["forces"] is not None and stated.get("force_unit") is None
    file_units = resolve_units(path, stated, in_file, known_units, labelled)

    def frames(quantity: str, shape: tuple[int, ...], factor: float, what: str) -> np.ndarray | None:
        """A quantity in eV and Å."""
        if names[quantity] is None:
            return None
        with np.errstate(over="ignore", invalid="ignore"):  # infinite results are refused
            values = _numeric(archive, names[quantity]).reshape(shape) * factor
        check_finite(path, what, values)
        return values

    positions = frames("positions", (n, atoms, 3), file_units.length_in_angstrom, "positions")
    assert positions is not None
    forces = frames("forces", (n, atoms, 3), file_units.force_in_ev_per_angstrom, "forces")
    origin = file_units.origin(path, kind)
    for field in ("theory", "name", "made_by"):
        if (text := _text(archive, field)) is not None:
            origin[field] = text
    dataset = Dataset(
        _atomic_numbers(archive, names["numbers"], n, atoms).reshape(-1),
        positions.reshape(-1, 3),
        np.arange(n + 1) * atoms,
        energies=frames("energy", (n,), file_units.energy_in_ev, "energies"),
        forces=None if forces is None else forces.reshape(-1, 3),
        charges=_per_frame(archive, names["charge"], n, check_charge, 0.0),
        multiplicities=_per_frame(archive, names["multiplicity"], n, check_multiplicity, None),
        weights=_per_frame(archive, names["weight"], n, check_weight, 1.0),
        name=origin.get("name", path.stem),
        origin=origin,
    )
    add_notes(dataset, _unused_weights(archive, mapping))
    return dataset


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
    if dataset.forces is not None and not dataset.has_forces.all():
        raise GeomAttError(
            "An npz file cannot store forces of only some structures. Write an extxyz file instead."
        )
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
    if "made_by" in dataset.origin:
        arrays["made_by"] = np.array(dataset.origin["made_by"])
    if dataset.info is not None and all("walker" in info for info in dataset.info):
        arrays["segment"] = np.array([info["walker"] for info in dataset.info])  # independent trajectories
    if dataset.energies is not None:
        arrays["E"] = dataset.energies * factor
    if dataset.forces is not None:
        arrays["F"] = dataset.forces.reshape(len(dataset), -1, 3) * factor
    for name, values in (("charge", dataset.charges), ("multiplicity", dataset.multiplicities)):
        if values is not None:
            arrays[name] = values
    if dataset.weights is not None:
        arrays["weight"] = dataset.weights
    with atomic_output(path) as temporary, open(temporary, "wb") as stream:
        np.savez_compressed(stream, **arrays)


def _find(archive: Archive, quantity: str, mapped: str | None) -> str | None:
    """Name of the array with a quantity, or None."""
    if mapped == IGNORE:
        return None
    if mapped is not None:
        return mapped
    found = [name for name in KNOWN_KEYS[quantity] if name in archive]
    if len(found) > 1:
        raise GeomAttError(
            f"{archive.path} has {' and '.join(map(repr, found))}, each of which could be the {quantity}. "
            f"Choose one, for example with `keys` {quantity}={found[0]}."
        )
    if not found and quantity in NEEDED:
        raise GeomAttError(
            f"{archive.path} has no {quantity} under a known name ({', '.join(KNOWN_KEYS[quantity])}). "
            f"It contains {archive!r}. Name the array with `keys` {quantity}=NAME."
        )
    return found[0] if found else None


def _check_shapes(archive: Archive, names: Mapping[str, str | None]) -> tuple[int, int]:
    """Number of frames and of atoms, if all shapes agree with them; nothing is loaded."""
    path = archive.path
    shapes = {q: archive.headers[name].shape for q, name in names.items() if name is not None}
    shape = shapes["positions"]
    if shape and shape[0] == 0:
        raise GeomAttError(f"{path} contains no frames: {names['positions']!r} has shape {shape}.")
    if len(shape) not in (2, 3) or shape[-1] != 3 or 0 in shape:
        raise GeomAttError(
            f"{path}: {names['positions']!r} has shape {shape}; positions are (frames, atoms, 3)."
        )
    n, atoms, _ = shape if len(shape) == 3 else (1, *shape)
    single = n == 1  # then the axis of frames may be absent
    one_each = ((), (1,), (n,), (n, 1))
    wanted: dict[str, tuple[tuple[tuple[int, ...], ...], str]] = {
        "numbers": (((atoms,), (n, atoms)), "(atoms,) or (frames, atoms)"),
        "energy": (((n,), (n, 1), *([()] if single else [])), "(frames,) or (frames, 1)"),
        "forces": (((n, atoms, 3), *([(atoms, 3)] if single else [])), "(frames, atoms, 3)"),
        "charge": (one_each, "one number, or one per frame"),
        "multiplicity": (one_each, "one number, or one per frame"),
        "weight": (one_each, "one number, or one per frame"),
    }
    for quantity, (allowed, text) in wanted.items():
        if quantity in shapes and shapes[quantity] not in allowed:
            raise GeomAttError(
                f"{path}: {names[quantity]!r} has shape {shapes[quantity]} but positions have {shape}, "
                f"{atoms} atoms in {n} frames; {quantity} should be {text}."
            )
    return n, atoms


def _numeric(archive: Archive, name: str | None) -> np.ndarray:
    assert name is not None
    if archive.headers[name].dtype.kind not in "fiu":
        raise GeomAttError(
            f"{archive.path}: {name!r} contains {archive.headers[name].dtype}, not real numbers."
        )
    with np.errstate(over="ignore", invalid="ignore"):
        return archive[name].astype(np.float64)


def _atomic_numbers(archive: Archive, name: str | None, n: int, atoms: int) -> np.ndarray:
    """Atomic numbers of every frame, (n, atoms)."""
    numbers = _numeric(archive, name)
    if (numbers != np.round(numbers)).any():
        raise GeomAttError(f"{archive.path}: {name!r} has values that are not integers; atomic numbers are.")
    check_numbers(archive.path, numbers.reshape(-1))
    return np.broadcast_to(numbers.astype(np.int64), (n, atoms))


def _per_frame(
    archive: Archive, name: str | None, n: int, check: Callable[[float], float], default: float | None
) -> np.ndarray | None:
    """One valid number per frame; None if there is no array or all numbers are the default."""
    if name is None:
        return None
    try:
        values = np.array([check(value) for value in _numeric(archive, name).reshape(-1).tolist()])
    except GeomAttError as error:
        raise GeomAttError(f"{archive.path}: {error}") from None
    return None if (values == default).all() else np.array(np.broadcast_to(values, n))


def _unused_weights(archive: Archive, mapping: Mapping[str, str]) -> list[str]:
    """Notes about arrays that could be weights and are not used."""
    if "weight" in mapping:
        return []
    return [unused_weight(name) for name in WEIGHT_KEYS if name in archive]


def _text(archive: Archive, name: str) -> str | None:
    """A short text in the archive, or None."""
    header = archive.headers.get(name)
    if header is None or header.size != 1 or header.dtype.itemsize > _LONGEST_TEXT:
        return None
    encoding = {"U": "utf-32-be" if header.dtype.byteorder == ">" else "utf-32-le", "S": "utf-8"}
    if header.dtype.kind not in encoding:
        return None
    # Not by numpy, which crashes on code points that do not exist.
    return archive[name].tobytes().decode(encoding[header.dtype.kind], "replace").rstrip("\0")


def _refuse_forgotten(
    archive: Archive, names: Mapping[str, str | None], mapping: Mapping[str, str], n: int, atoms: int
) -> None:
    """Raise an error if a label seems to be present under an unknown name."""
    shapes = {"energy": ((n,), (n, 1)), "forces": ((n, atoms, 3), (n, atoms * 3))}
    for quantity, wanted in shapes.items():
        if names[quantity] is None and mapping.get(quantity) != IGNORE:
            candidates = (
                name
                for name, header in archive.headers.items()
                if header.dtype.kind == "f" and header.shape in wanted and name not in names.values()
            )
            refuse_unused_labels(archive.path, quantity, candidates)
