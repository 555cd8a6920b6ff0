"""A crystal: frames of copper labelled with EMT, a network trained on them, dynamics at constant pressure.

python examples/crystal.py --epochs 100
"""

import argparse

import numpy as np
from ase import units
from ase.build import bulk
from ase.calculators.emt import EMT
from ase.md.nptberendsen import NPTBerendsen
from ase.md.velocitydistribution import thermalize_momenta

import geomatt
from geomatt import Dataset, Structure, random_split, resolve
from geomatt.units import GIGAPASCAL

BULK_MODULUS = 140.0  # of copper, GPa

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--frames", type=int, default=120)
parser.add_argument("--repeat", type=int, default=2, help="cubes of 4 atoms along each edge of the cell")
parser.add_argument("--epochs", type=int, default=100)
parser.add_argument("--steps", type=int, default=500, help="of dynamics, 2 fs each")
parser.add_argument("--out", default="crystal")
given = parser.parse_args()

rng = np.random.default_rng(0)
frames = []
for _ in range(given.frames):
    atoms = bulk("Cu", cubic=True) * ([given.repeat] * 3)
    atoms.set_cell(atoms.cell.array @ (np.eye(3) + 0.03 * rng.standard_normal((3, 3))), scale_atoms=True)
    atoms.positions += 0.15 * rng.standard_normal(atoms.positions.shape)
    atoms.calc = EMT()
    frames.append(
        Structure(
            atoms.numbers,
            atoms.positions,
            energy=atoms.get_potential_energy(),
            forces=atoms.get_forces(),
            stress=atoms.get_stress(voigt=False),
            cell=atoms.cell.array,
            pbc=(True, True, True),
        )
    )
data = Dataset.from_structures(frames, name="copper")

# A radius makes the network legal in cells, and energies proportional to the number of atoms.
test = max(1, len(data) // 6)
split = random_split(len(data), len(data) - 2 * test, test, test)
config = resolve(
    {"model": "pair", "radius": 4.5, "channels": 32, "rounds": 2, "epochs": given.epochs, "batch": 4,
     "learning_rate": 3e-3}
)  # fmt: skip
result = geomatt.train(data, split, config, given.out)
errors = geomatt.evaluate(result.potential, data, indices=split.test).overall
print(f"test: {1e3 * errors.energy_per_atom_mae:.1f} meV/atom, {1e3 * errors.forces_mae:.0f} meV/Å, ", end="")
print(f"{GIGAPASCAL * errors.stress_mae:.2f} GPa")

# Stress is the derivative of the energy with respect to strain: against finite differences, in float64.
model = geomatt.load(f"{given.out}/model.safetensors", dtype="float64")
atoms = bulk("Cu", cubic=True) * ([given.repeat] * 3)
atoms.calc = geomatt.GeomAttCalculator(model, walls=False)
stress, cell, step = atoms.get_stress(voigt=False), atoms.cell.array.copy(), 1e-4
sides = []
for sign in (1, -1):
    atoms.set_cell(cell * np.array([1 + sign * step, 1, 1]), scale_atoms=True)
    sides.append(atoms.get_potential_energy())
atoms.set_cell(cell, scale_atoms=True)
slope = (sides[0] - sides[1]) / (2 * step * atoms.get_volume())
print(f"stress along x: {GIGAPASCAL * stress[0, 0]:.5f} GPa, by differences {GIGAPASCAL * slope:.5f} GPa")

atoms.calc = geomatt.GeomAttCalculator(f"{given.out}/model.safetensors")
thermalize_momenta(atoms, temperature_K=300, rng=np.random.default_rng(0))
dynamics = NPTBerendsen(
    atoms, 2 * units.fs, temperature_K=300, pressure_au=0.0, compressibility_au=GIGAPASCAL / BULK_MODULUS,
    taut=100 * units.fs, taup=500 * units.fs,
)  # fmt: skip
lengths = []
dynamics.attach(lambda: lengths.append((atoms.get_volume() / len(atoms) * 4) ** (1 / 3)))
dynamics.run(given.steps)
print(f"lattice constant at 300 K and zero pressure: {np.mean(lengths[len(lengths) // 2 :]):.3f} Å")
