"""Arguments of compiled code: fields of its structs, and arrays that have the shape it expects."""

from __future__ import annotations

from typing import Any

from torch import Tensor


def fields(kind: Any, *names: str) -> list[tuple[str, Any]]:
    """Fields of one ctypes type, for `_fields_`."""
    return [(name, kind) for name in names]


def check_shape(name: str, array: Tensor, shape: tuple[int, ...]) -> None:
    """Raise an error for arrays of the wrong size: the C++ code would read beyond their end."""
    if array.shape != shape:
        raise ValueError(f"{name} have the shape {tuple(array.shape)}, not {shape}")
