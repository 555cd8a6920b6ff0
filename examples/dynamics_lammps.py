"""Molecular dynamics of ethanol in LAMMPS.

pip install 'geomatt[lammps]'
python examples/dynamics_lammps.py --steps 2000 --units real
"""

import argparse

import ase.io
from ase import Atoms

import geomatt
from geomatt.simulation.engines import add_to_lammps, new_lammps

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=2000)
parser.add_argument("--units", choices=["metal", "real"], default="real")
options = parser.parse_args()

molecule = geomatt.read("embedded/ethanol")[0]
ethanol = Atoms(molecule.numbers, molecule.positions)
ethanol.center(vacuum=10.0)  # a box around the molecule
types = ["C", "H", "O"]
ase.io.write("ethanol.data", ethanol, format="lammps-data", specorder=types, masses=True, units=options.units)

femtosecond = {"metal": 0.001, "real": 1.0}[options.units]
lmp = new_lammps()
lmp.commands_string(f"""
units {options.units}
atom_style atomic
boundary s s s
read_data ethanol.data
""")
calculator = add_to_lammps(lmp, "md17/ethanol:fast", types)
lmp.commands_string(f"""
velocity all create 300 1 mom yes rot yes
fix motion all nve
fix bath all langevin 300 300 {100 * femtosecond} 1 zero yes
timestep {0.5 * femtosecond}
thermo 100
run {options.steps}
""")
print(f"potential energy {lmp.get_thermo('pe'):.3f} {'eV' if options.units == 'metal' else 'kcal/mol'}")
print(f"temperature {lmp.get_thermo('temp'):.0f} K")
print(f"steps with a wall at the end of the training data active: {calculator.wall_steps}")
