"""Packages whose names are imported when first used, so that importing them is quick."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def lazy_names(
    package: str, modules: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package, from the module below it that defines each name."""

    def get(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = importlib.import_module(f"{package}.{modules[name]}")
        value = getattr(module, name)
        setattr(importlib.import_module(package), name, value)  # found at once from now on
        return value

    def names() -> list[str]:
        return sorted({*vars(importlib.import_module(package)), *modules})

    return get, names
