"""Faithfulness: does the rank of a pair say how much the forces depend on it?

Deletion curves: pairs are switched off one after the other in the order of a ranking (attention, inverse
distance, the effect of each pair alone, or random), strongest or weakest first, and the change of the forces
is measured. A faithful ranking changes them much when its strongest pairs go first (large area under the
curve) and little when its weakest do (small area); the difference is its score. A ranking without
information scores 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from geomatt.analysis.bonds import distances, symmetrised
from geomatt.analysis.coefficients import Model, attention
from geomatt.analysis.intervention import PairEffects, pair_effects, root_mean_square, switched
from geomatt.data.structures import AtomsLike, Structure, as_structure
from geomatt.model import AnyPotential, loaded

DELETED = (0.0, 0.05, 0.1, 0.2, 0.4, 0.7, 1.0)  # of all pairs, switched off
BY_ATTENTION = "all attention"  # a pair by its largest coefficient, each record divided by its largest
BY_DISTANCE, BY_EFFECT, BY_CHANCE = "1 / distance", "effect of the pair", "random"  # controls


@dataclass(frozen=True)
class DeletionCurve:
    """The forces as more and more pairs are switched off, in one order."""

    fraction: np.ndarray  # (F,) of the pairs that are off
    change: np.ndarray  # (F,) root mean square change of the forces, eV/Å
    intact: float  # root mean square of the forces of the intact model, eV/Å
    error: np.ndarray | None = None  # (F,) mean absolute error against labels, eV/Å

    @property
    def relative(self) -> np.ndarray:
        """change / (change + intact): 0 for no change, ½ for one as large as the forces, always below 1."""
        total = self.change + self.intact
        return np.divide(self.change, total, out=np.zeros_like(total), where=total > 0)

    @property
    def area(self) -> float:
        """Area under the relative change, from 0 to 1."""
        return float(np.trapezoid(self.relative, self.fraction) / np.ptp(self.fraction))


@dataclass(frozen=True)
class Faithfulness:
    """Deletion curves of one ranking of pairs."""

    label: str
    strongest: DeletionCurve  # strongest pairs first
    weakest: DeletionCurve  # weakest pairs first
    correlation: float  # Spearman's, with the change of forces by each pair alone; nan if undefined

    @property
    def score(self) -> float:
        """The increase of the area with the strongest pairs first; 0 for no information."""
        return self.strongest.area - self.weakest.area


def faithfulness(
    model: Model,
    atoms: Structure | AtomsLike,
    *,
    fractions: Sequence[float] = DELETED,
    random: int = 3,
    seed: int = 0,
) -> list[Faithfulness]:
    """Deletion curves of every attention record of a structure, and of the controls.

    The controls are inverse distance, the effect of each pair alone, and `random` random orders. With forces
    in the structure, curves have errors against them.
    """
    potential = loaded(model)
    structure = as_structure(atoms)
    effects = pair_effects(potential, structure)
    rankings = _rankings(potential, structure, effects, random, seed)
    return deletion_curves(potential, structure, rankings, fractions, effects)


def deletion_curves(
    potential: AnyPotential,
    structure: Structure,
    rankings: Mapping[str, np.ndarray],
    fractions: Sequence[float] = DELETED,
    effects: PairEffects | None = None,
) -> list[Faithfulness]:
    """Deletion curves of `rankings` by name, each (N, N) and symmetric: larger is stronger."""
    size = len(structure)
    i, j = np.triu_indices(size, 1)
    counts = np.rint(np.asarray(fractions) * len(i)).astype(int)
    sets = []
    for ranking in rankings.values():
        order = np.argsort(-ranking[i, j], kind="stable")  # strongest first
        for sequence in (order, order[::-1]):
            place = np.empty(len(i), dtype=int)
            place[sequence] = np.arange(len(i))
            sets.append(place < counts[:, None])  # (F, pairs)
    off = np.zeros((len(sets) * len(counts), size, size), dtype=bool)
    off[:, i, j] = off[:, j, i] = np.concatenate(sets)
    # A set that occurs in several curves, such as that of all pairs, is evaluated once.
    unique, back = np.unique(off.reshape(len(off), -1), axis=0, return_inverse=True)
    found = switched(potential, structure, unique.reshape(-1, size, size))
    change = root_mean_square(found.forces)[back.reshape(-1)].reshape(-1, len(counts))
    error = None
    if structure.forces is not None:
        off_by = np.abs(found.intact_forces + found.forces - structure.forces).mean((-2, -1))
        error = off_by[back.reshape(-1)].reshape(-1, len(counts))
    intact = float(root_mean_square(found.intact_forces))
    shares = counts / max(1, len(i))
    curves = [
        DeletionCurve(shares, row, intact, None if error is None else error[r])
        for r, row in enumerate(change)
    ]
    return [
        Faithfulness(
            label,
            curves[2 * r],
            curves[2 * r + 1],
            np.nan if effects is None else rank_correlation(ranking[i, j], effects.forces[i, j]),
        )
        for r, (label, ranking) in enumerate(rankings.items())
    ]


def rank_correlation(a: np.ndarray, b: np.ndarray) -> float:
    """Spearman's rank correlation; nan if one of them is constant."""
    from scipy.stats import rankdata

    ranks = [rankdata(values) for values in (a, b)]
    if len(a) < 2 or any(np.ptp(r) == 0 for r in ranks):
        return float("nan")
    return float(np.corrcoef(*ranks)[0, 1])


def _rankings(
    potential: AnyPotential, structure: Structure, effects: PairEffects, random: int, seed: int
) -> dict[str, np.ndarray]:
    size, rng = len(structure), np.random.default_rng(seed)
    found = {record.label: symmetrised(record.matrix) for record in attention(potential, structure)}
    if found:
        found[BY_ATTENTION] = np.max([matrix / (matrix.max() or 1.0) for matrix in found.values()], axis=0)
    found[BY_DISTANCE] = 1.0 / (distances(structure) + np.eye(size))
    found[BY_EFFECT] = effects.forces
    for number in range(random):
        found[f"{BY_CHANCE} {number + 1}"] = symmetrised(rng.random((size, size)))
    return found
