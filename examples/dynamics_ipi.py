"""Path-integral molecular dynamics of ethanol in i-PI: the quantum kinetic energy of its nuclei.

i-PI moves the beads of the ring polymers; this script starts it and gives it energies and forces through a
socket. With --together the model is loaded by i-PI itself and evaluates all beads at once.

pip install 'geomatt[ipi]'
python examples/dynamics_ipi.py --beads 16 --steps 2000
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

import ase.io
import numpy as np
from ase import Atoms, units

import geomatt
from geomatt.simulation.engines import ipi_forcefield, run_client

INPUT = """<simulation verbosity='quiet'>
  <output prefix='ethanol'>
    <properties stride='1' filename='out'>
      [ time{{femtosecond}}, temperature{{kelvin}}, kinetic_cv{{electronvolt}}, potential{{electronvolt}} ]
    </properties>
    <trajectory stride='20' filename='centroid' format='ase'> x_centroid </trajectory>
  </output>
  <total_steps> {steps} </total_steps>
  <prng> <seed> 1 </seed> </prng>
  {forcefield}
  <system>
    <initialize nbeads='{beads}'>
      <file mode='ase' units='ase'> start.extxyz </file>
      <velocities mode='thermal' units='kelvin'> 300 </velocities>
    </initialize>
    <forces> <force forcefield='geomatt'/> </forces>
    <ensemble> <temperature units='kelvin'> 300 </temperature> </ensemble>
    <motion mode='dynamics'>
      <dynamics mode='nvt'>
        <timestep units='femtosecond'> 0.25 </timestep>
        <thermostat mode='pile_l'> <tau units='femtosecond'> 50 </tau> </thermostat>
      </dynamics>
    </motion>
  </system>
</simulation>
"""

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--beads", type=int, default=16)
parser.add_argument("--steps", type=int, default=2000)
parser.add_argument("--together", action="store_true")
options = parser.parse_args()

molecule = geomatt.read("embedded/ethanol")[0]
ethanol = Atoms(molecule.numbers, molecule.positions)
box = ethanol.copy()  # i-PI's structures have a cell, which means nothing here
box.center(vacuum=10.0)
box.pbc = True
ase.io.write("start.extxyz", box)
ethanol.write("ethanol.xyz")
address = f"ethanol_{os.getpid()}"
# pbc='false': atoms of a molecule must not be moved to the other side of i-PI's box
forcefield = f"<ffsocket name='geomatt' mode='unix' pbc='false'> <address> {address} </address> </ffsocket>"
if options.together:
    forcefield = ipi_forcefield("md17/ethanol:fast", "ethanol.xyz", beads=options.beads)
Path("input.xml").write_text(INPUT.format(forcefield=forcefield, **vars(options)), encoding="utf-8")

program = Path(sys.executable).with_name("i-pi")
server = subprocess.Popen([sys.executable, program, "input.xml"], stdout=subprocess.DEVNULL)
if not options.together:
    calculator = run_client("md17/ethanol:fast", ethanol, unix=address)
    print(f"calculations with a wall at the end of the training data active: {calculator.wall_steps}")
server.wait()

_, temperature, kinetic, _ = np.loadtxt("ethanol.out", ndmin=2)[options.steps // 2 :].T
classical = 1.5 * len(ethanol) * units.kB * 300
print(f"mean temperature {temperature.mean():.0f} K")
print(f"quantum kinetic energy {kinetic.mean():.2f} eV, classical {classical:.2f} eV")
