"""Scores of attention as a detector of covalent bonds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from geomatt.data.bonds import bond_matrix, bonded_pairs, separations
from geomatt.data.bonds import distances as distances
from geomatt.data.bonds import hydrogen_bonds as hydrogen_bonds
from geomatt.data.structures import Structure
from geomatt.elements import COVALENT_RADII as COVALENT_RADII
from geomatt.errors import GeomAttError
from geomatt.model.interface import AttentionRecord, ImagePairs

CONTROL = "1 / distance (control)"


@dataclass(frozen=True)
class BondScore:
    """Scores of a matrix as a ranking of bonded pairs: 1 is perfect; None if there is nothing to rank."""

    label: str
    average_precision: float | None
    auroc: float | None
    untrained: tuple[float, ...] = ()  # average precision of the same matrix of untrained networks


def symmetrised(matrix: np.ndarray) -> np.ndarray:
    """|α| with both directions of a pair averaged and a zero diagonal."""
    magnitude = np.abs(matrix)
    result = 0.5 * (magnitude + magnitude.T)
    np.fill_diagonal(result, 0.0)
    return result


@dataclass(frozen=True)
class Pairs:
    """Pairs of atoms, each once: all of a structure or, with images, those that a network has in a cell."""

    i: np.ndarray  # (P,)
    j: np.ndarray  # (P,)
    vector: np.ndarray  # (P, 3) from i to j, in cells to its image, Å
    bonded: np.ndarray  # (P,) bool
    places: np.ndarray | None = None  # (P,) among the `images` of a record

    @classmethod
    def of(cls, structure: Structure, images: ImagePairs[np.ndarray] | None = None) -> Pairs:
        """Of a structure, and the images of a record if it has any."""
        if images is None or not structure.periodic or structure.cell is None:
            i, j = np.triu_indices(len(structure), 1)
            return cls(i, j, separations(structure)[i, j], bond_matrix(structure)[i, j])
        signs = np.sign(images.shift) @ [9, 3, 1]  # of the first step that is not zero
        places = np.flatnonzero((images.i < images.j) | ((images.i == images.j) & (signs > 0)))
        i, j = images.i[places], images.j[places]
        vector = structure.positions[j] + images.shift[places] @ structure.cell - structure.positions[i]
        linked = bonded_pairs(structure.numbers, i, j, np.linalg.norm(vector, axis=-1))
        return cls(i, j, vector, linked, places)

    def strength(self, record: AttentionRecord[np.ndarray]) -> np.ndarray:
        """|α| of each pair (P,), the mean of both directions."""
        if self.places is None:
            return symmetrised(record.matrix)[self.i, self.j]
        found, magnitude = record.images, np.abs(record.images.value)
        there = np.lexsort((*found.shift.T, found.j, found.i))
        back = np.lexsort((*-found.shift.T, found.i, found.j))
        reverse = np.empty_like(magnitude)
        reverse[there] = magnitude[back]
        mean: np.ndarray = 0.5 * (magnitude + reverse)[self.places]
        return mean


def bond_scores(
    records: Sequence[AttentionRecord[np.ndarray]],
    structure: Structure,
    untrained: Sequence[Sequence[AttentionRecord[np.ndarray]]] = (),
) -> list[BondScore]:
    """Scores of every attention matrix, and of inverse distance as a control.

    `untrained` are the records of other networks (`untrained_attention`), as a second control.
    Of records with images in cells, pairs with each image are ranked, among those that the network has.
    """
    pairs = Pairs.of(structure, records[0].images if records else None)
    named = [(r.label, pairs.strength(r)) for r in records]
    named.append((CONTROL, 1.0 / np.linalg.norm(pairs.vector, axis=-1)))
    truth = pairs.bonded
    others = [
        tuple(average_precision(truth, pairs.strength(found[r])) for found in untrained if truth.any())
        for r in range(len(records))
    ]
    mixed = bool(truth.any() and not truth.all())
    return [
        BondScore(
            label,
            average_precision(truth, score) if truth.any() else None,
            auroc(truth, score) if mixed else None,
            others[r] if r < len(others) else (),
        )
        for r, (label, score) in enumerate(named)
    ]


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
