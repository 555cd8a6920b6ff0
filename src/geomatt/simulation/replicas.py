"""What a batched simulation simulates: replicas of molecules or cells, and groups that one call evaluates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from geomatt.data.structures import Structure
from geomatt.model.domain import Bonds, Domain, PairLimits
from geomatt.model.domain.limits import visible
from geomatt.model.domain.measure import distances
from geomatt.simulation.forces import CellForces, Forces
from geomatt.simulation.inputs import watched


@dataclass(frozen=True)
class Replica:
    """One molecule to simulate."""

    numbers: np.ndarray  # (N,)
    positions: np.ndarray  # (N, 3) Å
    seed: int = 0  # of the first velocities and of Langevin forces
    name: str = ""
    velocities: np.ndarray | None = None  # (N, 3) in Å per Å √(u/eV), as ASE has them; drawn if not given
    limits: PairLimits | None = None  # walls act outside
    bonds: Bonds | None = None  # to watch
    ranges: PairLimits | None = None  # of distances in the training data, to watch
    cell: np.ndarray | None = None  # (3, 3) lattice vectors of a structure periodic in all directions

    @classmethod
    def of(
        cls,
        structure: Structure,
        seed: int = 0,
        domain: Domain | None = None,
        *,
        walls: bool = True,
        name: str = "",
    ) -> Replica:
        """A replica whose bonds, and walls unless they are off, are those of a model's domain."""
        ranges = bonds = None
        cell = structure.cell if structure.periodic else None
        if domain is not None and watched(len(structure)):
            length = distances(structure.positions, cell)
            bonds = domain.ranges.bonds(structure.numbers, length)
            ranges = domain.ranges.limits(structure.numbers, length, domain.walls.pairs)
            ranges = ranges if cell is None else visible(ranges, cell)
        return cls(
            structure.numbers,
            structure.positions,
            seed,
            name,
            limits=ranges if walls else None,
            bonds=bonds,
            ranges=ranges,
            cell=cell,
        )


@dataclass(frozen=True)
class Group:
    """Replicas that one call evaluates, padded to the largest of them."""

    replicas: Sequence[Replica]
    forces: Forces | CellForces  # those with cells need the latter

    @property
    def atoms(self) -> int:
        return max(len(r.numbers) for r in self.replicas)
