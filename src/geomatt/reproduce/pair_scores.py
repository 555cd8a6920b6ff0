"""Scores of attention as a ranking of pairs of atoms, frame by frame."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from geomatt.analysis import auroc, average_precision, symmetrised
from geomatt.data import Batch, Dataset, collate
from geomatt.model import AttentionRecord, Network

CHUNK = 50  # frames in a batch
BINS = np.arange(0.5, 20.01, 0.02)  # Å, for the variance that distance explains


@dataclass(frozen=True)
class PairStrengths:
    """|α| of every record, both directions averaged, for the pairs i < j of every frame."""

    records: list[AttentionRecord[Any]]  # without their matrices
    strength: np.ndarray  # (frames, records, pairs)
    distance: np.ndarray  # (frames, pairs), Å


def lowest_frame(dataset: Dataset) -> int:
    """The frame of lowest energy, whose bonds are the true ones."""
    assert dataset.energies is not None
    return int(dataset.energies.argmin())


def pair_strengths(
    network: Network, frames: Dataset, advance: Callable[[int], None] = lambda done: None
) -> PairStrengths:
    """Attention and distances of the pairs of atoms; all frames must have the same atoms."""
    i, j = np.triu_indices(len(frames[0]), 1)
    records: list[AttentionRecord[Any]] = []
    strength, distance = [], []
    for start in range(0, len(frames), CHUNK):
        part = list(frames[start : start + CHUNK])
        with torch.no_grad():
            found = network.attention(collate(part, network.dtype, network.device))
        records = [record.with_matrix(None) for record in found]
        matrices = [record.matrix.double().cpu().numpy() for record in found]  # (B, N, N) each
        for b, structure in enumerate(part):
            strength.append([symmetrised(matrix[b])[i, j] for matrix in matrices])
            distance.append(np.linalg.norm(structure.positions[i] - structure.positions[j], axis=-1))
        advance(len(part))
    return PairStrengths(records, np.array(strength), np.array(distance))


def precision(truth: np.ndarray, strength: np.ndarray) -> tuple[float, float]:
    """Mean and standard deviation over frames of the average precision of (frames, pairs)."""
    each = [average_precision(truth, s) for s in strength]
    return float(np.mean(each)), float(np.std(each))


def ranking(truth: np.ndarray, strength: np.ndarray) -> dict[str, float]:
    """Mean and standard deviation over frames of how well (frames, pairs) ranks the true pairs first."""
    ap, area = precision(truth, strength), [auroc(truth, s) for s in strength]
    return {
        "ap": ap[0],
        "ap_spread": ap[1],
        "auroc": float(np.mean(area)),
        "auroc_spread": float(np.std(area)),
    }


def symmetric(values: np.ndarray, size: int) -> np.ndarray:
    """A symmetric matrix from its values for the pairs i < j."""
    matrix = np.zeros((size, size))
    matrix[np.triu_indices(size, 1)] = values
    return matrix + matrix.T


def best_and_union(truth: np.ndarray, found: PairStrengths) -> dict[str, dict[str, float]]:
    """Average precision by order, and of all orders: of the best layer, and of the union of the layers.

    The union ranks a pair by its largest |α| in any layer, each divided by the largest |α| of its layer.
    """
    scaled = found.strength / found.strength.max(-1, keepdims=True)
    each = [precision(truth, s)[0] for s in scaled.swapaxes(0, 1)]
    orders = [record.order for record in found.records]
    groups = {f"k={k}": [r for r, order in enumerate(orders) if order == k] for k in sorted(set(orders))}
    return {
        name: {"best": max(each[r] for r in rows), "union": precision(truth, scaled[:, rows].max(1))[0]}
        for name, rows in {**groups, "all orders": list(range(len(orders)))}.items()
    }


def explained_by_distance(strength: np.ndarray, distance: np.ndarray) -> float:
    """Share of the variance of |α| over all pairs and frames that is explained by a function of distance.

    The prediction for a pair is the mean of the other pairs in its bin of 0.02 Å.
    """
    which = np.digitize(distance.ravel(), BINS)
    value = strength.ravel()
    count = np.bincount(which)
    total = np.bincount(which, value)
    shared = count[which] > 1
    others = (total[which] - value)[shared] / (count[which][shared] - 1)
    rest = np.mean((value[shared] - others) ** 2)
    variance = value[shared].var()
    return float(max(0.0, 1.0 - rest / variance)) if variance > 0 else 1.0


def alpha_of_distance(network: Network, d: np.ndarray) -> np.ndarray:
    """α of order 2 of every layer (layers, n) for two atoms at the distances d (n,)."""
    positions = torch.zeros(len(d), 2, 3, dtype=network.dtype, device=network.device)
    positions[:, 1, 0] = torch.from_numpy(d)
    numbers = network.elements[:1].expand(len(d), 2)  # the same for all elements
    with torch.no_grad():
        records = network.attention(Batch(numbers, positions))
    return np.array([r.matrix[:, 0, 1].cpu().numpy() for r in records if r.order == 2])
