"""Make the data set shipped with the package: ethanol at 500 K with GFN2-xTB.

    OMP_NUM_THREADS=1 python scripts/make_embedded_data.py

Needs tblite (``pip install geomatt[xtb]``) and a few minutes on one core. The run is seeded: the same
versions on the same kind of processor give the same frames.
"""

from __future__ import annotations

import argparse
from importlib.metadata import version
from pathlib import Path

import numpy as np
from ase import Atoms, units
from ase.build import molecule
from ase.constraints import FixCom
from ase.md.langevin import Langevin
from ase.md.velocitydistribution import MaxwellBoltzmannDistribution
from ase.optimize import BFGS
from tblite.ase import TBLite

OUT = Path(__file__).parents[1] / "src" / "geomatt" / "data" / "public" / "embedded" / "ethanol.npz"
TEMPERATURE = 500.0  # K
TIMESTEP = 0.5  # fs; the period of the O-H stretch is 9 fs
EVERY = 20  # steps between stored frames: 10 fs
EQUILIBRATION = 2000  # steps: 1 ps, ten thermostat time constants
FRICTION = 0.01  # 1/fs
KCAL = units.kcal / units.mol


def segment(seed: int, frames: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """One independent trajectory: positions (float32), energies (eV), forces (eV/Å), mean temperature."""
    rng = np.random.default_rng(seed)
    atoms = molecule("CH3CH2OH")
    atoms.calc = TBLite(method="GFN2-xTB", verbosity=0)
    BFGS(atoms, logfile=None).run(fmax=0.01, steps=200)
    # FixCom with fixcm=False samples the canonical distribution; ASE's fixcm=True overheats small molecules.
    atoms.set_constraint(FixCom())
    # Starting from the minimum, half of the kinetic energy becomes potential energy.
    MaxwellBoltzmannDistribution(atoms, temperature_K=2 * TEMPERATURE, rng=rng)
    dynamics = Langevin(
        atoms,
        TIMESTEP * units.fs,
        temperature_K=TEMPERATURE,
        friction=FRICTION / units.fs,
        fixcm=False,
        rng=rng,
    )
    dynamics.run(EQUILIBRATION)
    temperatures: list[float] = []
    dynamics.attach(lambda: temperatures.append(atoms.get_temperature()), interval=1)
    labels = TBLite(method="GFN2-xTB", verbosity=0, accuracy=0.01)
    positions, energies, forces = [], [], []
    for _ in range(frames):
        dynamics.run(EVERY)
        # The positions are rounded before they are labelled, so that labels belong to the stored positions.
        centred = atoms.positions - atoms.positions.mean(axis=0)
        frame = Atoms(atoms.numbers, centred.astype(np.float32).astype(np.float64), calculator=labels)
        positions.append(frame.positions.astype(np.float32))
        energies.append(frame.get_potential_energy())
        forces.append(frame.get_forces())
    return np.array(positions), np.array(energies), np.array(forces), float(np.mean(temperatures))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--segments", type=int, default=4)
    parser.add_argument("--frames", type=int, default=500, help="frames stored per segment")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()

    parts = []
    for seed in range(options.segments):
        parts.append(segment(seed, options.frames))
        print(f"segment {seed}: mean kinetic temperature {parts[-1][3]:.1f} K", flush=True)
    positions, energies, forces, temperatures = (np.array(column) for column in zip(*parts, strict=True))
    energies, forces = energies.reshape(-1) / KCAL, forces.reshape(-1, *forces.shape[2:]) / KCAL
    print(
        f"{len(energies)} frames, mean kinetic temperature {temperatures.mean():.1f} K, energy "
        f"{energies.mean():.2f} ± {energies.std():.2f} kcal/mol, force RMS {forces.std():.2f} kcal/mol/Å"
    )
    options.out.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(
        options.out,
        R=positions.reshape(-1, *positions.shape[2:]),
        E=energies,
        F=forces.astype(np.float32),
        z=molecule("CH3CH2OH").numbers.astype(np.uint8),
        segment=np.repeat(np.arange(options.segments), options.frames).astype(np.uint8),
        name="ethanol",
        theory=f"GFN2-xTB (tblite {version('tblite')})",
        temperature=f"{TEMPERATURE:g} K",
        e_unit="kcal/mol",
        r_unit="Ang",
        type="d",
    )
    print(f"{options.out}: {options.out.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
