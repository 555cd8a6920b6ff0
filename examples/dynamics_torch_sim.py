"""Molecular dynamics of many replicas of ethanol at once in torch-sim.

pip install 'geomatt[torch-sim]'
python examples/dynamics_torch_sim.py --replicas 256 --steps 2000 --device cuda
"""

import argparse
import time

import torch_sim as ts
from ase import Atoms
from torch_sim.units import MetalUnits

import geomatt
from geomatt.simulation.engines import TorchSimModel

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--replicas", type=int, default=64)
parser.add_argument("--steps", type=int, default=500)
parser.add_argument("--device", default="cpu")
options = parser.parse_args()

frames = geomatt.read("embedded/ethanol")[: options.replicas]
replicas = [Atoms(frame.numbers, frame.positions) for frame in frames]
model = TorchSimModel("md17/ethanol:fast", device=options.device)

start = time.perf_counter()
state = ts.integrate(
    system=replicas,
    model=model,
    integrator=getattr(ts, "Integrator", ts).nvt_langevin,  # ts.nvt_langevin before torch-sim 0.4
    n_steps=options.steps,
    temperature=300,  # K
    timestep=0.0005,  # ps
)
seconds = time.perf_counter() - start
kT = ts.calc_kT(masses=state.masses, momenta=state.momenta, system_idx=state.system_idx)
print(f"{options.steps * len(replicas) / seconds:.0f} steps × replicas per second")
print(f"mean temperature at the end {float(kT.mean()) / MetalUnits.temperature:.0f} K")
print(f"replicas in which a wall at the end of the training data was active: {(model.wall_steps > 0).sum()}")
