"""From the frames of a file to a `Dataset`: labels by their names, units, checks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from geomatt.data.dataset import Dataset
from geomatt.data.electrons import check_charge, check_multiplicity, multiplicity, total_charge
from geomatt.data.io.fields import (
    IGNORE,
    NEEDED,
    WEIGHT_KEYS,
    add_notes,
    check_mapping,
    check_numbers,
    check_weight,
    in_range,
    refuse_frames,
    refuse_unused_labels,
    unused_weight,
)
from geomatt.data.io.file_units import FileUnits, GivenUnits, resolve_units
from geomatt.data.structures import Structure
from geomatt.errors import GeomAttError

_VOIGT = np.array([[0, 5, 4], [5, 1, 3], [4, 3, 2]])  # xx, yy, zz, yz, xz, xy
_LABELS = {"energy", "forces", "stress"}


@dataclass(frozen=True)
class Frame:
    """One structure in the units of its file."""

    info: dict[str, Any]  # values of the structure
    arrays: dict[str, Any]  # values of the atoms: numbers, positions, ...
    results: dict[str, Any]  # labels of either kind, where the format distinguishes them
    cell: np.ndarray | None
    pbc: tuple[bool, bool, bool]


def read_frames(
    path: Path,
    kind: str,
    frames: Iterable[Frame],
    *,
    keys: Mapping[str, str] | None = None,
    **stated: Unpack[GivenUnits],
) -> Dataset:
    """All frames as a data set, in eV and Å unless other units are stated.

    ``keys`` maps quantities to other names in the file.
    """
    mapping = check_mapping(keys)
    file_units = resolve_units(path, stated, known=("eV", "Ang", "ASE's convention for this kind of file"))
    structures: list[Structure] = []
    notes: list[str] = []
    try:
        for frame in frames:
            structures.append(_structure(path, frame, mapping, file_units, notes))
    except GeomAttError:
        raise
    except Exception as error:  # parsers raise any kind of error
        reason = " ".join(str(error).split())[:200].rstrip(".") or type(error).__name__
        raise GeomAttError(
            f"{path} could not be read as {kind}, after {len(structures)} complete structure(s): {reason}. "
            "Check that the file is complete."
        ) from error
    if not structures:
        raise GeomAttError(f"{path} contains no structures.")
    labels = (("positions", "positions"), ("energies", "energy"), ("forces", "forces"), ("stress", "stress"))
    for what, name in labels:
        values = [getattr(s, name) for s in structures]
        refuse_frames(path, what, [i for i, v in enumerate(values) if v is not None and not in_range(v)])
    try:
        dataset = Dataset.from_structures(structures)
    except GeomAttError as error:
        raise GeomAttError(f"{path}: {error}") from None
    dataset.name = path.stem
    dataset.origin = {**file_units.origin(path, kind), "name": path.stem}
    add_notes(dataset, notes)
    return dataset


def _structure(
    path: Path, frame: Frame, mapping: Mapping[str, str], file_units: FileUnits, notes: list[str]
) -> Structure:
    """One structure in eV and Å; what is not used is said in `notes`."""
    numbers, positions, energy, forces, stress = _quantities(path, frame, mapping)
    assert numbers is not None
    assert positions is not None
    if not len(numbers):
        raise GeomAttError(f"{path}: a structure has no atoms.")
    if (numbers != np.round(numbers)).any():
        raise GeomAttError(f"{path} has atomic numbers that are not integers.")
    check_numbers(path, numbers)
    try:
        charge, spin, weight = _state(frame, mapping, notes)
    except GeomAttError as error:
        raise GeomAttError(f"{path}: {error}") from None
    if stress is not None and not all(frame.pbc):
        stress = None
        notes.append("Stress is read only for structures that are periodic in three directions.")
    if "virial" in frame.info and "stress" not in mapping:
        notes.append("'virial' is not read. Store the stress, in energy per volume.")
    used = {*mapping.values(), *_LABELS, "charge", "total_charge", "multiplicity", "spin_multiplicity"}
    with np.errstate(over="ignore", invalid="ignore"):  # infinite results are refused later
        return Structure(
            numbers=numbers.astype(np.int64),
            positions=positions * file_units.length_in_angstrom,
            energy=None if energy is None else float(energy.reshape(-1)[0]) * file_units.energy_in_ev,
            forces=None if forces is None else forces * file_units.force_in_ev_per_angstrom,
            cell=_cell(path, frame, file_units.length_in_angstrom),
            pbc=frame.pbc,
            charge=charge,
            info={k: v for k, v in frame.info.items() if k not in used},
            stress=None if stress is None else _full(stress) * file_units.stress_in_ev_per_angstrom3,
            multiplicity=spin,
            weight=weight,
        )


def _quantities(path: Path, frame: Frame, mapping: Mapping[str, str]) -> list[np.ndarray | None]:
    """Numbers, positions, energy, forces and stress by their mapped or usual names; None if absent."""
    fields = {**frame.info, **frame.arrays, **frame.results}
    size = len(fields[mapping.get("positions", "positions")])
    shapes: dict[str, tuple[tuple[int, ...], ...]] = {
        "numbers": ((size,),),
        "positions": ((size, 3),),
        "energy": ((), (1,)),
        "forces": ((size, 3),),
        "stress": ((6,), (9,), (3, 3)),
    }
    found: list[np.ndarray | None] = []
    for quantity, wanted in shapes.items():
        name = mapping.get(quantity, quantity)
        if name in fields:
            value = np.asarray(fields[name])
            if value.dtype.kind not in "fiu" or value.shape not in wanted:
                raise GeomAttError(
                    f"{path}: {name!r} should contain the {quantity} of {size} atoms, but it is "
                    f"{value.dtype} of shape {value.shape}."
                )
            found.append(value.astype(np.float64))
            continue
        found.append(None)
        if name == IGNORE:
            continue
        if quantity in mapping or quantity in NEEDED:
            raise GeomAttError(f"{path}: no {name!r} in a structure. It has {', '.join(sorted(fields))}.")
        if quantity in ("energy", "forces"):
            others = set(fields) - {*NEEDED, *mapping.values()}
            refuse_unused_labels(path, quantity, (k for k in others if _looks_like(fields[k], wanted)))
    return found


def _state(frame: Frame, mapping: Mapping[str, str], notes: list[str]) -> tuple[float, int | None, float]:
    """Total charge, spin multiplicity and weight."""
    fields = {**frame.info, **frame.results}

    def named(quantity: str, check: Callable[[Any], Any], default: Any) -> Any:
        name = mapping[quantity]
        if name != IGNORE and name not in fields:
            raise GeomAttError(f"no {name!r} in a structure. It has {', '.join(sorted(fields))}.")
        return default if name == IGNORE else check(fields[name])

    charge, charge_note = total_charge(frame.info, frame.arrays) if "charge" not in mapping else (0.0, None)
    spin, spin_note = (
        multiplicity(frame.info, frame.arrays) if "multiplicity" not in mapping else (None, None)
    )
    notes += [note for note in (charge_note, spin_note) if note is not None]
    if "charge" in mapping:
        charge = named("charge", check_charge, 0.0)
    if "multiplicity" in mapping:
        spin = named("multiplicity", check_multiplicity, None)
    if "weight" in mapping:
        return charge, spin, named("weight", check_weight, 1.0)
    notes += [unused_weight(name) for name in WEIGHT_KEYS if name in frame.info]
    return charge, spin, 1.0


def _cell(path: Path, frame: Frame, length_in_angstrom: float) -> np.ndarray | None:
    """The lattice vectors in Å; those of periodic directions must span a volume."""
    cell = None if frame.cell is None or not np.any(frame.cell) else np.asarray(frame.cell, dtype=np.float64)
    if not any(frame.pbc):
        return None if cell is None or not in_range(cell) else cell * length_in_angstrom
    if cell is None or cell.shape != (3, 3) or not in_range(cell):
        raise GeomAttError(f"{path}: a structure is periodic but has no valid cell.")
    vectors = cell[np.array(frame.pbc)]
    if np.linalg.matrix_rank(vectors) < len(vectors):
        raise GeomAttError(f"{path}: a structure is periodic but its lattice vectors span no volume.")
    return cell * length_in_angstrom


def _full(stress: np.ndarray) -> np.ndarray:
    """Stress in Voigt order, flat or as matrix, as symmetric (3, 3) matrix."""
    matrix = stress[_VOIGT] if stress.shape == (6,) else stress.reshape(3, 3)
    return 0.5 * (matrix + matrix.T)


def _looks_like(value: Any, shapes: tuple[tuple[int, ...], ...]) -> bool:
    try:
        array = np.asarray(value)
    except ValueError:  # nested lists of different lengths
        return False
    return array.dtype.kind == "f" and array.shape in shapes
