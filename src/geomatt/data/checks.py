"""Checks of labels for likely mistakes; they give warnings, never errors.

Limits: forces and energies are compared for the three most frequent molecules of a data set, from 30 frames
of the same molecule with the same order of atoms (some 80 to see energies of other frames), and not for
periodic structures. A constant error of less than about a third is not seen. The length unit is checked by
the nearest neighbours of atoms, which are at about the sum of the covalent radii; not for periodic
structures, noble gases and fewer than three atoms.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from geomatt.arguments import require
from geomatt.data import springs
from geomatt.data.dataset import Dataset
from geomatt.data.outliers import find_outliers
from geomatt.data.structures import Structure
from geomatt.elements import COVALENT_RADII, formula

# MD17 reaches 0.004 of the forces and 0.02 eV/Å; ten times as much is not rounding.
_NET_RATIO, _NET_FLOOR = 0.02, 0.1
_TORQUE_FLOOR = 0.2  # eV
_BOND_FRAMES, _BOND_ATOMS = 40, 200  # used for the check of bond lengths
_BOND_RANGE = (0.75, 1.45)  # of bonds over sums of covalent radii; Å taken for Bohr is 0.53, the reverse 1.89
_NOBLE_GASES = (2, 10, 18, 36, 54, 86)
_LARGEST_FORCE = 10.0  # eV/Å, root mean square; molecules have 1.2 at 500 K, and 4 at 5000 K
_LARGEST_SPREAD = 0.3  # eV, times √(3 N): standard deviation of energies at 5000 K
_LARGEST_STRESS = 0.6  # eV/Å³, 100 GPa
_NAMED = 5  # outliers in a warning


def check_labels(dataset: Dataset) -> list[str]:
    """Warnings about labels that look wrong; an empty list if nothing does."""
    if not len(require("data", dataset, Dataset, "geomatt.read(FILE)")):
        return ["There are no structures."]
    with np.errstate(all="ignore"):  # absurd numbers are warned about
        if bad := _not_finite(dataset):
            return bad  # the other checks have no meaning then
        warnings = _repeated_frames(dataset)
        outliers = find_outliers(dataset)
        warnings += _outliers(outliers, len(dataset))
        if len(outliers) == len(dataset):
            return warnings
        if outliers:  # they would distort the statistics of the others
            dataset = dataset.select(np.setdiff1d(np.arange(len(dataset)), list(outliers)))
        lengths = _bond_lengths(dataset)
        warnings += lengths + _constant_energies(dataset) + _stress(dataset)
        if dataset.has_forces.any():
            labelled = (
                dataset if dataset.has_forces.all() else dataset.select(np.flatnonzero(dataset.has_forces))
            )
            assert labelled.forces is not None
            warnings += _net_force_and_torque(labelled, labelled.forces)
            # The common unit is checked only if lengths, energies and forces agree with each other.
            warnings += _energies_and_forces(labelled, labelled.forces) or (
                [] if lengths else _unit(labelled)
            )
        elif not lengths:
            warnings += _spread(dataset)
    return warnings


def energies_compared(dataset: Dataset) -> bool:
    """True if there are enough frames of a molecule for `check_labels` to compare energies with forces."""
    return any(len(frames) >= springs.MIN_FRAMES for frames in _molecules(dataset))


def _not_finite(dataset: Dataset) -> list[str]:
    forces = dataset.forces
    if forces is not None:  # forces of a whole structure may be missing
        forces = forces[np.repeat(~dataset.lacks_forces, dataset.sizes)]
    arrays = (("positions", dataset.positions), ("energies", dataset.energies), ("forces", forces))
    return [
        f"The {name} contain NaN or infinity."
        for name, array in arrays
        if array is not None and not np.isfinite(array).all()
    ]


def _repeated_frames(dataset: Dataset) -> list[str]:
    hashes = dataset.frame_hashes()
    repeats = len(hashes) - len(set(hashes))
    if not repeats:
        return []
    return [
        f"{repeats} of {len(hashes)} structures repeat an earlier one exactly. Repeats shared between "
        "training and test make errors look smaller than they are: remove them."
    ]


def _outliers(outliers: dict[int, str], n: int) -> list[str]:
    if not outliers:
        return []
    named = [f"structure {index} ({reason})" for index, reason in list(outliers.items())[:_NAMED]]
    more = f" and {len(outliers) - _NAMED} more" if len(outliers) > _NAMED else ""
    return [
        f"{len(outliers)} of {n} structures are outliers: {', '.join(named)}{more}. Correct or "
        "remove them, or train with `drop_outliers`."
    ]


def _bond_lengths(dataset: Dataset) -> list[str]:
    frames = np.unique(np.linspace(0, len(dataset) - 1, _BOND_FRAMES).astype(int))
    found = [r for r in (_nearest_in_radii(dataset[int(i)]) for i in frames) if r is not None]
    if not found:
        return []
    typical = float(np.median(found))
    if _BOND_RANGE[0] <= typical <= _BOND_RANGE[1]:
        return []
    what, mistake = (
        ("close together", "Å taken for Bohr") if typical < 1 else ("far apart", "Bohr taken for Å")
    )
    return [
        f"The atoms are too {what} for bonds: nearest neighbours are at {typical:.2f} times the sum of their "
        f"covalent radii, where bonds are near 1. Check the length unit ({mistake} does this), and give "
        "`length_unit`."
    ]


def _nearest_in_radii(structure: Structure) -> float | None:
    """Median over atoms of the distance to the nearest neighbour, in sums of covalent radii."""
    numbers, positions = structure.numbers, structure.positions
    if len(numbers) < 3 or any(structure.pbc) or numbers.max() > len(COVALENT_RADII):
        return None
    bonding = np.flatnonzero(~np.isin(numbers, _NOBLE_GASES))
    if not len(bonding):
        return None
    atoms = bonding[np.unique(np.linspace(0, len(bonding) - 1, _BOND_ATOMS).astype(int))]
    radii = COVALENT_RADII[numbers - 1]
    ratios = np.linalg.norm(positions[atoms, None] - positions, axis=-1) / (radii[atoms, None] + radii)
    ratios[np.arange(len(atoms)), atoms] = np.inf
    return float(np.median(ratios.min(axis=1)))


def _net_force_and_torque(dataset: Dataset, forces: np.ndarray) -> list[str]:
    starts = dataset.offsets[:-1]
    squares = (forces**2).sum(axis=1)
    size = np.sqrt(np.add.reduceat(squares, starts))
    # A relaxed structure has hardly any forces; its net force is compared with those of a typical structure.
    typical = np.maximum(size, np.median(size))
    net = np.linalg.norm(np.add.reduceat(forces, starts), axis=1)
    warnings = []
    bad = net > np.maximum(_NET_RATIO * typical, _NET_FLOOR)
    if bad.any():
        warnings.append(
            f"The forces of {bad.sum()} of {len(dataset)} structures do not add up to zero (net force up to "
            f"{net.max():.3g} eV/Å). An isolated molecule has no net force: check that no atoms were left "
            "out, and that nothing was added to the forces."
        )
    if dataset.pbc is not None and dataset.pbc.any():
        return warnings  # torque has no meaning in a periodic cell
    owner = np.repeat(np.arange(len(dataset)), dataset.sizes)
    centre = np.add.reduceat(dataset.positions, starts) / dataset.sizes[:, None]
    arms = dataset.positions - centre[owner]
    torque = np.linalg.norm(np.add.reduceat(np.cross(arms, forces), starts), axis=1)
    size = np.sqrt(np.add.reduceat((arms**2).sum(axis=1) * squares, starts))
    bad_torque = torque > np.maximum(_NET_RATIO * np.maximum(size, np.median(size)), _TORQUE_FLOOR)
    if (bad_torque & ~bad).any():  # a net force causes a torque: one warning is enough
        warnings.append(
            f"The forces of {bad_torque.sum()} of {len(dataset)} structures have a net torque (up to "
            f"{torque.max():.3g} eV). An isolated molecule has none: check that positions and forces have "
            "the same order of atoms and the same orientation."
        )
    return warnings


def _molecules(dataset: Dataset) -> Iterator[np.ndarray]:
    """Frames of each of the three most frequent molecules, the atoms in one order; periodic ones left out."""
    periodic = [False] * len(dataset) if dataset.pbc is None else [bool(p.any()) for p in dataset.pbc]
    spans = zip(dataset.offsets[:-1], dataset.offsets[1:], periodic, strict=True)
    kinds = [None if p else dataset.numbers[a:b].tobytes() for a, b, p in spans]
    for kind, _ in Counter(k for k in kinds if k is not None).most_common(3):
        yield np.flatnonzero([k == kind for k in kinds])


def _frames(dataset: Dataset, frames: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """At most as many of the frames as are needed, and the rows of their atoms (n, N)."""
    # Seeded: the same data always gives the same warnings.
    chosen = np.random.default_rng(0).permutation(frames)[: springs.MAX_FRAMES]
    return chosen, dataset.offsets[chosen][:, None] + np.arange(dataset.sizes[chosen[0]])


def _energies_and_forces(dataset: Dataset, forces: np.ndarray) -> list[str]:
    if dataset.energies is None:
        return []
    for molecule in _molecules(dataset):
        frames, rows = _frames(dataset, molecule)
        if warning := springs.compare_energies(
            dataset.positions[rows], dataset.energies[frames], forces[rows]
        ):
            return [warning]
    return []


def _unit(dataset: Dataset) -> list[str]:
    """A warning if forces are out of the range of molecules: stiff bonds, or large without known bonds."""
    assert dataset.forces is not None
    unit = dataset.origin.get("energy_unit", "eV")
    for molecule in _molecules(dataset):
        _, rows = _frames(dataset, molecule)
        rows = rows[: springs.TEST_FRAMES // 5]
        numbers = dataset.numbers[rows[0]]
        if numbers.max() > len(COVALENT_RADII):
            continue
        found = springs.check_stiffness(numbers, dataset.positions[rows], dataset.forces[rows], unit)
        if found is not None:
            return [found]
    squares = np.add.reduceat((dataset.forces**2).sum(axis=1), dataset.offsets[:-1])
    typical = float(np.median(np.sqrt(squares / (3 * dataset.sizes))))
    if typical <= _LARGEST_FORCE:
        return []
    return [
        f"The forces are typically {typical:.3g} eV/Å (root mean square), but those of molecules are near 1. "
        "Check the units, and give `energy_unit` or `force_unit`."
    ]


def _constant_energies(dataset: Dataset) -> list[str]:
    """Different structures of one molecule have different energies, unless no forces act."""
    if dataset.energies is None:
        return []
    for frames in _molecules(dataset):
        rows = dataset.offsets[frames][:, None] + np.arange(dataset.sizes[frames[0]])
        if len(frames) < 3 or rows.shape[1] < 2 or np.ptp(dataset.energies[frames]) > 0:
            continue
        distances = np.linalg.norm(dataset.positions[rows[:, 1:]] - dataset.positions[rows[:, :1]], axis=-1)
        forces = None if dataset.forces is None else dataset.forces[rows]
        if np.ptp(distances, axis=0).max() > 0.01 and (forces is None or np.nan_to_num(forces).any()):
            name = formula(dataset.numbers[rows[0]])
            return [
                f"All {len(frames)} energies of {name} are equal ({dataset.energies[frames[0]]:.6g} eV), "
                "although its structures differ. Check where the energies come from."
            ]
    return []


def _spread(dataset: Dataset) -> list[str]:
    """A warning if energies without forces spread more than those of molecules at any temperature."""
    if dataset.energies is None:
        return []
    for frames in _molecules(dataset):
        spread, atoms = float(dataset.energies[frames].std()), int(dataset.sizes[frames[0]])
        if len(frames) >= springs.MIN_FRAMES and spread > _LARGEST_SPREAD * np.sqrt(3 * atoms):
            name = formula(dataset[int(frames[0])].numbers)
            return [
                f"The energies of {name} have a standard deviation of {spread:.3g} eV, more than at 5000 K. "
                "Check the unit, and give `energy_unit`."
            ]
    return []


def _stress(dataset: Dataset) -> list[str]:
    if dataset.stress is None:
        return []
    typical = float(np.median(np.abs(dataset.stress[dataset.has_stress]).max(axis=(1, 2))))
    if typical <= _LARGEST_STRESS:
        return []
    return [
        f"The stress is typically {typical:.3g} eV/Å³, that is {typical * 160.2177:.3g} GPa. Check the unit: "
        "1 GPa is 0.00624151 eV/Å³."
    ]
