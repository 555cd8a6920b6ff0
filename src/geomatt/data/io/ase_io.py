"""Files read with ASE: extxyz, trajectories, databases, outputs of electronic structure codes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from geomatt.data.files import atomic_output
from geomatt.data.io.fields import (
    IGNORE,
    add_notes,
    check_finite,
    check_mapping,
    check_numbers,
    refuse_unused_labels,
)
from geomatt.data.io.file_units import FileUnits, resolve_units
from geomatt.data.structures import Dataset, Structure
from geomatt.errors import GeomAttError

_NO_ASE = "Reading and writing this kind of file needs ASE. Install it with: pip install ase"


def read_ase(
    path: str | Path,
    *,
    energy_unit: str | None = None,
    length_unit: str | None = None,
    force_unit: str | None = None,
    keys: Mapping[str, str] | None = None,
) -> Dataset:
    """Read all structures of a file with ASE, in eV and Å unless other units are given.

    ``keys`` maps energy, forces, positions, numbers to other names of ASE's info, arrays or results.
    """
    try:
        import ase.io.formats as formats
    except ImportError:
        raise GeomAttError(_NO_ASE) from None
    path = Path(path)
    mapping = check_mapping(keys)
    # ASE takes relative names such as postgres... for addresses of database servers.
    try:
        kind = str(formats.filetype(str(path.resolve())))
        if kind not in formats.ioformats:  # ASE returns the suffix of an unknown kind
            raise formats.UnknownFileTypeError
    except (formats.UnknownFileTypeError, OSError, UnicodeDecodeError):
        raise GeomAttError(
            f"{path}: unknown kind of file. Supported are npz, extxyz (.xyz, .extxyz) and the formats of ASE "
            "(.traj, .db, ...)."
        ) from None
    file_units = resolve_units(
        path,
        (energy_unit, length_unit),
        known=("eV", "Ang", "ASE's convention for this kind of file"),
        force=force_unit,
    )
    structures: list[Structure] = []
    try:
        for atoms in _frames(path, kind):
            structures.append(_structure(path, atoms, mapping, file_units))
    except GeomAttError:
        raise
    except Exception as error:  # ASE's readers raise any kind of error
        raise GeomAttError(
            f"{path} could not be read as {kind}, after {len(structures)} complete structure(s): "
            f"{error or type(error).__name__}. Check that the file is complete."
        ) from error
    if not structures:
        raise GeomAttError(f"{path} contains no structures.")
    _refuse_nan(path, structures)
    try:
        dataset = Dataset.from_structures(structures)
    except GeomAttError as error:
        raise GeomAttError(f"{path}: {error}") from None
    dataset.name = path.stem
    dataset.origin = file_units.origin(path, kind)
    dataset.origin["name"] = path.stem
    add_notes(dataset.origin, dataset.energies is not None, dataset.forces is not None)
    return dataset


def write_extxyz(dataset: Dataset, path: Path) -> None:
    """Write extxyz in eV and Å: energies with all digits, positions and forces with eight decimals."""
    try:
        from ase import Atoms
        from ase.calculators.singlepoint import SinglePointCalculator
        from ase.io import write
    except ImportError:
        raise GeomAttError(_NO_ASE) from None

    def frames() -> Iterator[Any]:
        for s in dataset:
            atoms = Atoms(s.numbers, s.positions, cell=s.cell, pbc=s.pbc)
            atoms.info.update(s.info)
            if s.charge:
                atoms.info["charge"] = s.charge
            labels = {k: v for k, v in (("energy", s.energy), ("forces", s.forces)) if v is not None}
            if labels:
                atoms.calc = SinglePointCalculator(atoms, **labels)
            yield atoms

    with atomic_output(path) as temporary, open(temporary, "w", encoding="utf-8") as stream:
        for atoms in frames():
            write(stream, atoms, format="extxyz")


def _frames(path: Path, kind: str) -> Iterator[Any]:
    """The structures as ASE Atoms; key-value pairs and data of a database row become info."""
    if kind in ("db", "json"):
        from ase.db import connect

        with connect(str(path.resolve()), serial=True) as database:
            for row in database.select():
                atoms = row.toatoms()
                atoms.info = {**(row.data or {}), **row.key_value_pairs}
                yield atoms
    else:
        from ase.io import iread

        yield from iread(str(path.resolve()), format=kind, do_not_split_by_at_sign=True)


def _structure(path: Path, atoms: Any, mapping: Mapping[str, str], file_units: FileUnits) -> Structure:
    """One structure in eV and Å, with labels from their mapped or usual names."""
    size = len(atoms)
    if size == 0:
        raise GeomAttError(f"{path}: a structure has no atoms.")
    # Not get_forces(), which sets the forces on constrained atoms to zero.
    results = dict(atoms.calc.results) if atoms.calc is not None else {}
    fields: dict[str, Any] = {**atoms.info, **atoms.arrays, **results}
    shapes = {"energy": ((), (1,)), "forces": ((size, 3),), "positions": ((size, 3),), "numbers": ((size,),)}
    found: dict[str, np.ndarray | None] = {}
    for quantity, wanted in shapes.items():
        name = mapping.get(quantity, quantity)
        if name == IGNORE:
            found[quantity] = None
            continue
        if name not in fields:
            if quantity in mapping:
                raise GeomAttError(f"{path}: no {name!r} in a structure. It has {', '.join(sorted(fields))}.")
            others = set(fields) - {"positions", "numbers", *mapping.values()}
            refuse_unused_labels(path, quantity, (k for k in others if _looks_like(fields[k], wanted)))
            found[quantity] = None
            continue
        value = np.asarray(fields[name])
        if value.dtype.kind not in "fiu" or value.shape not in wanted:
            raise GeomAttError(
                f"{path}: {name!r} should contain the {quantity} of {size} atoms, but it is {value.dtype} of "
                f"shape {value.shape}."
            )
        found[quantity] = value
    numbers, positions = found["numbers"], found["positions"]
    assert numbers is not None
    assert positions is not None
    check_numbers(path, numbers)
    charge = atoms.info.get("charge", 0.0)
    used = set(mapping.values())
    return Structure(
        numbers=numbers.astype(np.int64),
        positions=positions * file_units.length_in_angstrom,
        energy=None if found["energy"] is None else float(found["energy"].item()) * file_units.energy_in_ev,
        forces=None if found["forces"] is None else found["forces"] * file_units.force_in_ev_per_angstrom,
        cell=np.array(atoms.cell) * file_units.length_in_angstrom if np.any(atoms.cell) else None,
        pbc=(bool(atoms.pbc[0]), bool(atoms.pbc[1]), bool(atoms.pbc[2])),
        charge=float(charge) if np.ndim(charge) == 0 and not isinstance(charge, str) else 0.0,
        info={k: v for k, v in atoms.info.items() if k not in used and k != "charge"},
    )


def _looks_like(value: Any, shapes: tuple[tuple[int, ...], ...]) -> bool:
    array = np.asarray(value)
    return array.dtype.kind == "f" and array.shape in shapes


def _refuse_nan(path: Path, structures: list[Structure]) -> None:
    def finite(values: list[Any]) -> np.ndarray:
        return np.array([np.nan if v is None or not np.isfinite(v).all() else 0.0 for v in values])

    check_finite(path, "positions", finite([s.positions for s in structures]))
    check_finite(path, "energies", finite([s.energy for s in structures if s.energy is not None]))
    check_finite(path, "forces", finite([s.forces for s in structures if s.forces is not None]))
