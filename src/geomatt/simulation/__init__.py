"""ASE calculator, molecular dynamics, relaxation, vibrations and scans.

Names are imported when first used: the calculator and relaxation need ASE, batched dynamics does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from geomatt.lazy import lazy_names

if TYPE_CHECKING:
    from geomatt.simulation.batched import BatchedDynamics
    from geomatt.simulation.calculator import GeomAttCalculator
    from geomatt.simulation.coordinates import Coordinate
    from geomatt.simulation.dynamics import MDResult, run_md
    from geomatt.simulation.ensembles import DynamicsConfig
    from geomatt.simulation.forces import PeriodicForces, PotentialForces, engine_forces
    from geomatt.simulation.md import MDReport, run_dynamics
    from geomatt.simulation.monitor import frame_histogram
    from geomatt.simulation.normal_modes import Vibrations, vibrations
    from geomatt.simulation.outcome import Outcome
    from geomatt.simulation.pressure import Barostat
    from geomatt.simulation.relaxation import Relaxed, relax
    from geomatt.simulation.replicas import Group, Replica
    from geomatt.simulation.restart import read_extra
    from geomatt.simulation.scans import Scan, scan
    from geomatt.simulation.settings import MDSettings, RelaxSettings, ScanSettings
    from geomatt.simulation.spectrum import velocity_spectrum
    from geomatt.simulation.watchdog import Watch

__all__, __getattr__, __dir__ = lazy_names(__name__)
