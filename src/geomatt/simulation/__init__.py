"""ASE calculator, short molecular dynamics with ASE, and batched dynamics without it.

Names are imported when first used: the calculator needs ASE, batched dynamics does not.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from geomatt.simulation.batched import BatchedDynamics, Group, Replica
    from geomatt.simulation.calculator import GeomAttCalculator
    from geomatt.simulation.dynamics import MDResult, run_md
    from geomatt.simulation.ensembles import DynamicsConfig

_MODULES = {
    "BatchedDynamics": "batched",
    "DynamicsConfig": "ensembles",
    "GeomAttCalculator": "calculator",
    "Group": "batched",
    "MDResult": "dynamics",
    "Replica": "batched",
    "run_md": "dynamics",
}

__all__ = ["BatchedDynamics", "DynamicsConfig", "GeomAttCalculator", "Group", "MDResult", "Replica", "run_md"]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
