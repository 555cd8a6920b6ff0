"""Trajectories written frame by frame, each frame on disk at once, as extxyz or in the format of ASE.

A trajectory can be cut back to an earlier frame, so that a run that was killed continues without repeating
or losing one.
"""

from __future__ import annotations

import errno
import os
import struct
from contextlib import suppress
from pathlib import Path

import numpy as np

from geomatt.data.io.extxyz import frame_text
from geomatt.data.structures import Structure
from geomatt.elements import ATOMIC_MASSES, SYMBOLS
from geomatt.errors import GeomAttError
from geomatt.files import require_writable, write_error


class ExtxyzFile:
    """Extended xyz with energy, forces and momenta; the mark is the size of the file."""

    def __init__(self, path: Path, keep: int | None = None) -> None:
        self.path = path
        self._stream = open(path, "wb" if keep is None else "r+b", buffering=0)  # noqa: SIM115 - stays open
        if keep is not None:
            size = os.fstat(self._stream.fileno()).st_size
            if size < keep:
                self._stream.close()
                raise GeomAttError(
                    f"{path} is shorter than when the simulation was saved. Restore it, or start anew."
                )
            self._stream.truncate(keep)
            self._stream.seek(keep)

    @staticmethod
    def holds(path: Path, keep: int, numbers: np.ndarray) -> bool:
        """True if the file begins with a frame of these atoms, and a frame ends at the mark."""
        count = f"{len(numbers)}\n".encode()
        with open(path, "rb") as stream:
            first = [stream.readline() for _ in range(len(numbers) + 2)]
            stream.seek(keep - 1)
            end, then = stream.read(1), stream.read(len(count))
        symbols = [line.split()[:1] for line in first[2:]]
        expected = [[SYMBOLS[z].encode()] for z in numbers]
        return first[0] == count and symbols == expected and end == b"\n" and then in (b"", count)

    def write(self, structure: Structure, velocities: np.ndarray | None = None) -> None:
        """Append a structure with its energy, forces and info, and velocities (N, 3) in Å per Å √(u/eV).

        If that fails, the file keeps the frames before.
        """
        momenta = {} if velocities is None else {"momenta": _momenta(structure, velocities)}
        text = frame_text(structure, momenta).encode()
        start = self._stream.tell()
        try:
            written = self._stream.write(text)
            while written < len(text):  # a disk that fills up takes a part first
                written += self._stream.write(text[written:])
        except OSError as error:
            with suppress(OSError):
                self._stream.truncate(start)
                self._stream.seek(start)
            raise write_error(self.path, error) from error

    def mark(self) -> int:
        """Where the file is now, to cut it back to later; all before is on disk."""
        os.fsync(self._stream.fileno())
        return self._stream.tell()

    def close(self) -> None:
        with suppress(OSError):
            self._stream.close()


class AseFile:
    """ASE's .traj; the mark is the number of frames."""

    _COUNT = 32  # where the file holds the number of frames, as a 64-bit integer

    def __init__(self, path: Path, keep: int | None = None) -> None:
        try:
            from ase.io.trajectory import TrajectoryWriter
        except ImportError as error:
            raise GeomAttError(
                "Trajectories in .traj format need ASE. Install it with: pip install ase"
            ) from error
        self.path = path
        if keep is not None:
            self._cut(keep)
        self._writer = TrajectoryWriter(os.fspath(path), "w" if keep is None else "a")

    @staticmethod
    def holds(path: Path, keep: int, numbers: np.ndarray) -> bool:
        """True if the file begins with a frame of these atoms."""
        from ase.io.trajectory import TrajectoryReader

        with TrajectoryReader(os.fspath(path)) as reader:
            return np.array_equal(reader[0].numbers, numbers)

    def _cut(self, keep: int) -> None:
        """Frames beyond the count are not seen, and new ones go to the end of the file."""
        with open(self.path, "r+b") as stream:
            stream.seek(self._COUNT)
            found = stream.read(8)
            if len(found) < 8 or struct.unpack("<q", found)[0] < keep:
                raise GeomAttError(
                    f"{self.path} is shorter than when the simulation was saved. Restore it, or start anew."
                )
            stream.seek(self._COUNT)
            stream.write(struct.pack("<q", keep))

    def write(self, structure: Structure, velocities: np.ndarray | None = None) -> None:
        from geomatt.simulation.atoms import to_atoms

        atoms = to_atoms(structure)
        if velocities is not None:
            atoms.set_momenta(_momenta(structure, velocities))
        atoms.info = dict(structure.info)
        labels = {"energy": structure.energy, "forces": structure.forces}
        try:
            self._writer.write(atoms, **{name: x for name, x in labels.items() if x is not None})
        except OSError as error:
            # An array of which numpy could write a part only comes without a number.
            full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            raise write_error(self.path, error if error.errno else full) from error

    def mark(self) -> int:
        os.fsync(self._writer.backend.fd.fileno())
        return len(self._writer)

    def close(self) -> None:
        with suppress(OSError):
            self._writer.backend.fd.close()


TrajectoryFile = ExtxyzFile | AseFile


def _momenta(structure: Structure, velocities: np.ndarray) -> np.ndarray:
    return ATOMIC_MASSES[structure.numbers - 1, None] * velocities


def open_trajectory(path: Path, keep: int | None = None, numbers: np.ndarray | None = None) -> TrajectoryFile:
    """A new file by its suffix, or one to continue, cut back to the mark `keep`.

    Raises an error, before anything is cut, if the file does not hold frames of the atoms `numbers`.
    """
    require_writable(path)
    kinds: dict[str, type[ExtxyzFile] | type[AseFile]] = {".extxyz": ExtxyzFile, ".traj": AseFile}
    if path.suffix not in kinds:
        raise GeomAttError(f"Cannot write {path}: the name must end in {' or '.join(kinds)}.")
    if keep is not None and not path.is_file():
        raise GeomAttError(f"{path} is missing, so the simulation cannot be continued. Start it anew.")
    try:
        kind = kinds[path.suffix]
        long_enough = keep and path.stat().st_size >= keep
        if keep and long_enough and numbers is not None and not kind.holds(path, keep, numbers):
            raise GeomAttError(
                f"{path} does not belong to the simulation that is to be continued: it holds other atoms, or "
                "no frame ends where the simulation was saved. It is left as it is; start in another folder."
            )
        return kind(path, keep)
    except OSError as error:
        raise write_error(path, error) from error
