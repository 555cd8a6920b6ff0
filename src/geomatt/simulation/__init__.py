"""ASE calculator and short molecular dynamics. Needs ASE, so nothing is imported before it is used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from geomatt.simulation.calculator import GeomAttCalculator
    from geomatt.simulation.dynamics import MDResult, run_md

_MODULES = {"GeomAttCalculator": "calculator", "MDResult": "dynamics", "run_md": "dynamics"}

__all__ = ["GeomAttCalculator", "MDResult", "run_md"]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
