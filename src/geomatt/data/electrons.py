"""Total charge and spin multiplicity of a structure, from the fields of ASE Atoms or of a file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from geomatt.errors import GeomAttError

CHARGE_KEYS = ("charge", "total_charge")
MULTIPLICITY_KEYS = ("multiplicity", "spin_multiplicity")
_INTEGER = 0.05  # per-atom charges and moments of a file add up to an integer within this
_LARGEST = 1000


def total_charge(info: Mapping[str, Any], arrays: Mapping[str, Any]) -> tuple[float, str | None]:
    """Total charge (e) and a note: from `info`, else the sum of the initial charges of the atoms."""
    for key in CHARGE_KEYS:
        if key in info:
            return check_charge(info[key]), None
    total = _sum(arrays.get("initial_charges"))
    if total is None:
        return 0.0, None
    if not _is_integer(total):
        return 0.0, "`initial_charges` do not add up to an integer and are not used."
    return float(round(total)), "Total charges are the sums of `initial_charges`."


def multiplicity(info: Mapping[str, Any], arrays: Mapping[str, Any]) -> tuple[int | None, str | None]:
    """Spin multiplicity 2S + 1 and a note: from `info`, else from the sum of the initial moments."""
    for key in MULTIPLICITY_KEYS:
        if key in info:
            return check_multiplicity(info[key]), None
    if "spin" in info:  # S, 2S or 2S + 1, depending on the program that wrote the file
        return (
            None,
            "'spin' is ambiguous and not used; if it is the multiplicity, give `keys` multiplicity=spin.",
        )
    total = _sum(arrays.get("initial_magmoms"))
    if total is None:
        return None, None
    if not _is_integer(total):
        return None, "`initial_magmoms` do not add up to an integer and are not used."
    return abs(round(total)) + 1, "Spin multiplicities are derived from the sums of `initial_magmoms`."


def check_charge(value: Any) -> float:
    """A total charge as float, or an error."""
    number = _number(value)
    if number is None or abs(number) > _LARGEST:
        raise GeomAttError(
            f"The total charge of a structure is {value!r}; it should be a number of electrons."
        )
    return number + 0.0  # -0 becomes 0


def check_multiplicity(value: Any) -> int:
    """A spin multiplicity as int, or an error."""
    number = _number(value)
    if number is None or number != round(number) or not 1 <= number <= _LARGEST:
        raise GeomAttError(f"The multiplicity of a structure is {value!r}; it should be 1, 2, 3, ...")
    return int(number)


def _is_integer(total: float) -> bool:
    return abs(total) <= _LARGEST and abs(total - round(total)) <= _INTEGER


def _number(value: Any) -> float | None:
    array = np.asarray(value)
    if array.size != 1 or array.dtype.kind not in "fiu" or not np.isfinite(array).all():
        return None
    return float(array.reshape(-1)[0])


def _sum(values: Any) -> float | None:
    """The sum of per-atom numbers; None if there are none, or all are zero, or they are not numbers."""
    array = np.asarray(0.0 if values is None else values)
    if array.ndim != 1 or array.dtype.kind not in "fiu" or not array.any() or not np.isfinite(array).all():
        return None
    return float(array.sum())
