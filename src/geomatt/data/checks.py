"""Do the labels look right? Cheap questions whose answers are warnings, never errors.

Whether forces belong to energies is asked without any order of the frames: springs between all near pairs of
atoms are fitted to the forces alone, and the energies those springs predict are compared with the energies
given. For molecules that agrees to about 15 %, so a wrong sign or a unit mixed up (23.06, 627.5, 0.529)
stands out. Limits: it needs 30 or more frames (some hundred to see a factor of two) of the same molecule with
the atoms in the same order, it looks at the three commonest molecules of a mixture only, it does not look at
periodic structures, and it cannot see a constant error of less than about a third or one that energies and
forces share (both in kcal/mol but said to be eV).

Whether lengths are in the unit said is asked of the bonds: the nearest neighbour of most atoms sits at about
the sum of the covalent radii. Not asked of periodic structures, noble gases and fewer than three atoms.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from geomatt.data.structures import Dataset, Structure
from geomatt.elements import COVALENT_RADII

_MIN_FRAMES = 30
_FIT_FRAMES, _TEST_FRAMES = 200, 1500
_FIT_ROWS = 12_000  # force components in the fit; enough for its accuracy, and bounds its time
_POWERS = (1, 2)
# MD17 reaches 0.004 of the forces and 0.02 eV/Å; anything ten times that is no rounding any more.
_NET_RATIO, _NET_FLOOR = 0.02, 0.1
_TORQUE_FLOOR = 0.2  # eV
_BOND_FRAMES, _BOND_ATOMS = 40, 200  # looked at for lengths of bonds
_BOND_RANGE = (0.75, 1.45)  # of bonds over sums of covalent radii; Å taken for Bohr is 0.53, the reverse 1.89
_NOBLE_GASES = (2, 10, 18, 36, 54, 86)


def check_labels(dataset: Dataset) -> list[str]:
    """Warnings about labels that look wrong; an empty list if nothing does."""
    if not len(dataset):
        return ["There are no structures."]
    if bad := _not_finite(dataset):
        return bad  # every other question is meaningless then
    warnings = _repeated_frames(dataset) + _bond_lengths(dataset)
    if dataset.forces is not None:
        warnings += _net_force_and_torque(dataset, dataset.forces)
        if dataset.energies is not None:
            warnings += _forces_against_energies(dataset, dataset.energies, dataset.forces)
    return warnings


def _not_finite(dataset: Dataset) -> list[str]:
    arrays = (("positions", dataset.positions), ("energies", dataset.energies), ("forces", dataset.forces))
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
        f"The atoms are too {what} for bonds: nearest neighbours sit at {typical:.2f} times the sum "
        f"of their covalent radii, where bonds are near 1. Is the length unit right ({mistake} does this)? "
        "Give `length_unit`."
    ]


def _nearest_in_radii(structure: Structure) -> float | None:
    """The median over atoms of the distance to the nearest neighbour, in sums of covalent radii."""
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
    # A relaxed structure has hardly any forces; its net force is measured against a typical structure's.
    typical = np.maximum(size, np.median(size))
    net = np.linalg.norm(np.add.reduceat(forces, starts), axis=1)
    warnings = []
    bad = net > np.maximum(_NET_RATIO * typical, _NET_FLOOR)
    if bad.any():
        warnings.append(
            f"The forces of {bad.sum()} of {len(dataset)} structures do not add up to zero (net force up to "
            f"{net.max():.3g} eV/Å). An isolated molecule has no net force: were atoms left out, or "
            "something added to the forces?"
        )
    if dataset.pbc is not None and dataset.pbc.any():
        return warnings  # torque means nothing in a periodic cell
    owner = np.repeat(np.arange(len(dataset)), dataset.sizes)
    centre = np.add.reduceat(dataset.positions, starts) / dataset.sizes[:, None]
    arms = dataset.positions - centre[owner]
    torque = np.linalg.norm(np.add.reduceat(np.cross(arms, forces), starts), axis=1)
    size = np.sqrt(np.add.reduceat((arms**2).sum(axis=1) * squares, starts))
    bad_torque = torque > np.maximum(_NET_RATIO * np.maximum(size, np.median(size)), _TORQUE_FLOOR)
    if (bad_torque & ~bad).any():  # a net force brings a torque along: say one thing, not two
        warnings.append(
            f"The forces of {bad_torque.sum()} of {len(dataset)} structures have a net torque (up to "
            f"{torque.max():.3g} eV). An isolated molecule has none: do positions and forces belong to each "
            "other (same order of atoms, same orientation)?"
        )
    return warnings


def _forces_against_energies(dataset: Dataset, energies: np.ndarray, forces: np.ndarray) -> list[str]:
    periodic = [False] * len(dataset) if dataset.pbc is None else [bool(p.any()) for p in dataset.pbc]
    spans = zip(dataset.offsets[:-1], dataset.offsets[1:], periodic, strict=True)
    kinds = [None if p else dataset.numbers[a:b].tobytes() for a, b, p in spans]
    for kind, count in Counter(k for k in kinds if k is not None).most_common(3):
        if count < _MIN_FRAMES:
            break
        frames = np.flatnonzero([k == kind for k in kinds])
        # Seeded: the same data always gets the same answer.
        frames = np.random.default_rng(0).permutation(frames)[: _FIT_FRAMES + _TEST_FRAMES]
        rows = dataset.offsets[frames][:, None] + np.arange(len(kind) // dataset.numbers.itemsize)
        if warning := _compare(dataset.positions[rows], energies[frames], forces[rows]):
            return [warning]
    return []


def _compare(positions: np.ndarray, energies: np.ndarray, forces: np.ndarray) -> str | None:
    """The warning for frames of one molecule, if the springs' energies speak clearly against the labels."""
    n, atoms, _ = positions.shape
    if atoms < 2 or energies.std() == 0 or not forces.any():
        return None
    fit = min(n * 3 // 5, _FIT_FRAMES, max(_MIN_FRAMES // 2, _FIT_ROWS // (3 * atoms)))
    predicted, explained = _spring_energies(positions, forces, fit)
    given = energies[fit:] - energies[fit:].mean()
    predicted = predicted - predicted.mean()
    if explained < 0.7 or predicted.std() == 0:
        return None  # springs do not describe this molecule: no opinion
    correlation = float((given * predicted).mean() / (given.std() * predicted.std()))
    ratio = float(given.std() / predicted.std())
    # Statistical error of both numbers, wide for few frames.
    doubt = 3 * np.sqrt((1 - correlation**2) / len(given))
    if correlation < -0.5:
        return (
            "The forces point uphill: they look like gradients, with the sign of forces wrong. "
            "Energies fall along forces; multiply the forces by -1."
        )
    if abs(correlation) < 0.2 and len(given) >= 200 and explained > 0.9:
        return (
            "The forces do not belong to the energies: what the forces say about the energies has nothing to "
            "do with the energies given. Are the frames of both in the same order, from the same calculation?"
        )
    if correlation > 0.5 and abs(np.log(ratio)) > 0.4 + doubt:
        return (
            f"The forces cannot belong to the energies: energies vary {ratio:.3g} times as much as the "
            f"forces say they should{_likely_mixture(ratio)}. Check the units of both; if forces are "
            "not in energy unit per length unit, give `force_unit`."
        )
    return None


def _likely_mixture(ratio: float) -> str:
    """A guess at which units were mixed, from the factor by which energies are too large."""
    guesses = {
        "eV and kcal/mol": 23.0605,
        "Hartree and kcal/mol": 627.509,
        "Hartree and eV": 27.2114,
        "kJ/mol and kcal/mol": 4.184,
        "kJ/mol and eV": 96.485,
        "Bohr and Å": 1 / 0.529177,
        "Hartree/Bohr and eV/Å": 51.422,
        "Hartree/Bohr and kcal/mol/Å": 1185.82,
    }
    size = max(ratio, 1 / ratio)
    name, factor = min(guesses.items(), key=lambda item: abs(np.log(size / item[1])))
    return f", about the factor between {name}" if abs(np.log(size / factor)) < 0.15 else ""


def _spring_energies(positions: np.ndarray, forces: np.ndarray, fit: int) -> tuple[np.ndarray, float]:
    """Energies of the frames after the first ``fit``, from springs fitted to the forces of those first ones.

    A spring is a w₁(r₀/r) + w₂(r₀/r)² between two atoms; also returned is the share of the squared forces
    that the springs explain on frames they were not fitted to.
    """
    atoms = positions.shape[1]
    i, j = np.triu_indices(atoms, 1)
    mean = np.linalg.norm(positions[:fit, i] - positions[:fit, j], axis=-1).mean(axis=0)
    # The nearest pairs hold bonds and angles, which carry most of the energy; all pairs of a big molecule
    # would cost much and add little. Never more unknowns than a third of the equations.
    count = min(max(200, 5 * atoms), fit * atoms // len(_POWERS))
    near = np.argsort(mean, kind="stable")[: max(count, 1)]
    i, j, scale = i[near], j[near], np.maximum(mean[near], 1e-3)

    def design(frames: np.ndarray) -> np.ndarray:
        """Forces (frames·atoms·3) of unit springs, one column per spring and power."""
        arm = frames[:, i] - frames[:, j]
        r = np.maximum(np.linalg.norm(arm, axis=-1), 1e-3)
        matrix = np.zeros((len(_POWERS), len(i), len(frames), atoms, 3))
        springs = np.arange(len(i))
        for p, power in enumerate(_POWERS):
            pull = (power * (r / scale) ** (-power - 1) / scale / r)[..., None] * arm
            matrix[p, springs, :, i] += pull.transpose(1, 0, 2)
            matrix[p, springs, :, j] -= pull.transpose(1, 0, 2)
        return matrix.reshape(len(_POWERS) * len(i), -1)

    matrix, target = design(positions[:fit]), forces[:fit].reshape(-1)
    gram = matrix @ matrix.T
    gram[np.diag_indices_from(gram)] += 1e-6 * np.trace(gram) / len(gram)
    weights = np.linalg.solve(gram, matrix @ target)

    rest = positions[fit:]
    probe = rest[: min(len(rest), 50)]
    held_out = forces[fit : fit + len(probe)].reshape(-1)
    missed = held_out - weights @ design(probe)
    explained = 1 - float((missed**2).sum() / max((held_out**2).sum(), 1e-300))
    r = np.maximum(np.linalg.norm(rest[:, i] - rest[:, j], axis=-1), 1e-3) / scale
    return np.concatenate([r**-power for power in _POWERS], axis=1) @ weights, explained
