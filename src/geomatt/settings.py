"""Fields of config dataclasses and the types of their values.

No torch here: the command line generates its options from these fields.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping
from numbers import Integral, Real
from types import NoneType
from typing import Any, ClassVar, get_args, get_origin, get_type_hints

from geomatt.errors import GeomAttError

_LARGEST = 10**300  # of whole numbers: larger ones cannot be compared with floats
_WORDS = {bool: "True or False", int: "a whole number", float: "a number", str: "a string"}


def setting(default: Any, help: str, **metadata: Any) -> Any:
    """A field of a config dataclass; `help` becomes the text of its command-line option and `info` row.

    `choices`, `least`, `most` and `within` (two ends) limit its value.
    """
    return dataclasses.field(default=default, metadata={"help": help, **metadata})


class Settings:
    """Base of dataclasses of settings: types and choices are checked when one is made."""

    def __post_init__(self) -> None:
        check_types(self)

    def to_dict(self) -> dict[str, Any]:
        """All settings as plain values."""
        return dataclasses.asdict(self)  # type: ignore[call-overload]


def check_types(config: Any) -> None:
    """Bring the values of a config dataclass into the annotated types; raise an error for a wrong value.

    None is accepted where it is the default.
    """
    hints = field_types(type(config))  # type: ignore[arg-type]
    for item in dataclasses.fields(config):
        name, value = item.name, getattr(config, item.name)
        if value is None and item.default is None:
            continue
        if name in hints:
            value = typed(name, value, hints[name])
            object.__setattr__(config, name, value)
        if value is not None:
            _check_limits(name, value, item.metadata)


def _check_limits(name: str, value: Any, metadata: Mapping[str, Any]) -> None:
    choices, least, most, within = (metadata.get(key) for key in ("choices", "least", "most", "within"))
    if choices and value not in choices:
        raise GeomAttError(f"Unknown `{name}` {value!r}. Use one of: {', '.join(choices)}.")
    if least is not None and value < least:
        raise GeomAttError(f"`{name}` must be at least {least}, not {value}.")
    if most is not None and value > most:
        raise GeomAttError(f"`{name}` must be at most {most}, not {value}.")
    if within and not within[0] <= value <= within[1]:  # NaN is outside
        raise GeomAttError(f"`{name}` must be from {within[0]:g} to {within[1]:g}, not {value:g}.")


def check_positive(config: Any, *names: str) -> None:
    """Raise an error unless these values are positive and finite."""
    for name in names:
        if not 0 < getattr(config, name) < math.inf:
            raise GeomAttError(f"`{name}` must be a positive number, not {getattr(config, name)}.")


def check_not_negative(config: Any, *names: str) -> None:
    """Raise an error unless these values are zero or more, and finite."""
    for name in names:
        if not 0 <= getattr(config, name) < math.inf:
            raise GeomAttError(f"`{name}` must not be negative, but is {getattr(config, name)}.")


@functools.cache
def field_types(config: Any) -> dict[str, Any]:
    """The types of the fields of a dataclass, by name; those that cannot be resolved are left out."""
    try:
        hints = get_type_hints(config)
        return {name: hint for name, hint in hints.items() if get_origin(hint) is not ClassVar}
    except NameError:  # of a class inside a function
        return {}


def typed(name: str, value: Any, hint: Any, source: str = "") -> Any:
    """`value` in the annotated type, or an error. A float setting accepts a whole number, not the reverse."""
    try:
        return _converted(value, hint)
    except (TypeError, OverflowError):
        where = f"{source}: " if source else ""
        raise GeomAttError(f"{where}`{name}` must be {in_words(hint)}, not {_shown(value)}.") from None


def in_words(hint: Any) -> str:
    """The type of an annotation in words."""
    arguments = [a for a in get_args(hint) if a is not NoneType]
    if NoneType in get_args(hint):
        return f"{in_words(arguments[0])} or None"
    if get_origin(hint) is tuple:
        plural = {int: "whole numbers", float: "numbers", str: "strings"}
        return f"a list of {plural.get(arguments[0], 'values')}"
    if get_origin(hint) is dict:
        return "a dictionary" + {float: " of numbers", str: " of strings"}.get(arguments[1], "")
    return _WORDS.get(hint, str(hint))


def _shown(value: Any) -> str:
    try:
        return f"{value!r:.80}"
    except ValueError:  # Python does not write integers of thousands of digits
        return "one of thousands of digits"


def _converted(value: Any, hint: Any) -> Any:
    """`value` in the annotated type; TypeError if it is of another. Other annotations accept everything."""
    origin, arguments = get_origin(hint), get_args(hint)
    if NoneType in arguments:
        return None if value is None else _converted(value, next(a for a in arguments if a is not NoneType))
    if origin is tuple and arguments[1:] == (...,):
        if not isinstance(value, list | tuple):
            raise TypeError
        return tuple(_converted(v, arguments[0]) for v in value)
    if origin is dict:
        if not isinstance(value, Mapping) or not all(isinstance(k, str | int) for k in value):
            raise TypeError
        return {str(k): _converted(v, arguments[1]) for k, v in value.items()}
    if hint in (bool, str):
        if not isinstance(value, hint):
            raise TypeError
        return value
    if hint in (int, float):
        if isinstance(value, bool) or not isinstance(value, Integral if hint is int else Real):
            raise TypeError
        number = hint(value)
        if abs(number) >= _LARGEST and hint is int:
            raise OverflowError
        return number
    return value
