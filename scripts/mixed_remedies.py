"""Forces for `measure_mixed.py`: energies added to a model outside its training data, and GFN2-xTB.

The added energies are zero for the training frames, and know elements and distances only, no bonds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations_with_replacement

import numpy as np
import torch
from torch import Tensor

from geomatt.data import Dataset, Structure, collate
from geomatt.data.bonds import distances
from geomatt.data.make import Method
from geomatt.data.make.method import NotConverged, Reference
from geomatt.elements import COVALENT_RADII
from geomatt.model.domain.limits import geometry
from geomatt.simulation.forces import Forces

Term = Callable[[Tensor], tuple[Tensor, Tensor]]  # energies (R,) and forces (R, N, 3) of positions (R, N, 3)
COULOMB, BOHR = 14.399645, 0.52917721  # eV Å, Å
# Ziegler, Biersack & Littmark 1985: screening of two nuclei, as factors and exponents.
ZBL = ((0.18175, 3.19980), (0.50986, 0.94229), (0.28022, 0.40290), (0.02817, 0.20162))
# The count of neighbours of Grimme et al. 2010: steepness, and scale of the sum of covalent radii.
STEEP, SCALE = 16.0, 4.0 / 3.0
STIFFNESS = 25.0  # eV per squared neighbour too many or too few


def zbl(charges: Tensor, reach: Tensor, distance: Tensor) -> tuple[Tensor, Tensor]:
    """Energy and slope of nuclei at a distance, by the product of their charges and screening length."""
    energy = slope = torch.zeros_like(distance)
    for factor, exponent in ZBL:
        part = COULOMB * charges / distance * factor * (-exponent * distance / reach).exp()
        energy = energy + part
        slope = slope - part * (1.0 / distance + exponent / reach)
    return energy, slope


class Repulsion:
    """ZBL less its tangent at the shortest distance of the two elements in the training frames.

    So energy and force rise from zero there, and nothing changes at larger distances.
    """

    def __init__(self, numbers: Tensor, shortest: dict[tuple[int, int], float]) -> None:
        """`numbers` (R, N), zero for padding."""
        z, pairs = numbers.double(), _pairs(numbers)
        product = z[..., :, None] * z[..., None, :]
        power = z.clamp(min=1.0) ** 0.23
        self.charges = torch.where(pairs, product, 0.0)
        self.reach = 0.8854 * BOHR / (power[..., :, None] + power[..., None, :])
        begin = torch.zeros_like(product)
        for (a, b), length in shortest.items():
            begin[pairs & _both(numbers, a, b)] = length
        self.begin = begin
        known = begin.clamp(min=1e-6)
        self.at, self.slope = zbl(self.charges, self.reach, known)

    def __call__(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        vectors, distance = geometry(positions.double())
        energy, slope = zbl(self.charges, self.reach, distance)
        near = distance < self.begin
        energy = torch.where(near, energy - self.at - self.slope * (distance - self.begin), 0.0)
        slope = torch.where(near, slope - self.slope, 0.0)
        return 0.5 * energy.sum((-1, -2)), -((slope / distance)[..., None] * vectors).sum(-2)


class Coordination:
    """Harmonic where an atom has more or fewer neighbours than its element in the training frames."""

    def __init__(self, numbers: Tensor, ranges: dict[int, tuple[float, float]]) -> None:
        self.pairs, self.lengths = _pairs(numbers), _bond_lengths(numbers)
        self.least = torch.full(numbers.shape, -torch.inf, dtype=torch.float64)
        self.most = -self.least
        for z, (least, most) in ranges.items():
            self.least[numbers == z], self.most[numbers == z] = least, most

    def __call__(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        vectors, distance = geometry(positions.double())
        each, slope = _neighbour(self.lengths, distance)
        count = torch.where(self.pairs, each, 0.0).sum(-1)
        excess = (count - self.most).clamp(min=0.0) - (self.least - count).clamp(min=0.0)
        pull = STIFFNESS * (excess[..., :, None] + excess[..., None, :]) * slope
        pull = torch.where(self.pairs, pull, 0.0)
        energy = 0.5 * STIFFNESS * excess.square().sum(-1)
        return energy, -((pull / distance)[..., None] * vectors).sum(-2)


class Added:
    """Forces of a model with those of a term, which counts the steps it acts in."""

    def __init__(self, forces: Forces, term: Term, replicas: int) -> None:
        self.forces, self.term = forces, term
        self.acted = torch.zeros(replicas, dtype=torch.int64)
        self.alive: Tensor | None = None  # of the simulation, once there is one

    def __call__(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        energy, forces = self.forces(positions)
        more, push = self.term(positions)
        if self.alive is not None:
            self.acted.add_((more > 0) & self.alive)
        return energy + more, forces + push


class ByReference:
    """Forces of GFN2-xTB; nan, which ends a replica, where it does not converge."""

    def __init__(self, structures: Sequence[Structure]) -> None:
        self.each = [Reference(Method(), structure) for structure in structures]
        self.alive: Tensor | None = None  # of the simulation: replicas that stopped are not computed

    def __call__(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        energy, forces = torch.zeros(len(positions), dtype=torch.float64), torch.zeros_like(positions)
        for r, reference in enumerate(self.each):
            if self.alive is not None and not self.alive[r]:
                continue
            atoms = len(reference.structure)
            try:
                found, force = reference(positions[r, :atoms].numpy())
            except NotConverged:
                found, force = np.nan, np.full((atoms, 3), np.nan)
            energy[r], forces[r, :atoms] = found, torch.from_numpy(force)
        return energy, forces


def shortest_distances(data: Dataset) -> dict[tuple[int, int], float]:
    """Of two elements, whatever the bonds between them."""
    found: dict[tuple[int, int], float] = {}
    for frame in data:
        length = distances(frame) + np.diag(np.full(len(frame), np.inf))
        for a, b in combinations_with_replacement(sorted({int(z) for z in frame.numbers}), 2):
            least = float(length[np.ix_(frame.numbers == a, frame.numbers == b)].min())
            if np.isfinite(least):
                found[a, b] = min(found.get((a, b), np.inf), least)
    return found


def neighbour_ranges(data: Dataset) -> dict[int, tuple[float, float]]:
    """The fewest and most neighbours of each element's atoms."""
    found: dict[int, tuple[float, float]] = {}
    for frame in data:
        for z, count in zip(frame.numbers.tolist(), neighbours(frame).tolist(), strict=True):
            least, most = found.get(z, (np.inf, -np.inf))
            found[z] = min(least, count), max(most, count)
    return found


def neighbours(frame: Structure) -> np.ndarray:
    """The smooth number of neighbours (N,) of each atom."""
    batch = collate([frame], torch.float64)
    _, distance = geometry(batch.positions)
    each, _ = _neighbour(_bond_lengths(batch.numbers), distance)
    found: np.ndarray = torch.where(_pairs(batch.numbers), each, 0.0).sum(-1)[0].numpy()
    return found


def _neighbour(lengths: Tensor, distance: Tensor) -> tuple[Tensor, Tensor]:
    """How much of a neighbour an atom is, from 0 to 1, and the slope of that."""
    each = torch.sigmoid(STEEP * (lengths / distance - 1.0))
    return each, -STEEP * lengths / distance.square() * each * (1.0 - each)


def _bond_lengths(numbers: Tensor) -> Tensor:
    radii = torch.from_numpy(COVALENT_RADII)[(numbers - 1).clamp(min=0)]
    return SCALE * (radii[..., :, None] + radii[..., None, :])


def _pairs(numbers: Tensor) -> Tensor:
    """True for two different atoms, neither of them padding (..., N, N)."""
    real = numbers > 0
    return real[..., :, None] & real[..., None, :] & ~torch.eye(numbers.shape[-1], dtype=torch.bool)


def _both(numbers: Tensor, a: int, b: int) -> Tensor:
    one, other = numbers[..., :, None], numbers[..., None, :]
    return ((one == a) & (other == b)) | ((one == b) & (other == a))
