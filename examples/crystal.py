"""A crystal: frames of copper labelled with EMT, a network trained on them, dynamics at constant pressure.

python examples/crystal.py --epochs 100

Errors, density and the radial distribution function go to OUT/crystal.json, beside those of EMT itself in the
same dynamics.
"""

import argparse
import json
from pathlib import Path

import numpy as np
from ase import units
from ase.build import bulk
from ase.calculators.emt import EMT
from ase.md.nptberendsen import NPTBerendsen
from ase.md.velocitydistribution import thermalize_momenta
from ase.neighborlist import neighbor_list

import geomatt
from geomatt import Dataset, Structure, random_split, resolve
from geomatt.units import GIGAPASCAL

BULK_MODULUS = 140.0  # of copper, GPa
FARTHEST, BINS = 6.0, 120  # Å and bins of the radial distribution function
TEMPERATURE = 300.0

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
parser.add_argument("--frames", type=int, default=120)
parser.add_argument("--repeat", type=int, default=2, help="cubes of 4 atoms along each edge of the cell")
parser.add_argument("--epochs", type=int, default=100)
parser.add_argument("--steps", type=int, default=2000, help="of dynamics, 2 fs each")
parser.add_argument("--out", type=Path, default=Path("crystal"))
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
network = {"radius": 4.5, "channels": 32, "rounds": 2}
config = resolve(
    {"model": "pair", "network": network, "epochs": given.epochs, "batch": 4, "learning_rate": 3e-3}
)
result = geomatt.train(data, split, config, given.out)
errors = geomatt.evaluate(result.potential, data, indices=split.test).overall
found = {
    "energy_meV_per_atom": 1e3 * errors.energy_per_atom_mae,
    "forces_meV_per_A": 1e3 * errors.forces_mae,
    "stress_GPa": GIGAPASCAL * errors.stress_mae,
}
print("test: {:.1f} meV/atom, {:.0f} meV/Å, {:.2f} GPa".format(*found.values()))

# Stress is the derivative of the energy with respect to strain: against finite differences, in float64.
model = geomatt.load(given.out / "model.safetensors", dtype="float64")
atoms = bulk("Cu", cubic=True) * ([given.repeat] * 3)
atoms.calc = geomatt.GeomAttCalculator(model, walls=False)
stress, cell, step = atoms.get_stress(voigt=False), atoms.cell.array.copy(), 1e-4
sides = []
for sign in (1, -1):
    atoms.set_cell(cell * np.array([1 + sign * step, 1, 1]), scale_atoms=True)
    sides.append(atoms.get_potential_energy())
atoms.set_cell(cell, scale_atoms=True)
slope = (sides[0] - sides[1]) / (2 * step * atoms.get_volume())
check = {"stress": GIGAPASCAL * stress[0, 0], "by_differences": GIGAPASCAL * slope}
print("stress along x: {:.5f} GPa, by differences {:.5f} GPa".format(*check.values()))


def constant_pressure(calculator):
    """Lattice constant, density and radial distribution at zero pressure, from the second half of a run."""
    atoms = bulk("Cu", cubic=True) * ([given.repeat] * 3)
    atoms.calc = calculator
    thermalize_momenta(atoms, temperature_K=TEMPERATURE, rng=np.random.default_rng(0))
    dynamics = NPTBerendsen(
        atoms, 2 * units.fs, temperature_K=TEMPERATURE, pressure_au=0.0, taut=100 * units.fs,
        taup=500 * units.fs, compressibility_au=GIGAPASCAL / BULK_MODULUS,
    )  # fmt: skip
    dynamics.run(given.steps // 2)
    lengths, volumes, counts = [], [], []

    def observe():
        volumes.append(atoms.get_volume() / len(atoms))
        lengths.append((4 * volumes[-1]) ** (1 / 3))
        near = neighbor_list("d", atoms, FARTHEST)
        counts.append(np.histogram(near, BINS, (0, FARTHEST))[0] / len(atoms))

    dynamics.attach(observe, interval=max(1, given.steps // 400))
    dynamics.run(given.steps - given.steps // 2)
    edges = np.linspace(0, FARTHEST, BINS + 1)
    shells = 4 / 3 * np.pi * np.diff(edges**3)
    mass = atoms.get_masses()[0]
    return {
        "lattice_A": float(np.mean(lengths)),
        "lattice_std_A": float(np.std(lengths)),
        "density_g_per_cm3": float(mass / np.mean(volumes) / units.mol * 1e24),
        "rdf": (np.mean(counts, 0) * np.mean(volumes) / shells).tolist(),
    }


runs = {
    "model": constant_pressure(geomatt.GeomAttCalculator(given.out / "model.safetensors")),
    "EMT": constant_pressure(EMT()),
}
for name, run in runs.items():
    print(f"{name}, {TEMPERATURE:g} K, zero pressure: lattice constant {run['lattice_A']:.4f} Å, ", end="")
    print(f"{run['density_g_per_cm3']:.4f} g/cm³")
record = result.potential.record
about = {"data": record["data"]["fingerprint"], "frames": len(data), "seed": config.seed, "network": network}
about |= {"epochs": given.epochs, "atoms": len(atoms), "temperature_K": TEMPERATURE, "steps": given.steps}
about |= {"commit": record["commit"], "hardware": record["hardware"], "train": len(split.train)}
content = {**about, "errors": found, "stress_check": check, "farthest_A": FARTHEST, "dynamics": runs}
(given.out / "crystal.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
