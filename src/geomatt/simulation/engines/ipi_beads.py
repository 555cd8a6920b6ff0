"""A model inside i-PI, without a socket: all beads of a path integral in one evaluation.

i-PI loads this file by its path (`ipi_forcefield` writes the input for it).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from geomatt.data import read
from geomatt.data.batch import collate
from geomatt.data.structures import Structure
from geomatt.errors import GeomAttError
from geomatt.simulation.engines.many_systems import ManySystems
from geomatt.units import ENERGY_IN_EV, LENGTH_IN_ANGSTROM

try:
    from ipi.pes.dummy import Dummy_driver
except ImportError as error:
    raise GeomAttError("i-PI is not installed. Install it with: pip install 'geomatt[ipi]'") from error

__DRIVER_NAME__, __DRIVER_CLASS__ = "geomatt", "BeadsDriver"  # what i-PI looks for

HARTREE, BOHR = ENERGY_IN_EV["Hartree"], LENGTH_IN_ANGSTROM["Bohr"]


class BeadsDriver(Dummy_driver):
    """A potential-energy surface for i-PI's `<ffdirect>`, in atomic units.

    Args:
        model, device, dtype, walls: see `ManySystems`.
        template: file whose first structure has the atoms in i-PI's order, and says whether i-PI's cell has
            a meaning (periodic boundaries) or not.
    """

    def __init__(
        self,
        model: str,
        template: str,
        device: str = "cpu",
        dtype: str | None = None,
        walls: bool = True,
        **rest: Any,
    ) -> None:
        self.structure = read(template, keys={"energy": "none", "forces": "none"})[0]
        self.systems = ManySystems(model, device, dtype, walls)
        self.beads = 0
        super().__init__(**rest)

    def compute(self, cell: Any, pos: Any) -> Any:
        """Potential, forces, virial and extras of one structure, or a list of them for a list."""
        if not isinstance(pos, list):
            return self.compute([cell], [pos])[0]
        potential = self.systems.potential
        structures = [self._moved(c, p) for c, p in zip(cell, pos, strict=True)]
        if len(structures) != self.beads:
            template = [self.structure] * len(structures)
            self.systems.start(template, collate(template, potential.dtype, potential.device))
            self.beads = len(structures)
        found = self.systems.evaluate(collate(structures, potential.dtype, potential.device))
        assert found.forces is not None
        energy = found.energy.cpu().numpy() / HARTREE
        forces = found.forces.double().cpu().numpy() * (BOHR / HARTREE)
        virial = np.zeros((len(structures), 3, 3))
        if found.stress is not None and all(self.structure.pbc):
            volumes = np.abs(np.linalg.det(np.array([s.cell for s in structures])))
            virial = -volumes[:, None, None] * found.stress.double().cpu().numpy() / HARTREE
        return [(float(e), f, v, "") for e, f, v in zip(energy, forces, virial, strict=True)]

    def _moved(self, cell: np.ndarray, positions: np.ndarray) -> Structure:
        """The structure at positions and with a cell, whose vectors i-PI has in columns, in Bohr."""
        if len(positions) != len(self.structure):
            raise GeomAttError(
                f"i-PI moves {len(positions)} atoms, the template has {len(self.structure)}. Give both the "
                "same structure."
            )
        lattice = BOHR * np.asarray(cell).T if self.structure.periodic else None
        return replace(self.structure, positions=BOHR * np.asarray(positions), cell=lattice)
