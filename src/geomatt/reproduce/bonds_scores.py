"""How well attention finds covalent bonds, frame by frame, and how much of it distance alone explains."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from geomatt.analysis.bonds import COVALENT_RADII, auroc, average_precision, symmetrised
from geomatt.data.bonds import bond_matrix
from geomatt.data.structures import Dataset
from geomatt.elements import symbols
from geomatt.model.potential import Potential

CHUNK = 100  # frames whose attention is held at once
BINS = np.arange(0.5, 20.01, 0.02)  # Å, for what distance alone explains
CURVE = np.arange(0.0, 6.001, 0.05)  # Å, where α^(2) is drawn as the function of distance it is


def score(
    model: Potential, dataset: Dataset, frames: np.ndarray, advance: Callable[[int], None]
) -> dict[str, Any]:
    """Average precision and AUROC of every attention matrix for the bonds of `dataset`, over `frames`.

    The bonds are those of the frame of lowest energy: a frame is never scored against bonds that were read
    off its own distances, or plain distance would be right by definition.
    """
    assert dataset.energies is not None
    reference = int(dataset.energies.argmin())
    lowest = dataset[reference]
    pairs = np.triu_indices(len(lowest), 1)
    truth = bond_matrix(lowest)[pairs]
    radii = COVALENT_RADII[lowest.numbers - 1]
    expected = (radii[:, None] + radii)[pairs]
    labels, strengths, between = [], [], []
    for start in range(0, len(frames), CHUNK):
        structures = [dataset[int(i)] for i in frames[start : start + CHUNK]]
        predictions = model.predict(structures, forces=False, attention=True)
        for structure, prediction in zip(structures, predictions, strict=True):
            records = prediction.attention or []
            labels = [(r.label, r.order, r.layer) for r in records]
            strengths.append([symmetrised(r.matrix.astype(np.float64))[pairs] for r in records])
            difference = structure.positions[pairs[0]] - structure.positions[pairs[1]]
            between.append(np.linalg.norm(difference, axis=-1))
        advance(len(structures))
    strength, distance = np.array(strengths), np.array(between)  # (frames, records, pairs), (frames, pairs)
    rows = [
        {
            "label": label,
            "order": order,
            "layer": layer + 1,
            **_ranked(truth, strength[:, r]),
            "explained": explained_by_distance(strength[:, r], distance),
        }
        for r, (label, order, layer) in enumerate(labels)
    ]
    controls = {
        "1 / distance": _ranked(truth, 1.0 / distance),
        "covalent radii / distance": _ranked(truth, expected / distance),
    }
    (shown,) = model.predict([lowest], forces=False, attention=True)
    return {
        "frames": len(frames),
        "reference_frame": reference,
        "bonds": int(truth.sum()),
        "pairs": len(truth),
        "longest_bond": float(distance[:, truth].max()),
        "shortest_other": float(distance[:, ~truth].min()),
        "rows": rows,
        "controls": controls,
        "symbols": symbols(lowest.numbers),
        "positions": lowest.positions.round(4),
        "bonded": np.column_stack([p[truth] for p in pairs]),
        "matrices": [_normalised(symmetrised(r.matrix.astype(np.float64))) for r in shown.attention or []],
        "curves": alpha_curves(model),
    }


def explained_by_distance(strength: np.ndarray, distance: np.ndarray) -> float:
    """Share of the variance of |α| over all pairs and frames that a function of distance alone accounts for.

    A bin of 0.02 Å with one entry would explain itself, so the mean of a bin is that of its other entries.
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


def alpha_curves(model: Potential) -> dict[str, Any]:
    """α^(2) of every layer as the function of distance that it is."""
    import torch

    network = model.network
    d = torch.from_numpy(CURVE).to(network.mu)
    zero = torch.zeros_like(d)
    matrices = torch.stack([torch.stack([zero, d], -1), torch.stack([d, zero], -1)], -2)
    with torch.no_grad():
        alpha = network.attention(matrices, torch.ones(len(d), 2, dtype=torch.bool, device=d.device))
    layers = [a[:, 0, 1] for s, order in enumerate(network.config.orders) if order == 2 for a in alpha[s]]
    return {"distance": CURVE.round(3), "alpha": [np.round(a.cpu().numpy(), 5) for a in layers]}


def _ranked(truth: np.ndarray, strength: np.ndarray) -> dict[str, float]:
    """Mean and spread over frames of how well (frames, pairs) ranks the true pairs first."""
    precision = [average_precision(truth, s) for s in strength]
    area = [auroc(truth, s) for s in strength]
    return {
        "ap": float(np.mean(precision)),
        "ap_spread": float(np.std(precision)),
        "auroc": float(np.mean(area)),
        "auroc_spread": float(np.std(area)),
    }


def _normalised(matrix: np.ndarray) -> np.ndarray:
    return np.round(matrix / (matrix.max() or 1.0), 3)
