"""ASE calculators for tests of sampling and labelling: quick, and failing in every way."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np
from ase.calculators.calculator import CalculationFailed, Calculator

LENGTHS = {(1, 1): 1.53, (1, 8): 0.97, (8, 8): 2.8}


class Springs(Calculator):
    """Harmonic springs between all pairs of H and O.

    `fails`: one in so many structures fails when it is first seen. `kill`: a file; the process that removes
    it dies.
    """

    implemented_properties = ["energy", "forces"]  # noqa: RUF012 - ASE's convention
    strength = 25.0  # eV/Å²

    def __init__(self, fails: int = 0, kill: str = "") -> None:
        super().__init__()
        self.fails, self.kill, self.seen = fails, kill, set()

    def calculate(self, atoms=None, properties=("energy",), system_changes=()):
        super().calculate(atoms, properties, system_changes)
        self._misbehave()
        numbers, positions = self.atoms.numbers, self.atoms.positions
        energy, forces = 0.0, np.zeros_like(positions)
        for i in range(len(numbers)):
            for j in range(i):
                apart = positions[i] - positions[j]
                length = np.linalg.norm(apart)
                stretch = length - self.rest(numbers[i], numbers[j], length)
                energy += 0.5 * self.strength * stretch**2
                forces[i] -= self.strength * stretch * apart / length
                forces[j] += self.strength * stretch * apart / length
        self.results = {"energy": energy, "forces": forces}

    def rest(self, first, second, length):
        return LENGTHS[tuple(sorted((int(first), int(second))))]

    def _misbehave(self):
        where = self.atoms.positions.tobytes()
        if (
            self.fails
            and where not in self.seen
            and int(abs(self.atoms.positions.sum()) * 1e9) % self.fails == 0
        ):
            self.seen.add(where)
            raise CalculationFailed("SCF not converged in 250 cycles")
        if self.kill and Path(self.kill).exists():
            Path(self.kill).unlink()
            os.kill(os.getpid(), signal.SIGKILL)


class Repulsive(Springs):
    """Atoms are pushed apart."""

    def rest(self, first, second, length):
        return length + 0.1


class Never(Springs):
    """Fails for every structure but the first two it sees."""

    def calculate(self, atoms=None, properties=("energy",), system_changes=()):
        self.seen.add(atoms.positions.tobytes())
        if len(self.seen) > 2:
            raise CalculationFailed("SCF not converged in 250 cycles")
        super().calculate(atoms, properties, system_changes)


class OnlyEnergy(Calculator):
    implemented_properties = ["energy"]  # noqa: RUF012 - ASE's convention

    def calculate(self, atoms=None, properties=("energy",), system_changes=()):
        super().calculate(atoms, properties, system_changes)
        self.results = {"energy": 1.0}


class Dependent(Springs):
    """Needs a package that is not there."""

    def calculate(self, atoms=None, properties=("energy",), system_changes=()):
        import no_such_package  # noqa: F401


def not_a_calculator():
    return 3
