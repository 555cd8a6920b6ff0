"""Notices an optimisation that runs away, as happens where a model does not know the structure.

One step proves nothing: the first steps from a distorted start may have forces of any size, and still lead to
the minimum. They last a few steps, since every step moves an atom by up to 0.2 Å. Forces of a cell are not
looked at: a compressed cell expands for many steps.
"""

from __future__ import annotations

import numpy as np

from geomatt.data.structures import Structure
from geomatt.simulation.inputs import overlap

HIGHEST = 100.0  # eV/Å: a bond squeezed to two thirds of its length
PATIENCE = 25  # structures in a row; optimisations that ended at a proper minimum had at most 4
NOT_FINITE = "the energy or a force is no finite number"
STEEP = f"a force was above {HIGHEST:g} eV/Å in {PATIENCE} structures in a row"
OVERLAPPING = f"atoms were on top of each other in {PATIENCE} structures in a row"
FOREIGN = "bonds changed, and the model was trained on another molecule"
ENDED_OVERLAPPING = "atoms are on top of each other at its end"


class Runaway:
    """What went wrong in an optimisation, from its steps in their order."""

    def __init__(self) -> None:
        self._steep = self._overlapping = 0  # structures in a row

    def failure(self, energy: float, forces: np.ndarray, now: Structure) -> str:
        """Why to stop after this step, in words; empty to go on. `forces` (N, 3) are those on atoms."""
        if not (np.isfinite(energy) and np.isfinite(forces).all()):
            return NOT_FINITE
        steep = np.linalg.norm(forces, axis=1).max(initial=0.0) > HIGHEST
        self._steep = self._steep + 1 if steep else 0
        self._overlapping = self._overlapping + 1 if overlap(now) else 0
        if self._steep >= PATIENCE:
            return STEEP
        return OVERLAPPING if self._overlapping >= PATIENCE else ""

    def failure_at_end(self) -> str:
        """Why the last structure is no result; empty if it may be one."""
        return ENDED_OVERLAPPING if self._overlapping else ""
