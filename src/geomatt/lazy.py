"""Packages whose names are imported when first used, so that importing them is quick."""

from __future__ import annotations

import ast
import importlib
import inspect
import sys
from collections.abc import Callable
from typing import Any


def lazy_names(package: str) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """`__all__`, `__getattr__` and `__dir__` of a package, for the names it imports `if TYPE_CHECKING`.

    So each name is listed once, for type checkers and at run time.
    """
    module = sys.modules[package]
    modules = {
        alias.name: str(line.module)
        for block in ast.parse(inspect.getsource(module)).body
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for line in block.body
        if isinstance(line, ast.ImportFrom)
        for alias in line.names
    }

    def get(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(modules[name]), name)
        setattr(module, name, value)  # found at once from now on
        return value

    return sorted(modules), get, lambda: sorted({*vars(module), *modules})
