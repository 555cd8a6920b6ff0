"""Scores of attention as a detector of covalent bonds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from geomatt.data.bonds import bond_matrix, distances
from geomatt.data.bonds import hydrogen_bonds as hydrogen_bonds
from geomatt.data.structures import Structure
from geomatt.elements import COVALENT_RADII as COVALENT_RADII
from geomatt.errors import GeomAttError
from geomatt.model.interface import AttentionRecord

CONTROL = "1 / distance (control)"


@dataclass(frozen=True)
class BondScore:
    """Scores of a matrix as a ranking of bonded pairs: 1 is perfect; None if there is nothing to rank."""

    label: str
    average_precision: float | None
    auroc: float | None


def symmetrised(matrix: np.ndarray) -> np.ndarray:
    """|α| with both directions of a pair averaged and a zero diagonal."""
    magnitude = np.abs(matrix)
    result = 0.5 * (magnitude + magnitude.T)
    np.fill_diagonal(result, 0.0)
    return result


def bond_scores(records: Sequence[AttentionRecord[np.ndarray]], structure: Structure) -> list[BondScore]:
    """Scores of every attention matrix, and of inverse distance as a control."""
    bonded = bond_matrix(structure)
    closeness = 1.0 / (distances(structure) + np.eye(len(structure)))
    named = [(r.label, r.matrix) for r in records] + [(CONTROL, closeness)]
    pairs = np.triu_indices(len(structure), 1)
    truth = bonded[pairs]
    result = []
    for label, matrix in named:
        score = symmetrised(matrix)[pairs]
        mixed = bool(truth.any() and not truth.all())
        result.append(
            BondScore(
                label,
                average_precision(truth, score) if truth.any() else None,
                auroc(truth, score) if mixed else None,
            )
        )
    return result


def average_precision(truth: np.ndarray, score: np.ndarray) -> float:
    """Area under the step function of precision over recall; pairs with equal scores form one step."""
    true = np.asarray(truth, dtype=bool)
    if not true.any():
        raise GeomAttError("Average precision needs at least one true pair.")
    thresholds, group = np.unique(-np.asarray(score, dtype=np.float64), return_inverse=True)
    found = np.cumsum(np.bincount(group, weights=true, minlength=len(thresholds)))
    seen = np.cumsum(np.bincount(group, minlength=len(thresholds)))
    gained = np.diff(found, prepend=0.0) / found[-1]
    return float((gained * found / seen).sum())


def auroc(truth: np.ndarray, score: np.ndarray) -> float:
    """Probability that a true pair scores above a false one; ties count half."""
    true = np.asarray(truth, dtype=bool)
    if true.all() or not true.any():
        raise GeomAttError("The area under the ROC curve needs both true and false pairs.")
    _, group, count = np.unique(np.asarray(score, dtype=np.float64), return_inverse=True, return_counts=True)
    rank = (np.cumsum(count) - 0.5 * (count - 1))[group]  # mean rank of equal scores, counted from 1
    positives = int(true.sum())
    above = rank[true].sum() - positives * (positives + 1) / 2
    return float(above / (positives * (len(true) - positives)))
