"""geomatt's models in other simulation programs: torch-sim, OpenMM, LAMMPS, i-PI and ASE's socket server.

Every engine gives the energies and forces of `GeomAttCalculator`, walls included. Names are imported when
first used, since each needs a package of its own: pip install 'geomatt[torch-sim]', 'geomatt[openmm]',
'geomatt[lammps]' or 'geomatt[ipi]'.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from geomatt.lazy import lazy_names

if TYPE_CHECKING:
    from geomatt.simulation.engines.ipi import ipi_forcefield, run_client
    from geomatt.simulation.engines.lammps import add_to_lammps, new_lammps
    from geomatt.simulation.engines.openmm import mixed_system, openmm_force
    from geomatt.simulation.engines.torch_sim import TorchSimModel

__all__, __getattr__, __dir__ = lazy_names(__name__)
