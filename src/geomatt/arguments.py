"""Checks of the arguments of public functions: one line says what was expected."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from geomatt.errors import GeomAttError

T = TypeVar("T")


def require(name: str, value: Any, kind: type[T], example: str) -> T:
    """`value`, if it is of a kind; the error message gives an example of how to make one."""
    if not isinstance(value, kind):
        raise GeomAttError(f"The {name} must be a {kind.__name__}, such as {example}, not {value!r:.80}.")
    return value


def path_of(name: str, value: Any) -> Path:
    """A file or folder by its name."""
    if not isinstance(value, str | os.PathLike):
        raise GeomAttError(f"`{name}` must be the name of a file or folder, not {value!r:.80}.")
    return Path(value)


def indices_of(name: str, values: Any) -> np.ndarray:
    """Whole numbers as an array (n,) of int64."""
    array = np.asarray(values)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise GeomAttError(f"`{name}` must be a list of whole numbers, not {values!r:.80}.")
    return array.astype(np.int64)
