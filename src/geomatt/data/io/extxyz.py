"""The extended xyz format, read and written without ASE.

A frame is a line with the number of atoms, a line of ``key=value`` pairs, and a line per atom whose columns
the key ``Properties`` names. A plain xyz file has a comment as second line and the columns symbol, x, y, z.
"""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import re
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from geomatt.data.dataset import Dataset
from geomatt.data.io.frames import Frame
from geomatt.data.structures import Structure
from geomatt.elements import NUMBERS, SYMBOLS, atomic_number
from geomatt.errors import GeomAttError
from geomatt.files import atomic_output

SUFFIXES = (".xyz", ".extxyz")
COMPRESSED = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
_LONGEST_LINE = 1 << 24  # characters
# A compressed file may expand to this many characters, or to this multiple of its size if that is more.
_FREE_CHARACTERS, _LARGEST_RATIO = 1 << 27, 50

_COLUMN_NAMES = {"pos": "positions", "species": "symbols", "Z": "numbers", "charge": "charges"}
_PAIR = re.compile(
    r"""(?P<key>"(?:\\.|[^"\\])*"|[^\s="']+)
        (?:\s*=\s*(?P<value>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|\{[^}]*\}|\[[^\]]*\]|[^\s"'{\[]\S*))?""",
    re.VERBOSE,
)
_TRUTH = {"T": True, "true": True, "True": True, "TRUE": True}
_TRUTH |= {"F": False, "false": False, "False": False, "FALSE": False}
_CONVERT: dict[str, Any] = {"S": str, "R": float, "I": int, "L": _TRUTH.__getitem__}  # kinds of columns


def is_extxyz(path: Path) -> bool:
    """True if the name is that of an xyz file, compressed or not."""
    name = path.with_suffix("") if path.suffix.lower() in COMPRESSED else path
    return name.suffix.lower() in SUFFIXES


def frames(path: Path) -> Iterator[Frame]:
    """The frames of an xyz file, one after the other."""
    lines = _lines(path)
    for line in lines:
        if not line.strip():
            continue  # between frames, and at the end
        try:
            size = int(line)
        except ValueError:
            raise ValueError(f"expected a number of atoms, but got {line.strip()[:40]!r}") from None
        if size == 0:
            raise ValueError("a frame has no atoms")
        comment = next(lines, "")
        atoms = list(islice(lines, max(size, 0)))
        if len(atoms) != size:
            raise ValueError(f"a frame has {len(atoms)} lines of atoms instead of {size}")
        yield _frame(parse_comment(comment), atoms)


def _frame(info: dict[str, Any], lines: list[str]) -> Frame:
    columns = _columns(str(info.pop("Properties", "species:S:1:pos:R:3")))
    width = columns[-1][3]
    words = [line.split(None, width)[:width] for line in lines]
    if any(len(row) != width for row in words):
        raise ValueError(f"a line of an atom has fewer than {width} columns")
    arrays: dict[str, Any] = {}
    for name, kind, start, stop in columns:
        values = np.array([_CONVERT[kind](word) for row in words for word in row[start:stop]])
        arrays[_COLUMN_NAMES.get(name, name)] = (
            values if stop == start + 1 else values.reshape(len(words), -1)
        )
    symbols = arrays.pop("symbols", None)
    if "numbers" not in arrays and symbols is not None:
        arrays["numbers"] = np.array(
            [NUMBERS.get(symbol) or _number(symbol) for symbol in symbols.tolist()], dtype=np.int64
        )
    lattice = info.pop("Lattice", None)
    if lattice is not None and np.shape(lattice) != (9,):
        raise ValueError("Lattice should have nine numbers")
    cell = None if lattice is None else np.reshape(lattice, (3, 3)).astype(np.float64)
    pbc = np.broadcast_to(info.pop("pbc", lattice is not None), 3)
    return Frame(info, arrays, {}, cell, (bool(pbc[0]), bool(pbc[1]), bool(pbc[2])))


def _columns(properties: str) -> list[tuple[str, str, int, int]]:
    """Name, kind, first column and end of each of the properties ``name:kind:columns:...``."""
    words = properties.split(":")
    columns: list[tuple[str, str, int, int]] = []
    for name, kind, count in zip(words[::3], words[1::3], words[2::3], strict=True):
        start = columns[-1][3] if columns else 0
        if kind not in _CONVERT or not 1 <= int(count) <= 1000 or start > 1000:
            raise ValueError(f"Properties has an invalid column {name}:{kind}:{count}")
        columns.append((name, kind, start, start + int(count)))
    return columns


def _number(symbol: str) -> int:
    try:
        return 0 if symbol == "X" else atomic_number(symbol)
    except GeomAttError as error:
        raise ValueError(error) from None


def parse_comment(line: str) -> dict[str, Any]:
    """The ``key=value`` pairs of a line; a key without a value is True."""
    return {_unquoted(m["key"]): _value(m["key"], m["value"]) for m in _PAIR.finditer(line)}


def _value(key: str, text: str | None) -> Any:
    """A number, truth value, string, or an array of numbers or truth values."""
    if text is None:
        return True
    text = _unquoted(text)
    if key.lower() == "uid":
        return text
    if text.startswith("_JSON "):
        return json.loads(text.removeprefix("_JSON "))
    words = re.findall(r"[^\s,]+", text)
    for convert in (int, float, _TRUTH.__getitem__):
        try:
            values = [convert(word) for word in words]
            return values[0] if len(values) == 1 else np.array(values)
        except (ValueError, KeyError, OverflowError):
            continue
    return text


def _unquoted(text: str) -> str:
    if len(text) > 1 and text[0] in "\"'" and text[0] == text[-1]:
        return re.sub(r"\\(.)", r"\1", text[1:-1])
    return text[1:-1] if len(text) > 1 and text[0] in "{[" else text


def _lines(path: Path) -> Iterator[str]:
    opened: Any = COMPRESSED.get(path.suffix.lower(), open)
    largest = max(_FREE_CHARACTERS, _LARGEST_RATIO * path.stat().st_size)
    read = 0
    with opened(path, "rt", encoding="utf-8-sig") as stream:  # some editors write a mark at the start
        while line := stream.readline(_LONGEST_LINE):
            read += len(line)
            if read > largest:
                raise GeomAttError(
                    f"{path} expands to more than {read / 1e9:.3g} GB. It is not read, because no real file "
                    "compresses so well. Decompress it first if it is genuine."
                )
            yield line


def write_extxyz(dataset: Dataset, path: Path) -> None:
    """Write extxyz in eV and Å: energies with all digits, positions and forces with eight decimals."""
    with atomic_output(path) as temporary, open(temporary, "w", encoding="utf-8") as stream:
        for structure in dataset:
            stream.write(frame_text(structure))


def frame_text(s: Structure, columns: Mapping[str, np.ndarray] | None = None) -> str:
    """One frame; `columns` are more arrays of numbers (N,) or vectors (N, 3) by name, such as momenta."""
    given = {} if s.forces is None else {"forces": s.forces}
    arrays = {name: values.reshape(len(s), -1) for name, values in (given | dict(columns or {})).items()}
    pairs = dict(s.info)
    if s.energy is not None:
        pairs["energy"] = s.energy
    if s.stress is not None:
        pairs["stress"] = s.stress.reshape(9)
    if s.charge:
        pairs["charge"] = s.charge
    if s.multiplicity is not None:
        pairs["multiplicity"] = s.multiplicity
    if s.weight != 1:
        pairs["weight"] = s.weight
    pairs["pbc"] = np.array(s.pbc)
    head = "" if s.cell is None else f"Lattice={_written(s.cell.reshape(9))} "
    head += "Properties=species:S:1:pos:R:3" + "".join(
        f":{name}:R:{x.shape[1]}" for name, x in arrays.items()
    )
    values = np.concatenate([s.positions, *arrays.values()], axis=1)
    rows = [
        f"{SYMBOLS[z]:2} " + " ".join(f"{x:16.8f}" for x in row)
        for z, row in zip(s.numbers.tolist(), values.tolist(), strict=True)
    ]
    comment = " ".join([head, *(f"{_quoted(str(k))}={_written(v)}" for k, v in pairs.items())])
    return "\n".join([str(len(s)), comment, *rows, ""])


def _written(value: Any) -> str:
    if isinstance(value, str):
        return _quoted(value)
    try:
        array = np.asarray(value)
    except ValueError:  # lists of different lengths
        array = np.asarray(None)
    if array.dtype.kind == "b" and array.ndim < 2:
        words = ["T" if truth else "F" for truth in np.atleast_1d(array)]
    elif array.dtype.kind in "fiu" and array.ndim < 2:
        words = [repr(number) for number in np.atleast_1d(array).tolist()]
    else:
        return _quoted(
            "_JSON "
            + json.dumps(value, default=lambda x: x.tolist() if isinstance(x, np.ndarray) else str(x))
        )
    return _quoted(" ".join(words))


def _quoted(text: str) -> str:
    if re.fullmatch(r"[^\s\\=\"'{}\[\],]+", text):
        return text
    escaped = re.sub(r'(["\\])', r"\\\1", re.sub(r"[\r\n]+", " ", text))
    return f'"{escaped}"'
