"""Files read with ASE: trajectories, databases, and any other format that ASE knows."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from geomatt.data.io.ase_guards import CHECKS
from geomatt.data.io.frames import Frame
from geomatt.errors import GeomAttError

# A file of another format is converted by a process with limits, which grow with its size.
_MEMORY, _MEMORY_PER_BYTE = 3 << 29, 50  # bytes
_SECONDS, _SECONDS_PER_BYTE = 60.0, 1e-5  # of computing
_WAITING = 10  # times as long on the clock: other programs may keep the machine busy


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
    if kind not in CHECKS or path.suffix.lower() in (".gz", ".bz2", ".xz"):
        with tempfile.TemporaryDirectory() as folder:
            converted = Path(folder) / "converted.traj"
            _convert(path, kind, converted)
            yield from ase_frames(converted, "traj")
            return
    CHECKS[kind](path)
    for atoms in _images(path, kind):
        # Not get_forces(), which sets the forces on constrained atoms to zero.
        results = dict(atoms.calc.results) if atoms.calc is not None else {}
        pbc = (bool(atoms.pbc[0]), bool(atoms.pbc[1]), bool(atoms.pbc[2]))
        yield Frame(dict(atoms.info), dict(atoms.arrays), results, np.array(atoms.cell), pbc)


def _images(path: Path, kind: str) -> Iterator[Any]:
    """The structures as ASE Atoms; key-value pairs and data of a database row become info."""
    if kind == "traj":
        from ase.io.trajectory import TrajectoryReader

        with open(path, "rb") as stream:  # ASE would not close a damaged file
            yield from TrajectoryReader(stream)
    else:
        from ase.db import connect

        with connect(str(path.resolve()), serial=True) as database:
            for row in database.select():
                atoms = row.toatoms()
                atoms.info = {**(row.data or {}), **row.key_value_pairs}
                yield atoms


def _convert(path: Path, kind: str, target: Path) -> None:
    size = path.stat().st_size
    program = Path(__file__).with_name("ase_convert.py")
    memory, seconds = _MEMORY + _MEMORY_PER_BYTE * size, _SECONDS + _SECONDS_PER_BYTE * size
    limits = [str(memory), f"{seconds:.0f}"]
    command = [sys.executable, str(program), str(path.resolve()), kind, str(target), *limits]
    endless = ValueError(f"ASE's parser did not end after {seconds:.0f} s")
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=_WAITING * seconds
        )
    except subprocess.TimeoutExpired:
        raise endless from None
    if done.returncode == -getattr(signal, "SIGXCPU", 0):
        raise endless
    if done.returncode:
        raise ValueError((done.stderr.strip().splitlines() or ["ASE's parser crashed"])[-1])
