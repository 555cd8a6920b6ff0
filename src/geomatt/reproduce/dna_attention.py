"""What the attention in two stacked cytosine–guanine pairs knows of covalent and of hydrogen bonds."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from geomatt.analysis import attention, average_precision, bond_matrix, distances
from geomatt.analysis.bonds import symmetrised
from geomatt.data.structures import Dataset
from geomatt.errors import GeomAttError
from geomatt.model.potential import Potential

PAIR = 29  # atoms of a base pair: guanine 0-15, cytosine 16-28; the second pair follows
GUANINE = 16
ATOMS = 2 * PAIR
HYDROGEN_BONDS = ((28, 5), (13, 19), (14, 18))  # H···acceptor in the first pair
CONTROL = "1 / distance (control)"
KINDS = {
    "covalent": "covalent bonds, all pairs",
    "hydrogen": "hydrogen bonds, all pairs",
    "hydrogen-block": "hydrogen bonds, guanine–cytosine block",
}


def truths(dataset: Dataset) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """By kind, which pairs (N, N) take part (upper triangle) and which of them are true.

    Covalent bonds are those of the frame of lowest energy: the topology, not the frame that is scored.
    """
    if len(dataset[0]) != ATOMS or dataset.energies is None:
        raise GeomAttError(
            f"The data must hold labelled frames of {ATOMS} atoms: two cytosine–guanine pairs."
        )
    relaxed = dataset[int(np.argmin(dataset.energies))]
    upper = np.triu(np.ones((ATOMS, ATOMS), dtype=bool), 1)
    hydrogen = np.zeros_like(upper)
    block = np.zeros_like(upper)
    for start in (0, PAIR):
        block[start : start + GUANINE, start + GUANINE : start + PAIR] = True
        for i, j in HYDROGEN_BONDS:
            hydrogen[start + min(i, j), start + max(i, j)] = True
    return {
        "covalent": (upper, bond_matrix(relaxed) & upper),
        "hydrogen": (upper, hydrogen),
        "hydrogen-block": (block, hydrogen),
    }


def chances(dataset: Dataset) -> dict[str, float]:
    """The precision of guessing: the share of true pairs among those that take part."""
    return {kind: float(true.sum() / pairs.sum()) for kind, (pairs, true) in truths(dataset).items()}


def score(
    model: Potential, frames: Dataset, truth_from: Dataset, advance: Callable[[int], None]
) -> dict[str, Any]:
    """Average precision of every attention matrix over the frames, and the mean matrices."""
    kinds = truths(truth_from)
    found: dict[str, dict[str, list[float]]] = {}
    sums: dict[str, np.ndarray] = {}
    for start in range(0, len(frames), 16):
        part = frames[start : start + 16]
        for structure, records in zip(part, attention(model, part, batch_size=16), strict=True):
            matrices = {r.label: symmetrised(r.matrix.astype(np.float64)) for r in records}
            matrices[CONTROL] = 1.0 / (distances(structure) + np.eye(ATOMS)) - np.eye(ATOMS)
            for label, matrix in matrices.items():
                for kind, (pairs, true) in kinds.items():
                    precision = average_precision(true[pairs], matrix[pairs])
                    found.setdefault(label, {}).setdefault(kind, []).append(precision)
                sums[label] = sums.get(label, 0.0) + matrix
        advance(len(part))
    return {
        "frames": len(frames),
        "chance": chances(truth_from),
        "precision": {
            label: {kind: [float(np.mean(v)), float(np.std(v))] for kind, v in values.items()}
            for label, values in found.items()
        },
        "matrices": {label: encode(total / len(frames)) for label, total in sums.items()},
        "bonds": np.argwhere(kinds["covalent"][1]),
    }


def encode(matrix: np.ndarray) -> dict[str, Any]:
    """A matrix without negative entries as text, in 255 steps: enough for a picture, small in JSON."""
    largest = float(matrix.max()) or 1.0
    steps = np.round(matrix / largest * 255).astype(np.uint8)
    return {"size": len(matrix), "largest": largest, "uint8": base64.b64encode(steps.tobytes()).decode()}


def decode(stored: Mapping[str, Any]) -> np.ndarray:
    """The matrix, with its largest entry as one."""
    steps = np.frombuffer(base64.b64decode(stored["uint8"]), dtype=np.uint8)
    return steps.reshape(stored["size"], stored["size"]) / 255.0


def strongest(precision: Mapping[str, Mapping[str, Sequence[float]]], kind: str) -> tuple[str, float]:
    """Which attention matrix finds a kind of bond best, and how well."""
    own = {label: values[kind][0] for label, values in precision.items() if label != CONTROL}
    label = max(own, key=lambda name: own[name])
    return label, own[label]
