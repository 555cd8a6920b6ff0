"""Molecular dynamics of ethanol in OpenMM.

pip install 'geomatt[openmm]'
python examples/dynamics_openmm.py --steps 2000
"""

import argparse

import openmm
from openmm import app, unit

import geomatt
from geomatt.simulation.engines import openmm_force

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=2000)
options = parser.parse_args()

# Usually a topology comes from a file: app.PDBFile("molecule.pdb").topology
ethanol = geomatt.read("embedded/ethanol")[0]
topology, system = app.Topology(), openmm.System()
residue = topology.addResidue("ETH", topology.addChain())
for number in ethanol.numbers:
    element = app.Element.getByAtomicNumber(int(number))
    topology.addAtom(element.symbol, element, residue)
    system.addParticle(element.mass)

calculator = geomatt.GeomAttCalculator("md17/ethanol:fast")  # or the model itself, without the counts below
system.addForce(openmm_force(calculator, topology))
integrator = openmm.LangevinMiddleIntegrator(300 * unit.kelvin, 10 / unit.picosecond, 0.5 * unit.femtosecond)
simulation = app.Simulation(topology, system, integrator)
simulation.context.setPositions(ethanol.positions * unit.angstrom)
simulation.context.setVelocitiesToTemperature(300 * unit.kelvin, 1)
simulation.step(options.steps)

state = simulation.context.getState(energy=True)
kinetic = state.getKineticEnergy() / (1.5 * len(ethanol) * unit.MOLAR_GAS_CONSTANT_R)
print(f"potential energy {state.getPotentialEnergy().value_in_unit(unit.kilojoule_per_mole):.1f} kJ/mol")
print(f"temperature {kinetic.value_in_unit(unit.kelvin):.0f} K")
print(f"steps with a wall at the end of the training data active: {calculator.wall_steps}")
