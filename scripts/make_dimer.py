"""Make the data set of `geomatt reproduce dna`: two stacked cytosine–guanine pairs with GFN2-xTB.

    python scripts/make_dimer.py --out DIR/gfn2/cg-cg.npz
    geomatt reproduce dna --data DIR

Needs tblite (``pip install geomatt[xtb]``). A step takes about 0.15 s on one core, all seven segments about
90 minutes. Finished segments are stored next to the output, so the same command continues after Ctrl-C. The
run is seeded: the same versions on the same kind of processor give the same frames.

The data set shipped with the package for `--quick`:

    python scripts/make_dimer.py --frames 10 --every 50 --out src/geomatt/data/public/embedded/dimer.npz
"""

from __future__ import annotations

import os

if __name__ == "__main__":  # must be set before the first threaded library is loaded
    os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from geomatt.cli.console import progress_bar
from geomatt.data.files import atomic_output
from geomatt.elements import atomic_number, formula
from geomatt.errors import GeomAttError
from geomatt.reproduce.dna_attention import ATOMS, HYDROGEN_BONDS, PAIR

FORMULA = "C18H20N16O4"
RISE, TWIST = 3.4, 36.0  # Å and degrees from one pair to the next: B-DNA
BONDED = (1.6, 2.3)  # Å: range of H···acceptor in the relaxed structure
STEP = 1.0  # fs
FRICTION = 0.01  # 1/fs
EQUILIBRATION = 500  # steps: five thermostat time constants; short, because the stack opens after some ps
KEYS = ("R", "E", "F")

# Heavy atoms in the plane of the pair, Å: the standard reference frame of Olson et al., J. Mol. Biol. 313
# (2001) 229.
GUANINE = (
    ("N", -1.289, 4.551),  # N9
    ("C", 0.023, 4.962),  # C8
    ("N", 0.870, 3.969),  # N7
    ("C", 0.071, 2.833),  # C5
    ("C", 0.424, 1.460),  # C6
    ("O", 1.554, 0.955),  # O6
    ("N", -0.700, 0.641),  # N1
    ("C", -1.999, 1.087),  # C2
    ("N", -2.949, 0.139),  # N2
    ("N", -2.342, 2.364),  # N3
    ("C", -1.265, 3.177),  # C4
)
CYTOSINE = (
    ("N", -1.285, 4.542),  # N1
    ("C", -1.472, 3.158),  # C2
    ("O", -2.628, 2.709),  # O2
    ("N", -0.391, 2.344),  # N3
    ("C", 0.837, 2.868),  # C4
    ("N", 1.875, 2.027),  # N4
    ("C", 1.056, 4.275),  # C5
    ("C", -0.023, 5.068),  # C6
)


def base(
    heavy: Sequence[tuple[str, float, float]], ring: dict[int, tuple[int, int]], amino: tuple[int, int]
) -> tuple[list[str], np.ndarray]:
    """Symbols and positions of a base with its hydrogens.

    `ring` maps ring atoms with a hydrogen to their two neighbours; the hydrogen points away from both.
    `amino` is the nitrogen of the planar NH2 group and the carbon it is bonded to.
    """
    symbols = [symbol for symbol, _, _ in heavy]
    positions = [np.array([x, y, 0.0]) for _, x, y in heavy]
    hydrogens = []
    for atom, neighbours in ring.items():
        length = 1.01 if symbols[atom] == "N" else 1.08
        towards = sum(_unit(positions[n] - positions[atom]) for n in neighbours)
        hydrogens.append(positions[atom] - length * _unit(np.asarray(towards)))
    nitrogen, carbon = amino
    axis = _unit(positions[nitrogen] - positions[carbon])
    across = np.array([-axis[1], axis[0], 0.0])
    for side in (1.0, -1.0):
        hydrogens.append(positions[nitrogen] + 1.01 * (0.5 * axis + side * np.sqrt(0.75) * across))
    return symbols + ["H"] * len(hydrogens), np.array(positions + hydrogens)


def _unit(vector: np.ndarray) -> np.ndarray:
    return vector / np.linalg.norm(vector)


def dimer() -> tuple[np.ndarray, np.ndarray]:
    """Atomic numbers and positions of both pairs before relaxation, with hydrogens in place of the sugars.

    A half turn about x puts cytosine opposite guanine. The second pair is turned as well, so that guanine
    is stacked on cytosine, as in the GC step of B-DNA; with GFN2-xTB this is slightly more stable than
    guanine on guanine.
    """
    half_turn = np.array([1.0, -1.0, -1.0])
    guanine, at_guanine = base(GUANINE, {0: (1, 10), 1: (0, 2), 6: (4, 7)}, (8, 7))
    cytosine, at_cytosine = base(CYTOSINE, {0: (1, 7), 6: (4, 7), 7: (0, 6)}, (5, 4))
    pair = np.concatenate([at_guanine, at_cytosine * half_turn])
    cos, sin = np.cos(np.radians(TWIST)), np.sin(np.radians(TWIST))
    twist = np.array([[cos, -sin, 0.0], [sin, cos, 0.0], [0.0, 0.0, 1.0]])
    second = (pair * half_turn) @ twist.T + [0.0, 0.0, RISE]
    numbers = np.array([atomic_number(symbol) for symbol in (guanine + cytosine) * 2])
    return numbers, np.concatenate([pair, second])


def contacts(positions: np.ndarray) -> np.ndarray:
    """H···acceptor distances of the six hydrogen bonds, (..., 6), Å."""
    bonds = np.array([(i + start, j + start) for start in (0, PAIR) for i, j in HYDROGEN_BONDS])
    lengths: np.ndarray = np.linalg.norm(
        positions[..., bonds[:, 0], :] - positions[..., bonds[:, 1], :], axis=-1
    )
    return lengths


def check(numbers: np.ndarray, positions: np.ndarray) -> None:
    """Raise an error unless these are two pairs, each with its three hydrogen bonds."""
    lengths = contacts(positions)
    if len(numbers) != ATOMS or formula(numbers) != FORMULA:
        raise GeomAttError(f"{formula(numbers)} is not two cytosine–guanine pairs, {FORMULA}.")
    if (lengths < BONDED[0]).any() or (lengths > BONDED[1]).any():
        raise GeomAttError(f"The hydrogen bonds are {_lengths(lengths)} Å long: the pairs came apart.")


def _lengths(lengths: np.ndarray) -> str:
    return ", ".join(f"{length:.2f}" for length in lengths)


def relaxed() -> Any:
    """The dimer relaxed with GFN2-xTB, as ASE Atoms."""
    from ase import Atoms
    from ase.optimize import BFGS
    from tblite.ase import TBLite

    numbers, positions = dimer()
    check(numbers, positions)
    atoms = Atoms(numbers, positions, calculator=TBLite(method="GFN2-xTB", verbosity=0))
    optimiser = BFGS(atoms, logfile=None)
    with progress_bar("relaxing, up to 600 steps", 600) as advance:
        optimiser.attach(lambda: advance(1), interval=1)
        if not optimiser.run(fmax=0.01, steps=600):
            raise GeomAttError("The dimer did not relax in 600 steps.")
    check(atoms.numbers, atoms.positions)
    return atoms


def segment(
    start: Any, seed: int, frames: int, every: int, temperature: float, advance: Callable[[int], None]
) -> dict[str, np.ndarray]:
    """One independent trajectory: frames in Å and kcal/mol, and their mean temperature."""
    from ase import units
    from ase.constraints import FixCom
    from ase.md.langevin import Langevin
    from tblite.ase import TBLite

    rng = np.random.default_rng(seed)
    atoms = start.copy()
    atoms.calc = TBLite(method="GFN2-xTB", verbosity=0)
    # FixCom with fixcm=False samples the canonical distribution; ASE's fixcm=True overheats small molecules.
    atoms.set_constraint(FixCom())
    # Starting from the minimum, half of the kinetic energy becomes potential energy.
    spread = np.sqrt(2 * temperature * units.kB * atoms.get_masses())
    atoms.set_momenta(spread[:, None] * rng.standard_normal((len(atoms), 3)))
    dynamics = Langevin(
        atoms,
        STEP * units.fs,
        temperature_K=temperature,
        friction=FRICTION / units.fs,
        fixcm=False,
        rng=rng,
    )
    dynamics.attach(lambda: advance(1), interval=1)
    dynamics.run(EQUILIBRATION)
    temperatures: list[float] = []
    dynamics.attach(lambda: temperatures.append(atoms.get_temperature()), interval=1)
    kept: dict[str, list[Any]] = {key: [] for key in KEYS}
    for _ in range(frames):
        dynamics.run(every)
        # The labels belong to the unrounded positions; rounding to single precision, at most 3e-7 Å,
        # changes the energy by 1e-4 kcal/mol.
        kept["R"].append((atoms.positions - atoms.positions.mean(axis=0)).astype(np.float32))
        kept["E"].append(atoms.get_potential_energy() * units.mol / units.kcal)
        forces = atoms.get_forces(apply_constraint=False) * units.mol / units.kcal
        kept["F"].append(forces.astype(np.float32))
    return {**{k: np.array(v) for k, v in kept.items()}, "temperature": np.array(np.mean(temperatures))}


def part_file(options: argparse.Namespace, folder: Path, seed: int) -> Path:
    """File of a finished segment; its name contains all settings it depends on."""
    recipe = f"{options.frames}x{options.every}-{options.temperature:g}K"
    return folder / f"segment-{recipe}-{seed}.npz"


def segments(options: argparse.Namespace, folder: Path) -> list[dict[str, np.ndarray]]:
    """All trajectories; those stored in `folder` are read, the others computed and stored there."""
    start, parts = None, []
    for seed in range(options.segments):
        path = part_file(options, folder, seed)
        if not path.is_file():
            if start is None:
                start = relaxed()
                print(f"relaxed; hydrogen bonds {_lengths(contacts(start.positions))} Å", flush=True)
            steps = EQUILIBRATION + options.frames * options.every
            with progress_bar(f"segment {seed + 1} of {options.segments}", steps) as advance:
                part = segment(start, seed, options.frames, options.every, options.temperature, advance)
            with atomic_output(path) as temporary, open(temporary, "wb") as stream:
                np.savez(stream, **part)  # type: ignore[arg-type]
        with np.load(path, allow_pickle=False) as stored:
            parts.append({key: stored[key] for key in stored.files})
        lengths = contacts(parts[-1]["R"].astype(np.float64))
        print(
            f"segment {seed + 1}: mean kinetic temperature {parts[-1]['temperature']:.1f} K, all six "
            f"hydrogen bonds below 2.6 Å in {(lengths < 2.6).all(axis=1).mean():.0%} of frames",
            flush=True,
        )
    return parts


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--segments", type=int, default=7, help="number of independent trajectories (7)")
    parser.add_argument("--frames", type=int, default=2500, help="frames stored per trajectory (2500)")
    parser.add_argument("--every", type=int, default=2, help="steps of 1 fs between stored frames (2)")
    parser.add_argument("--temperature", type=float, default=500.0, help="K (500)")
    parser.add_argument("--out", type=Path, default=Path("gfn2/cg-cg.npz"), help="(gfn2/cg-cg.npz)")
    options = parser.parse_args(arguments)
    if min(options.segments, options.frames, options.every) < 1 or options.temperature <= 0:
        parser.error("--segments, --frames, --every and --temperature must be positive")
    return options


def make(options: argparse.Namespace) -> None:
    """Make the file."""
    if options.out.exists():
        raise GeomAttError(f"{options.out} exists already. Move it, or choose another --out.")
    folder = options.out.with_name(f"{options.out.name}.parts")
    folder.mkdir(parents=True, exist_ok=True)
    parts = segments(options, folder)
    frames = {key: np.concatenate([part[key] for part in parts]) for key in KEYS}
    command = (
        f"scripts/make_dimer.py --segments {options.segments} --frames {options.frames} "
        f"--every {options.every} --temperature {options.temperature:g}"
    )
    with atomic_output(options.out) as temporary, open(temporary, "wb") as stream:
        np.savez_compressed(
            stream,
            R=frames["R"],
            E=frames["E"],
            F=frames["F"],
            z=dimer()[0].astype(np.uint8),
            segment=np.repeat(np.arange(options.segments), options.frames).astype(np.uint8),
            name="cg-cg",
            theory=f"GFN2-xTB (tblite {version('tblite')})",
            temperature=f"{options.temperature:g} K",
            made_by=command,
            e_unit="kcal/mol",
            r_unit="Ang",
            type="d",
        )
    for seed in range(options.segments):
        part_file(options, folder, seed).unlink()
    if not any(folder.iterdir()):  # keep segments of other settings
        folder.rmdir()
    print(
        f"{len(frames['E'])} frames, energy {frames['E'].mean():.2f} ± {frames['E'].std():.2f} kcal/mol, "
        f"force RMS {frames['F'].std():.2f} kcal/mol/Å\n"
        f"{options.out}: {options.out.stat().st_size / 1e6:.2f} MB"
    )


def main() -> None:
    try:
        make(parse())
    except ModuleNotFoundError as error:
        sys.exit(f"Error: {error.name} is missing. Install it with: pip install geomatt[xtb]")
    except (GeomAttError, OSError) as error:
        sys.exit(f"Error: {error}")
    except KeyboardInterrupt:
        sys.exit("Stopped. The same command continues with the next unfinished segment.")


if __name__ == "__main__":
    main()
