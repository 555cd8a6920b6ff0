"""Checks of files before ASE reads them.

ASE allocates what a file claims to contain. These checks compare every claim with the size of the file.
"""

from __future__ import annotations

import json
import math
import sqlite3
import struct
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from geomatt.errors import GeomAttError


def check_trajectory(path: Path) -> None:
    """ASE's trajectories are a table of offsets, a JSON text per frame, and arrays between them."""
    size = path.stat().st_size
    claimed = 0

    def claim(start: int, length: int) -> None:
        nonlocal claimed
        claimed += length
        if start < 0 or length < 0 or start + length > size or claimed > size:
            raise GeomAttError(f"{path} claims more data than it has: it is damaged or incomplete.")

    def claim_arrays(value: Any) -> None:
        if isinstance(value, dict):
            if "ndarray" in value:
                shape, dtype, start = value["ndarray"]
                claim(start, math.prod(shape) * np.dtype(dtype).itemsize)
            for item in value.values():
                claim_arrays(item)

    with open(path, "rb") as stream:
        _, frames, table = struct.unpack("<3q", stream.read(48)[24:48])
        claim(table, 8 * frames)
        stream.seek(table)
        for start in struct.unpack(f"<{frames}q", stream.read(8 * frames)):
            claim(start, 8)
            stream.seek(start)
            (length,) = struct.unpack("<q", stream.read(8))
            claim(start + 8, length)
            claim_arrays(_decoded(path, stream.read(length).decode("utf-8")))


def check_json(path: Path) -> None:
    """ASE's JSON files contain arrays with their shapes."""
    _decoded(path, path.read_text(encoding="utf-8"))


def check_database(path: Path) -> None:
    """ASE would add its tables to another SQLite file, and decodes JSON texts in some columns."""
    with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as connection:
        names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type='table'")}
        if "systems" not in names:
            raise GeomAttError(f"{path} is not a database of ASE: it has no table 'systems'.")
        columns = "key_value_pairs, calculator_parameters, constraints, data"
        for row in connection.execute(f"SELECT {columns} FROM systems"):
            for text in row:
                if isinstance(text, str) and "__ndarray__" in text:
                    _decoded(path, text)


def _decoded(path: Path, text: str) -> Any:
    """JSON in which every array has as many numbers as its shape says."""

    def check(value: dict[str, Any]) -> dict[str, Any]:
        if "__ndarray__" in value:
            shape, dtype, numbers = value["__ndarray__"]
            complex_numbers = np.dtype(dtype).kind == "c"  # stored as pairs
            if math.prod(np.atleast_1d(shape).tolist()) * (1 + complex_numbers) != len(numbers):
                raise GeomAttError(f"{path} has an array of another size than it says: it is damaged.")
        return value

    return json.loads(text, object_hook=check)


CHECKS = {"traj": check_trajectory, "json": check_json, "db": check_database}  # by ASE's names of formats
