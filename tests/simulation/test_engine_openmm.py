"""OpenMM: the results and dynamics of ASE, a molecule in a classical environment, and invalid input."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
from engine_molecule import (
    ANOTHER,
    OUTSIDE,
    STEPS,
    TIMESTEP,
    charged,
    hide,
    other_element,
    overlapping,
    periodic,
    reference,
)

from geomatt import GeomAttCalculator, GeomAttError

openmm = pytest.importorskip("openmm", reason="OpenMM is not installed (pip install 'geomatt[openmm]')")

from openmm import app, unit  # noqa: E402

from geomatt.simulation.engines import mixed_system, openmm_force  # noqa: E402

MODULE = "geomatt.simulation.engines.openmm"
EV, EV_PER_ANGSTROM = 96.48533212, 964.8533212  # kJ/mol, kJ/mol/nm


def context_of(system, positions):
    context = openmm.Context(
        system, openmm.VerletIntegrator(TIMESTEP / 1000), openmm.Platform.getPlatformByName("Reference")
    )
    context.setPositions(positions / 10)
    return context


def results(context):
    """Energy (eV) and forces (eV/Å)."""
    state = context.getState(getEnergy=True, getForces=True)
    energy = state.getPotentialEnergy().value_in_unit(unit.kilojoule_per_mole) / EV
    forces = state.getForces(asNumpy=True).value_in_unit(unit.kilojoule_per_mole / unit.nanometer)
    return energy, forces / EV_PER_ANGSTROM


def free_system(atoms, force):
    system = openmm.System()
    for mass in atoms.get_masses():
        system.addParticle(mass)
    system.addForce(force)
    return system


@pytest.mark.filterwarnings(OUTSIDE)
def test_results_and_dynamics_are_those_of_ase():
    known = reference()
    calculator = GeomAttCalculator(known.potential)
    context = context_of(
        free_system(known.start, openmm_force(calculator, known.start.numbers)), known.start.positions
    )
    energy, forces = results(context)
    assert energy == pytest.approx(known.energy, abs=1e-5)
    np.testing.assert_allclose(forces, known.forces, atol=1e-5)
    # OpenMM's velocities are half a step behind its positions.
    masses = known.start.get_masses()[:, None]
    context.setVelocities(-0.5 * TIMESTEP / 1000 * EV_PER_ANGSTROM * forces / masses)
    context.getIntegrator().step(STEPS)
    end = 10 * context.getState(getPositions=True).getPositions(asNumpy=True)._value
    np.testing.assert_allclose(end, known.end, atol=1e-5)
    assert calculator.wall_steps == known.wall_steps


def test_a_periodic_box_is_the_cell_of_the_model():
    potential, atoms = periodic()
    force = openmm_force(potential, atoms.numbers, periodic=True)
    system = free_system(atoms, force)
    system.setDefaultPeriodicBoxVectors(*(atoms.cell.array / 10))
    energy, forces = results(context_of(system, atoms.positions))
    atoms.calc = GeomAttCalculator(potential)
    assert system.usesPeriodicBoundaryConditions()
    assert energy == pytest.approx(atoms.get_potential_energy(), abs=1e-5)
    np.testing.assert_allclose(forces, atoms.get_forces(), atol=1e-5)


def solvated():
    """Ethanol with classical parameters between two waters: topology, system, positions (Å)."""
    known = reference()
    topology = app.Topology()
    system = openmm.System()
    bonds, angles, torsions = (
        openmm.HarmonicBondForce(),
        openmm.HarmonicAngleForce(),
        openmm.PeriodicTorsionForce(),
    )
    pairs = openmm.NonbondedForce()
    chain = topology.addChain()
    for number, atoms in ((0, known.start.numbers), (1, [8, 1, 1]), (2, [8, 1, 1])):
        residue = topology.addResidue(f"M{number}", chain)
        for z in atoms:
            element = app.Element.getByAtomicNumber(int(z))
            topology.addAtom(element.symbol, element, residue)
            system.addParticle(element.mass)
            pairs.addParticle({8: -0.8, 1: 0.4}.get(z, 0.1) if number else 0.05, 0.2 if z == 1 else 0.3, 0.3)
    for i in range(8):
        bonds.addBond(i, i + 1, 0.1, 2e5)
    system.addConstraint(0, 3, 0.11)
    for first in (9, 12):
        for hydrogen in (1, 2):
            bonds.addBond(first, first + hydrogen, 0.096, 3e5)
            pairs.addException(first, first + hydrogen, 0, 1, 0)
        angles.addAngle(first + 1, first, first + 2, 1.8, 400.0)
        pairs.addException(first + 1, first + 2, 0, 1, 0)
    angles.addAngle(0, 1, 2, 1.9, 300.0)
    torsions.addTorsion(0, 1, 2, 3, 3, 0.0, 5.0)
    for force in (bonds, angles, torsions, pairs, openmm.CMMotionRemover()):
        system.addForce(force)
    water = np.array([[0.0, 0, 0], [0.98, 0, 0], [-0.3, 0.9, 0]])
    places = known.start.positions, water + np.array([5.0, 0, 0]), water + np.array([0, 6.0, 1.0])
    return topology, system, np.concatenate(places)


@pytest.mark.filterwarnings(OUTSIDE)
def test_a_mixed_system_is_the_model_plus_the_classical_environment():
    known = reference()
    topology, classical, positions = solvated()
    mixed = mixed_system(classical, known.potential, topology, range(9))
    assert (classical.getNumForces(), classical.getNumConstraints()) == (5, 1)  # left alone
    assert mixed.getNumConstraints() == 0
    assert mixed.getNumForces() == 7  # the model, and bonds without strength between its atoms
    energy, forces = results(context_of(mixed, positions))
    # The environment alone: the classical system less what it gives for the molecule by itself.
    classical.removeConstraint(0)
    whole, pull = results(context_of(classical, positions))
    for particle in range(9, 15):
        classical.getForce(3).setParticleParameters(particle, 0.0, 0.3, 0.0)
    for index in range(8, 12):
        i, j, length, _ = classical.getForce(0).getBondParameters(index)
        classical.getForce(0).setBondParameters(index, i, j, length, 0.0)
    for index in range(2):
        *where, angle, _ = classical.getForce(1).getAngleParameters(index)
        classical.getForce(1).setAngleParameters(index, *where, angle, 0.0)
    alone, own = results(context_of(classical, positions))
    assert energy == pytest.approx(known.energy + whole - alone, abs=1e-5)
    expected = pull - own
    expected[:9] += known.forces
    np.testing.assert_allclose(forces, expected, atol=1e-5)
    assert np.abs(expected[9:]).max() > 0.01
    molecules = [set(m) for m in context_of(mixed, positions).getMolecules()]
    assert set(range(9)) in molecules  # barostats move it as one


def test_charge_and_multiplicity():
    potential, atoms = charged()
    force = openmm_force(potential, atoms.numbers, charge=1, multiplicity=3)
    energy, forces = results(context_of(free_system(atoms, force), atoms.positions))
    assert energy == pytest.approx(atoms.get_potential_energy(), abs=1e-5)
    np.testing.assert_allclose(forces, atoms.get_forces(), atol=1e-5)


@pytest.mark.filterwarnings(OUTSIDE, ANOTHER)
def test_refusals(monkeypatch):
    known = reference()
    with pytest.raises(GeomAttError, match="holds N, which this model was not trained on"):
        openmm_force(known.potential, other_element().numbers)
    with pytest.raises(GeomAttError, match="is periodic, but in this model"):
        openmm_force(known.potential, known.start.numbers, periodic=True)
    for atoms in ([], [0, 9], [-1], [1, 1]):
        with pytest.raises(GeomAttError, match="`atoms` must be different numbers from 0 to 8"):
            openmm_force(known.potential, known.start.numbers, atoms=atoms)
    topology, classical, positions = solvated()
    with pytest.raises(GeomAttError, match=r"binds particles .* Give all `atoms` of the molecule"):
        mixed_system(classical, known.potential, topology, range(8))
    classical.addForce(openmm.AmoebaVdwForce())
    with pytest.raises(GeomAttError, match="AmoebaVdwForce, whose part inside the molecule"):
        mixed_system(classical, known.potential, topology, range(9))
    system = free_system(known.start, openmm_force(known.potential, known.start.numbers))
    with pytest.raises(openmm.OpenMMException, match="not be pickled"):
        openmm.XmlSerializer.serialize(system)  # a model in it would have to be unpickled
    context = context_of(system, overlapping().positions)
    with pytest.raises(openmm.OpenMMException, match="has overlapping atoms: C0 and C1"):
        results(context)
    positions = known.start.positions.copy()
    positions[0] = np.nan
    context.setPositions(positions / 10)
    with pytest.raises(openmm.OpenMMException, match=r"not finite|NaN"):
        results(context)
    hide(monkeypatch, "openmm", MODULE)
    with pytest.raises(GeomAttError, match=r"pip install 'geomatt\[openmm\]'"):
        importlib.import_module(MODULE)
