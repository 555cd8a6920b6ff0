"""Ethanol by a model in water by a classical force field, in OpenMM.

Inside the molecule all forces are the model's. Between it and the water they are classical: Coulomb and
Lennard-Jones, with OPLS-AA parameters for ethanol and TIP3P for water.

pip install 'geomatt[openmm]'
python examples/dynamics_openmm_mixed.py --steps 2000
"""

import argparse
from io import StringIO

import numpy as np
import openmm
from openmm import app, unit

import geomatt
from geomatt.data.bonds import bonded
from geomatt.simulation.engines import mixed_system

# Only what acts between molecules: charge (e), σ (nm) and ε (kJ/mol) of each atom.
NONBONDED = {
    "CH3": (-0.18, 0.35, 0.276144),
    "CH2": (0.145, 0.35, 0.276144),
    "OH": (-0.683, 0.312, 0.71128),
    "HC": (0.06, 0.25, 0.12552),
    "HO": (0.418, 0.1, 0.0),
}


def kinds(numbers, links):
    """The name of each atom's parameters, from its element and its neighbours."""
    oxygen = links[:, numbers == 8].any(1)
    by_element = {1: ("HC", "HO"), 6: ("CH3", "CH2"), 8: ("OH", "OH")}
    return [by_element[z][int(near)] for z, near in zip(numbers.tolist(), oxygen, strict=True)]


def force_field(numbers, links):
    """OpenMM's force field for ethanol with these bonds, and for water."""
    types, atoms, charges, bonds = [], [], [], []
    for i, (z, kind) in enumerate(zip(numbers.tolist(), kinds(numbers, links), strict=True)):
        element = app.Element.getByAtomicNumber(z)
        mass, (charge, sigma, epsilon) = element.mass.value_in_unit(unit.dalton), NONBONDED[kind]
        types.append(f'<Type name="e{i}" class="e{i}" element="{element.symbol}" mass="{mass}"/>')
        atoms.append(f'<Atom name="a{i}" type="e{i}"/>')
        charges.append(f'<Atom type="e{i}" charge="{charge}" sigma="{sigma}" epsilon="{epsilon}"/>')
        bonds += [f'<Bond atomName1="a{i}" atomName2="a{j}"/>' for j in np.flatnonzero(links[i, :i])]
    text = f"""<ForceField>
    <AtomTypes>{"".join(types)}</AtomTypes>
    <Residues><Residue name="ETH">{"".join(atoms)}{"".join(bonds)}</Residue></Residues>
    <NonbondedForce coulomb14scale="0.833333" lj14scale="0.5">{"".join(charges)}</NonbondedForce>
    </ForceField>"""
    return app.ForceField(StringIO(text), "tip3p.xml")


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=2000)
parser.add_argument("--box", type=float, default=2.4, help="edge of the box of water in nm")
options = parser.parse_args()

ethanol = geomatt.read("embedded/ethanol")[0]
distance = np.linalg.norm(ethanol.positions[:, None] - ethanol.positions[None], axis=-1)
links = bonded(ethanol.numbers, distance)
topology = app.Topology()
residue = topology.addResidue("ETH", topology.addChain())
for i, number in enumerate(ethanol.numbers):
    element = app.Element.getByAtomicNumber(int(number))
    topology.addAtom(f"a{i}", element, residue)
atoms = list(topology.atoms())
for i, j in np.argwhere(np.triu(links)):
    topology.addBond(atoms[i], atoms[j])

parameters = force_field(ethanol.numbers, links)
solution = app.Modeller(topology, ethanol.positions * unit.angstrom)
edge = options.box
solution.addSolvent(parameters, model="tip3p", boxSize=openmm.Vec3(edge, edge, edge) * unit.nanometer)
classical = parameters.createSystem(
    solution.topology, nonbondedMethod=app.PME, nonbondedCutoff=0.45 * edge * unit.nanometer, rigidWater=True
)
molecule = range(len(ethanol))

# The water first, around the molecule at rest: particles without mass do not move.
masses = [classical.getParticleMass(i) for i in molecule]
for i in molecule:
    classical.setParticleMass(i, 0.0)
water = app.Simulation(solution.topology, classical, openmm.VerletIntegrator(1 * unit.femtosecond))
water.context.setPositions(solution.positions)
water.minimizeEnergy(maxIterations=200)
for i in molecule:
    classical.setParticleMass(i, masses[i])

calculator = geomatt.GeomAttCalculator("md17/ethanol:fast")
system = mixed_system(classical, calculator, solution.topology, molecule)

integrator = openmm.LangevinMiddleIntegrator(300 * unit.kelvin, 1 / unit.picosecond, 0.5 * unit.femtosecond)
simulation = app.Simulation(solution.topology, system, integrator)
simulation.context.setPositions(water.context.getState(positions=True).getPositions())
simulation.context.setVelocitiesToTemperature(300 * unit.kelvin, 1)
simulation.step(options.steps)

molecules = (system.getNumParticles() - len(ethanol)) // 3
free = 3 * system.getNumParticles() - system.getNumConstraints() - 3
state = simulation.context.getState(energy=True, positions=True)
positions = state.getPositions(asNumpy=True).value_in_unit(unit.angstrom)[molecule]
temperature = 2 * state.getKineticEnergy() / (free * unit.MOLAR_GAS_CONSTANT_R)
print(f"one molecule of ethanol in {molecules} of water, {options.steps} steps")
print(f"temperature {temperature.value_in_unit(unit.kelvin):.0f} K")
print(f"energy {state.getPotentialEnergy().value_in_unit(unit.kilojoule_per_mole):.0f} kJ/mol")
print(f"ethanol is {np.linalg.norm(positions[:, None] - positions[None], axis=-1).max():.2f} Å long")
print(f"steps with a wall at the end of the training data active: {calculator.wall_steps}")
