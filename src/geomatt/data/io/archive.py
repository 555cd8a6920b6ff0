"""The arrays of an npz file, read without trusting it.

Every size that the file claims is compared with the bytes that are there before memory is allocated, and
nothing is ever unpickled.
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.lib import format as npy

from geomatt.errors import GeomAttError

# An archive may expand to this much, or to this multiple of its size on disk if that is more. Trajectories
# compress to a half or a third.
_FREE_BYTES = 1 << 27
_LARGEST_RATIO = 50


@dataclass(frozen=True)
class Header:
    """Type, shape and size of an array, as its header states them."""

    dtype: np.dtype
    shape: tuple[int, ...]
    fortran_order: bool
    start: int  # of the content, in bytes

    @property
    def size(self) -> int:
        return math.prod(self.shape)


class Archive(Mapping[str, np.ndarray]):
    """Names, types and shapes of the arrays are read at once, an array on access."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.headers: dict[str, Header] = {}
        if not zipfile.is_zipfile(path):
            with open(path, "rb") as stream:
                start = stream.read(2)
            if start == b"PK":
                raise self._damaged()
            raise GeomAttError(f"{path} is not an npz file, whatever its name says.")
        try:
            with zipfile.ZipFile(path) as archive:
                for member in archive.infolist():
                    name = member.filename.removesuffix(".npy")
                    if name == member.filename:
                        raise GeomAttError(
                            f"{path}: {name!r} is not a numpy array, so this is not an npz file."
                        )
                    if name in self.headers:
                        raise self._damaged()
                    self.headers[name] = self._header(archive, member, name)
        except GeomAttError:
            raise
        except Exception:  # zipfile and numpy raise many kinds of errors on damaged files
            raise self._damaged() from None

    def __getitem__(self, name: str) -> np.ndarray:
        header = self.headers[name]
        if not header.size:
            return np.empty(header.shape, header.dtype)
        try:
            with zipfile.ZipFile(self.path) as archive:
                content = archive.read(f"{name}.npy")
            array = np.frombuffer(content, header.dtype, offset=header.start)
            return array.reshape(header.shape, order="F" if header.fortran_order else "C")
        except Exception:
            raise self._damaged() from None

    def __iter__(self) -> Iterator[str]:
        return iter(self.headers)

    def __len__(self) -> int:
        return len(self.headers)

    def __repr__(self) -> str:
        arrays = (f"{name} {h.dtype}{list(h.shape)}" for name, h in self.headers.items())
        return ", ".join(arrays) or "no arrays"

    def _header(self, archive: zipfile.ZipFile, member: zipfile.ZipInfo, name: str) -> Header:
        on_disk = self.path.stat().st_size
        with archive.open(member) as stream:
            version = npy.read_magic(stream)
            read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
            shape, fortran_order, dtype = read(stream)
            header = Header(dtype, shape, fortran_order, stream.tell())
        if dtype.hasobject:
            raise GeomAttError(
                f"{self.path}: {name!r} is an array of Python objects. They are never unpickled, because a "
                "pickle can run any code. Store plain numeric arrays; for molecules of different sizes use "
                "an extxyz file."
            )
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise GeomAttError(f"{self.path}: {name!r} is compressed in a way that numpy does not use.")
        if min((0, *shape)) < 0 or header.start + header.size * dtype.itemsize != member.file_size:
            raise self._damaged()
        expanded = header.size * max(dtype.itemsize, 8)  # as float64
        if expanded > max(_FREE_BYTES, _LARGEST_RATIO * on_disk):
            raise GeomAttError(
                f"{self.path}: {name!r} would expand to {expanded / 1e9:.3g} GB from a file of "
                f"{on_disk / 1e6:.3g} MB. It is not read, because no trajectory compresses so well. Store "
                "it uncompressed, with np.savez, if it is genuine."
            )
        return header

    def _damaged(self) -> GeomAttError:
        return GeomAttError(f"{self.path} is damaged or incomplete. Copy or download it again.")


def load_arrays(path: Path) -> dict[str, np.ndarray]:
    """All arrays of an npz file."""
    return dict(Archive(path))
