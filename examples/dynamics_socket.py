"""Molecular dynamics in ASE with the model in another process, or on another machine.

The simulation is ASE's; its energies and forces come through a socket from
`geomatt client MODEL STRUCTURE --host HOST --port PORT`, which this script starts by itself.

python examples/dynamics_socket.py --steps 200
"""

import argparse
import subprocess
import sys

from ase import Atoms, units
from ase.calculators.socketio import SocketIOCalculator
from ase.constraints import FixCom
from ase.md.langevin import Langevin

import geomatt

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--port", type=int, default=31416)
options = parser.parse_args()

molecule = geomatt.read("embedded/ethanol")[0]
atoms = Atoms(molecule.numbers, molecule.positions)
atoms.write("ethanol.xyz")


def launch(atoms, properties, port, unixsocket):
    """Start the client. Without a function like this one, ASE waits for one that you start."""
    command = ["geomatt", "client", "md17/ethanol:fast", "ethanol.xyz", "--port", str(port)]
    return subprocess.Popen([sys.executable, "-m", *command])


with SocketIOCalculator(port=options.port, launch_client=launch) as atoms.calc:
    atoms.set_constraint(FixCom())
    bath = {"temperature_K": 300, "friction": 0.01 / units.fs, "fixcm": False}
    Langevin(atoms, 0.5 * units.fs, **bath).run(options.steps)
print(f"temperature {atoms.get_temperature():.0f} K after {options.steps} steps")
