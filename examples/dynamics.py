"""Molecular dynamics of ethanol in ASE with a model that ships with geomatt.

python examples/dynamics.py --steps 2000
"""

import argparse

import numpy as np
from ase import Atoms
from ase.optimize import FIRE

import geomatt
from geomatt.simulation import run_md

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=2000)
options = parser.parse_args()

ethanol = geomatt.read("embedded/ethanol")[0]
atoms = Atoms(ethanol.numbers, ethanol.positions)
calculator = geomatt.GeomAttCalculator("md17/ethanol:fast")
atoms.calc = calculator
FIRE(atoms, logfile=None).run(fmax=0.05, steps=200)
result = run_md(atoms, calculator, steps=options.steps, temperature_K=300, ensemble="nvt", seed=1)
print(f"mean temperature {np.mean(result.temperature_K):.0f} K")
print(f"highest temperature {np.max(result.temperature_K):.0f} K")
print(f"steps with a wall at the end of the training data active: {calculator.wall_steps}")
