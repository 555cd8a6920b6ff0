"""Make the data set of `geomatt reproduce dna`: two stacked cytosine–guanine pairs with GFN2-xTB.

    python scripts/make_dimer.py --out DIR/gfn2/cg-cg.npz
    geomatt reproduce dna --data DIR

Needs tblite (``pip install geomatt[xtb]``). A step takes about 0.15 s on one core, all seven segments about
90 minutes. Finished frames are stored next to the output, so the same command continues after Ctrl-C. The
run is seeded: the same versions on the same kind of processor give the same frames.

The data set shipped with the package for `--quick`:

    python scripts/make_dimer.py --frames 10 --every 50 --out src/geomatt/data/public/embedded/dimer.npz
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from geomatt.cli.console import rate_bar
from geomatt.data.make import SampleConfig, SampleResult, open_workers, sample
from geomatt.data.make.sampling import total_frames
from geomatt.data.structures import Structure
from geomatt.elements import atomic_number, formula
from geomatt.errors import GeomAttError
from geomatt.reproduce.dna_attention import ATOMS, HYDROGEN_BONDS, PAIR

FORMULA = "C18H20N16O4"
RISE, TWIST = 3.4, 36.0  # Å and degrees from one pair to the next: B-DNA
BONDED = (1.6, 2.3)  # Å: range of H···acceptor in the relaxed structure
EQUILIBRATION = 500.0  # fs: five thermostat time constants; short, because the stack opens after some ps

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


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--segments", type=int, default=7, help="number of independent trajectories (7)")
    parser.add_argument("--frames", type=int, default=2500, help="frames stored per trajectory (2500)")
    parser.add_argument("--every", type=int, default=2, help="steps of 1 fs between stored frames (2)")
    parser.add_argument("--temperature", type=float, default=500.0, help="K (500)")
    parser.add_argument("--workers", type=int, default=1, help="processes (1)")
    parser.add_argument("--out", type=Path, default=Path("gfn2/cg-cg.npz"), help="(gfn2/cg-cg.npz)")
    options = parser.parse_args(arguments)
    if min(options.segments, options.frames, options.every) < 1 or options.temperature <= 0:
        parser.error("--segments, --frames, --every and --temperature must be positive")
    return options


def make(options: argparse.Namespace, **settings: Any) -> SampleResult:
    """Make the file; `settings` replace those of the sampler."""
    numbers, positions = dimer()
    check(numbers, positions)
    config = SampleConfig(
        **{
            "frames": options.segments * options.frames,
            "walkers": options.segments,
            "stride": options.every,
            "temperature": (options.temperature,),
            "timestep": 1.0,
            "equilibrate": EQUILIBRATION,
            **settings,
        }
    )
    options.out.parent.mkdir(parents=True, exist_ok=True)
    with (
        open_workers(options.workers) as workers,
        rate_bar("sampling", total_frames(config), "frames") as advance,
    ):
        return sample(
            [Structure(numbers, positions)],
            config,
            options.out,
            workers=workers,
            progress=advance,
            name="cg-cg",
        )


def main() -> None:
    try:
        result = make(parse())
    except (GeomAttError, OSError) as error:
        sys.exit(f"Error: {error}")
    except KeyboardInterrupt:
        sys.exit("Stopped. The same command continues.")
    lengths = contacts(result.dataset.positions.reshape(-1, ATOMS, 3))
    print(
        f"{len(result.dataset)} frames in {result.path}; all six hydrogen bonds below 2.6 Å in "
        f"{(lengths < 2.6).all(axis=1).mean():.0%} of them"
    )


if __name__ == "__main__":
    main()
