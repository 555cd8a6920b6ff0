"""Two tests of forces, energies and units of a molecule's frames; the order of frames does not matter.

Springs between all near pairs of atoms are fitted to the forces alone, and the energies that they predict are
compared with the energies given. For molecules these agree to about 15 % (correlation 0.85 to 0.99 from 120
frames of MD17), so a wrong sign, mixed units (23.06, 627.5, 0.529) and energies of other frames stand out: in
MD17, rMD17 and GFN2-xTB data shuffled energies were found in 98 % of the cases with 60 frames, in 77 % with
30, and right ones were never questioned.

Bonds have a stiffness: the slope of the force along a bond with respect to its length. Its median over the
bonds of a molecule is 27 to 38 eV/Å² in MD17, rMD17 and GFN2-xTB data and hardly depends on temperature, so
that energies and forces that share a wrong unit stand out.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import numpy as np

from geomatt import units
from geomatt.elements import COVALENT_RADII

_FIT_FRAMES, TEST_FRAMES = 200, 1500
_FIT_ROWS = 12_000  # force components in the fit; enough for its accuracy, and limits its time
_POWERS = (1, 2)
MIN_FRAMES = 30
MAX_FRAMES = _FIT_FRAMES + TEST_FRAMES
_LEAST_CORRELATION = 0.6  # the upper limit of the correlation of energies that belong to the forces is above
_STIFFNESS = (4.0, 200.0)  # eV/Å², medians outside are questioned
_PLAUSIBLE = (8.0, 120.0)  # eV/Å², of data in the right unit
_NONMETALS = (1, 5, 6, 7, 8, 9, 14, 15, 16, 17, 34, 35, 53)
_LEAST_MOTION = 0.003  # Å; a bond that moves less is held by a constraint


def compare_energies(positions: np.ndarray, energies: np.ndarray, forces: np.ndarray) -> str | None:
    """A warning if the energies of a molecule's frames (n,) do not fit its forces (n, N, 3), or None."""
    n, atoms, _ = positions.shape
    if n < MIN_FRAMES or atoms < 2 or energies.std() == 0 or not forces.any():
        return None
    most = min(n, _FIT_FRAMES, max(MIN_FRAMES // 2, _FIT_ROWS // (3 * atoms)))
    fit = min(n * 3 // 5, most)
    springs = _Springs.fit(positions[:fit], forces[:fit])
    explained = springs.explained(positions[fit : fit + 50], forces[fit : fit + 50])
    if most > fit:  # few frames: all of them may be used, since energies are not part of the fit
        springs = _Springs.fit(positions[:most], forces[:most])
    predicted = springs.energies(positions)
    given, predicted = energies - energies.mean(), predicted - predicted.mean()
    if explained < 0.7 or predicted.std() == 0 or given.std() == 0:
        return None  # springs do not describe this molecule
    correlation = float((given * predicted).mean() / (given.std() * predicted.std()))
    ratio = float(given.std() / predicted.std())
    # Three standard errors of the correlation (Fisher's transformation) and of the logarithm of the ratio.
    upper = np.tanh(np.arctanh(np.clip(correlation, -0.999, 0.999)) + 3 / np.sqrt(max(1, len(given) - 3)))
    doubt = 3 * np.sqrt((1 - correlation**2) / len(given))
    if correlation < -0.5:
        return (
            "The forces have the wrong sign: energies rise along them, as along gradients. Multiply the "
            "forces by -1."
        )
    if upper < _LEAST_CORRELATION and explained > 0.9:
        return (
            f"The forces do not belong to the energies: the energies that follow from the forces have a "
            f"correlation of only {correlation:.2f} with those given. Check that both are in the same order "
            "and from the same calculation."
        )
    if correlation > 0.5 and abs(np.log(ratio)) > 0.4 + doubt:
        return (
            f"The forces cannot belong to the energies: energies vary {ratio:.3g} times as much as they "
            f"should according to the forces{_likely_mixture(ratio)}. Check the units of both; if forces are "
            "not in energy unit per length unit, give `force_unit`."
        )
    return None


def check_stiffness(
    numbers: np.ndarray, positions: np.ndarray, forces: np.ndarray, energy_unit: str
) -> str | None:
    """A warning if the bonds of a molecule (n, N, 3) are stiffer or softer than any, or None.

    `energy_unit` is the unit in which the labels were read.
    """
    stiffness = bond_stiffness(numbers, positions, forces)
    if stiffness is None or _STIFFNESS[0] <= stiffness <= _STIFFNESS[1]:
        return None
    in_file = stiffness / units.ENERGY_IN_EV[energy_unit]
    guesses = {name: in_file * factor for name, factor in units.ENERGY_IN_EV.items()}
    name, value = min(guesses.items(), key=lambda item: abs(np.log(abs(item[1]) / 30)) if item[1] else np.inf)
    advice = (
        f"Read as {name} it would be {value:.3g}: give `energy_unit` {name}."
        if _PLAUSIBLE[0] <= value <= _PLAUSIBLE[1]
        else "Check the units of energies and forces."
    )
    return (
        f"By these forces bonds have a stiffness of {stiffness:.3g} eV/Å², but in molecules it is 10 to 80. "
        + advice
    )


def bond_stiffness(numbers: np.ndarray, positions: np.ndarray, forces: np.ndarray) -> float | None:
    """Median over bonds between nonmetals of -dF/dr, eV/Å²; None if there are too few moving bonds."""
    i, j = np.triu_indices(len(numbers), 1)
    both = np.isin(numbers[i], _NONMETALS) & np.isin(numbers[j], _NONMETALS)
    i, j = i[both], j[both]
    arms = positions[:, i] - positions[:, j]
    length = np.linalg.norm(arms, axis=-1)
    radii = COVALENT_RADII[numbers[i] - 1] + COVALENT_RADII[numbers[j] - 1]
    bonded = np.flatnonzero(((length > 0.7 * radii) & (length < 1.35 * radii)).all(axis=0))
    if len(positions) < 10 or not len(bonded):
        return None
    length = length[:, bonded]
    along = arms[:, bonded] / length[..., None]
    pull = 0.5 * ((forces[:, i[bonded]] - forces[:, j[bonded]]) * along).sum(-1)
    change = length - length.mean(axis=0)
    moving = change.std(axis=0) > _LEAST_MOTION
    if not moving.any():
        return None
    slopes = -(change * pull).sum(axis=0)[moving] / (change**2).sum(axis=0)[moving]
    return float(np.median(slopes))


def _likely_mixture(ratio: float) -> str:
    """A guess at which units were mixed, from the factor by which energies are too large."""
    pairs = itertools.permutations(units.ENERGY_IN_EV.items(), 2)
    guesses = {f"{a} and {b}": larger / smaller for (a, larger), (b, smaller) in pairs if larger > smaller}
    guesses["Bohr and Å"] = 1 / units.LENGTH_IN_ANGSTROM["Bohr"]
    guesses["Hartree/Bohr and kcal/mol/Å"] = units.force_factor("Hartree/Bohr") / units.force_factor(
        "kcal/mol/Ang"
    )
    size = max(ratio, 1 / ratio)
    name, factor = min(guesses.items(), key=lambda item: abs(np.log(size / item[1])))
    return f", about the factor between {name}" if abs(np.log(size / factor)) < 0.15 else ""


@dataclass(frozen=True)
class _Springs:
    """Springs between near pairs of atoms, each with the energy w₁(r₀/r) + w₂(r₀/r)²."""

    i: np.ndarray  # (springs,) atoms
    j: np.ndarray
    scale: np.ndarray  # (springs,) r₀, Å
    weights: np.ndarray  # (powers·springs,)

    @classmethod
    def fit(cls, positions: np.ndarray, forces: np.ndarray) -> _Springs:
        """Springs fitted to the forces of frames (n, N, 3)."""
        frames, atoms, _ = positions.shape
        i, j = np.triu_indices(atoms, 1)
        mean = np.linalg.norm(positions[:, i] - positions[:, j], axis=-1).mean(axis=0)
        # The nearest pairs are bonds and angles, which carry most of the energy; all pairs of a large
        # molecule would cost much and add little. Never more unknowns than a third of the equations.
        count = min(max(200, 5 * atoms), frames * atoms // len(_POWERS))
        near = np.argsort(mean, kind="stable")[: max(count, 1)]
        empty = cls(i[near], j[near], np.maximum(mean[near], 1e-3), np.zeros(0))
        matrix = empty._unit_forces(positions)
        gram = matrix @ matrix.T
        gram[np.diag_indices_from(gram)] += 1e-6 * np.trace(gram) / len(gram)
        return replace(empty, weights=np.linalg.solve(gram, matrix @ forces.reshape(-1)))

    def energies(self, positions: np.ndarray) -> np.ndarray:
        """Energies of frames, (n,)."""
        length = np.linalg.norm(positions[:, self.i] - positions[:, self.j], axis=-1)
        r = np.maximum(length, 1e-3) / self.scale
        energies: np.ndarray = np.concatenate([r**-power for power in _POWERS], axis=1) @ self.weights
        return energies

    def explained(self, positions: np.ndarray, forces: np.ndarray) -> float:
        """The share of the squared forces of frames that the springs explain."""
        missed = forces.reshape(-1) - self.weights @ self._unit_forces(positions)
        return 1 - float((missed**2).sum() / max((forces**2).sum(), 1e-300))

    def _unit_forces(self, frames: np.ndarray) -> np.ndarray:
        """Forces (frames·atoms·3) of unit springs, one row per spring and power."""
        i, j, scale = self.i, self.j, self.scale
        arm = frames[:, i] - frames[:, j]
        r = np.maximum(np.linalg.norm(arm, axis=-1), 1e-3)
        matrix = np.zeros((len(_POWERS), len(i), *frames.shape))
        springs = np.arange(len(i))
        for p, power in enumerate(_POWERS):
            pull = (power * (r / scale) ** (-power - 1) / scale / r)[..., None] * arm
            matrix[p, springs, :, i] += pull.transpose(1, 0, 2)
            matrix[p, springs, :, j] -= pull.transpose(1, 0, 2)
        return matrix.reshape(len(_POWERS) * len(i), -1)
