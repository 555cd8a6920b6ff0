"""ASE calculator, short molecular dynamics with ASE, and batched dynamics without it.

Names are imported when first used: the calculator needs ASE, batched dynamics does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from geomatt.lazy import lazy_names

if TYPE_CHECKING:
    from geomatt.simulation.batched import BatchedDynamics, Group, Replica
    from geomatt.simulation.calculator import GeomAttCalculator
    from geomatt.simulation.dynamics import MDResult, run_md
    from geomatt.simulation.ensembles import DynamicsConfig
    from geomatt.simulation.forces import engine_forces
    from geomatt.simulation.monitor import frame_histogram
    from geomatt.simulation.outcome import Outcome

_MODULES = {
    "BatchedDynamics": "batched",
    "DynamicsConfig": "ensembles",
    "GeomAttCalculator": "calculator",
    "Group": "batched",
    "MDResult": "dynamics",
    "Outcome": "outcome",
    "Replica": "batched",
    "engine_forces": "forces",
    "frame_histogram": "monitor",
    "run_md": "dynamics",
}

__all__ = list(_MODULES)
__getattr__, __dir__ = lazy_names(__name__, _MODULES)
