"""A molecule for the tests of engines, its potential with walls, and its dynamics in ASE as the reference."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from ase import Atoms, units
from ase.md.verlet import VelocityVerlet
from conftest import small_network

from geomatt import GeomAttCalculator, Potential
from geomatt.data import ethanol
from geomatt.model import Normalisation, new_network
from geomatt.model.domain import Domain

STEPS, TIMESTEP = 100, 0.5  # fs
OUTSIDE = "ignore:The distance between"  # the warning that the molecule below gives
ANOTHER = "ignore:.* is not the molecule of the training data"


@dataclass(frozen=True)
class Reference:
    """Ethanol with a stretched bond, let go at rest, and where it is after `STEPS` steps in ASE."""

    potential: Potential
    start: Atoms
    energy: float
    forces: np.ndarray
    end: np.ndarray
    wall_steps: int  # calculations in which a wall was active


@cache
def reference() -> Reference:
    """Computed once. A bond is outside its range, so that the walls do most of the work."""
    data = ethanol()[:100]
    potential = Potential(
        small_network(orders=(2, 3), layers=1), Normalisation(-4214.0, 0.5), ranges=Domain.measure(data)
    )
    first = data[0]
    distance = np.linalg.norm(first.positions[:, None] - first.positions[None], axis=-1)
    carbon, hydrogen = np.argwhere((distance < 1.25) & (distance > 0.5) & (first.numbers[:, None] == 6))[0]
    positions = first.positions.copy()
    positions[hydrogen] += 0.5 * (positions[hydrogen] - positions[carbon])
    start = Atoms(first.numbers, positions, cell=[20.0, 20.0, 20.0])
    atoms = start.copy()
    atoms.calc = GeomAttCalculator(potential)
    energy, forces = atoms.get_potential_energy(), atoms.get_forces()
    VelocityVerlet(atoms, TIMESTEP * units.fs).run(STEPS)
    assert atoms.calc.wall_steps > 10
    assert np.abs(atoms.positions - positions).max() > 0.1
    return Reference(potential, start, energy, forces, atoms.positions.copy(), atoms.calc.wall_steps)


@cache
def periodic() -> tuple[Potential, Atoms]:
    """Rattled diamond in a skewed cell, and a potential with a radius."""
    from ase.build import bulk

    network = small_network(orders=(2, 3), bias=False, elements=(6,), layers=1)
    atoms = bulk("C", "diamond", a=3.6)
    atoms.set_cell(atoms.cell.standard_form()[0], scale_atoms=True)
    atoms.rattle(0.05, seed=1)
    return Potential(network, Normalisation(shift=-10.0, scale=2.0)), atoms


def other_element() -> Atoms:
    """A molecule of which the potential does not know an element."""
    return Atoms("OH2N", [[0.0, 0, 0], [0.96, 0, 0], [-0.24, 0.93, 0], [3.0, 0, 0]])


def hide(monkeypatch, package: str, module: str) -> None:
    """As if `package` were not installed, for a first import of `module`."""
    import sys

    for name in [n for n in sys.modules if n == package or n.startswith(f"{package}.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, module, raising=False)


def float32_potential() -> Potential:
    """The potential of the reference in single precision."""
    import copy

    return copy.deepcopy(reference().potential).to(dtype=torch.float32)


@cache
def charged() -> tuple[Potential, Atoms]:
    """A potential that uses charge and spin, and a cation with its calculator."""
    torch.manual_seed(0)
    network = new_network("pair", {"channels": 8, "electrons": True}, (1, 6, 8), dtype=torch.float64)
    with torch.no_grad():
        for weights in network.parameters():  # those of charge and spin begin at zero
            weights += 0.1 * torch.randn_like(weights)
    potential = Potential(network, Normalisation())
    atoms = Atoms("OH3", [[0.0, 0, 0.1], [0.96, 0, 0], [-0.24, 0.93, 0], [-0.24, -0.93, 0]])
    neutral = atoms.copy()
    neutral.calc = GeomAttCalculator(potential)
    atoms.info.update(charge=1, multiplicity=3)
    atoms.calc = GeomAttCalculator(potential)
    assert abs(atoms.get_potential_energy() - neutral.get_potential_energy()) > 1e-3
    return potential, atoms


def overlapping() -> Atoms:
    """The molecule of the reference with two atoms on top of each other."""
    atoms = reference().start.copy()
    atoms.positions[1] = atoms.positions[0] + 0.1
    return atoms
