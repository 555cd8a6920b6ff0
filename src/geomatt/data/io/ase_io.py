"""Files read with ASE: trajectories, databases, outputs of electronic structure codes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from geomatt.data.io.ase_guards import check_before_reading
from geomatt.data.io.frames import Frame
from geomatt.errors import GeomAttError


def ase_format(path: Path) -> str:
    """ASE's name for the kind of a file."""
    try:
        import ase.io.formats as formats
    except ImportError:
        raise GeomAttError("Reading this kind of file needs ASE. Install it with: pip install ase") from None
    # ASE takes relative names such as postgres... for addresses of database servers.
    try:
        kind = str(formats.filetype(str(path.resolve())))
        if kind in formats.ioformats:  # otherwise the suffix of an unknown kind
            return kind
    except (formats.UnknownFileTypeError, OSError, EOFError, ValueError):
        pass
    raise GeomAttError(
        f"{path}: unknown kind of file. Supported are npz, extxyz (.xyz, .extxyz) and the formats of ASE "
        "(.traj, .db, ...)."
    )


def ase_frames(path: Path, kind: str) -> Iterator[Frame]:
    """The frames of a file that ASE reads."""
    check_before_reading(path, kind)
    for atoms in _images(path, kind):
        # Not get_forces(), which sets the forces on constrained atoms to zero.
        results = dict(atoms.calc.results) if atoms.calc is not None else {}
        pbc = (bool(atoms.pbc[0]), bool(atoms.pbc[1]), bool(atoms.pbc[2]))
        yield Frame(dict(atoms.info), dict(atoms.arrays), results, np.array(atoms.cell), pbc)


def _images(path: Path, kind: str) -> Iterator[Any]:
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
