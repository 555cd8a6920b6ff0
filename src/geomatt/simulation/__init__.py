"""ASE calculator and short molecular dynamics. Needs ASE, so nothing is imported before it is used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from geomatt.lazy import lazy_names

if TYPE_CHECKING:
    from geomatt.simulation.calculator import GeomAttCalculator
    from geomatt.simulation.dynamics import MDResult, run_md

_MODULES = {"GeomAttCalculator": "calculator", "MDResult": "dynamics", "run_md": "dynamics"}

__all__ = list(_MODULES)
__getattr__, __dir__ = lazy_names(__name__, _MODULES)
