"""Covalent and hydrogen bonds in the attention of two stacked cytosine–guanine pairs."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from geomatt.analysis import bond_matrix, untrained_networks
from geomatt.data import Dataset
from geomatt.errors import GeomAttError
from geomatt.model import Network
from geomatt.reproduce.pair_scores import lowest_frame, pair_strengths, precision, symmetric

PAIR = 29  # atoms of a base pair: guanine 0-15, cytosine 16-28; the second pair follows
GUANINE = 16
ATOMS = 2 * PAIR
HYDROGEN_BONDS = ((28, 5), (13, 19), (14, 18))  # H···acceptor in the first pair
CONTROL = "1 / distance (control)"
LENGTHS = np.arange(0.9, 2.6, 0.02)  # Å, tried as d₀
KINDS = {
    "covalent": "covalent bonds, all pairs",
    "hydrogen": "hydrogen bonds, all pairs",
    "hydrogen-block": "hydrogen bonds, guanine–cytosine block",
}


def truths(dataset: Dataset) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """By kind: the pairs (N, N) that take part (upper triangle), and those of them that are bonds.

    Covalent bonds are those of the frame of lowest energy, not those of the scored frame.
    """
    if len(dataset[0]) != ATOMS or dataset.energies is None:
        raise GeomAttError(
            f"The data must contain labelled frames of {ATOMS} atoms: two cytosine–guanine pairs."
        )
    relaxed = dataset[lowest_frame(dataset)]
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


def score(
    network: Network,
    frames: Dataset,
    truth_from: Dataset,
    advance: Callable[[int], None] = lambda done: None,
) -> dict[str, Any]:
    """Average precision of every attention matrix over the frames, and the mean matrices."""
    kinds, upper = _kinds(truth_from), np.triu_indices(ATOMS, 1)
    found = pair_strengths(network, frames, advance)
    ranked = {r.label: found.strength[:, i] for i, r in enumerate(found.records)}
    ranked[CONTROL] = 1.0 / found.distance
    return {
        "frames": len(frames),
        "chance": {kind: float(true.sum() / pairs.sum()) for kind, (pairs, true) in kinds.items()},
        "precision": {
            label: {kind: precision(true[pairs], values[:, pairs]) for kind, (pairs, true) in kinds.items()}
            for label, values in ranked.items()
        },
        "matrices": {label: encode(symmetric(values.mean(0), ATOMS)) for label, values in ranked.items()},
        "bonds": np.column_stack(upper)[kinds["covalent"][1]],
    }


def controls(
    network: Network, frames: Dataset, truth_from: Dataset, count: int, advance: Callable[[int], None]
) -> dict[str, Any]:
    """Scores reached without training, by kind of bond.

    `length`: the precision, its standard deviation and d₀ of ranking pairs by |d − d₀|, for the d₀ with the
    highest precision on these frames. `untrained`: the precision of the best matrix of each of `count`
    networks with random weights, on a tenth of the frames.
    """
    kinds, few = _kinds(truth_from), frames[::10]
    i, j = np.triu_indices(ATOMS, 1)
    distance = np.array([np.linalg.norm(f.positions[i] - f.positions[j], axis=-1) for f in frames])
    length = {
        kind: max([*precision(true[pairs], -np.abs(distance - d0)[:, pairs]), float(d0)] for d0 in LENGTHS)
        for kind, (pairs, true) in kinds.items()
    }
    untrained: dict[str, list[float]] = {kind: [] for kind in kinds}
    for each in untrained_networks(network, count):
        found = score(each, few, truth_from)["precision"]
        for kind, values in untrained.items():
            values.append(strongest(found, kind)[1])
        advance(1)
    lowest = truth_from[lowest_frame(truth_from)]
    return {
        "frames": [len(frames), len(few)],
        "length": length,
        "untrained": untrained,
        "numbers": lowest.numbers,
        "positions": lowest.positions.round(4),
    }


def before_training(result: Mapping[str, Any], recipe: str, offset: int = 0) -> dict[str, float]:
    """The precision of the best matrix of the very network that training began with, by kind of bond.

    The controls have the paper recipe's network and the seeds 0, 1, ..., so one of them is that network if it
    has these settings and its seed, the recipe's plus `offset`, is among theirs. Else nothing is known.
    """
    own, theirs = result["settings"][recipe], result["settings"]["paper"]
    seed = own["seed"] + offset
    found = {kind: values[seed : seed + 1] for kind, values in result["controls"]["untrained"].items()}
    same = all(own[name] == theirs[name] for name in ("model", "network"))
    return {kind: values[0] for kind, values in found.items() if same and values}


def _kinds(dataset: Dataset) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """`truths` for the pairs i < j as vectors."""
    upper = np.triu_indices(ATOMS, 1)
    return {kind: (pairs[upper], true[upper]) for kind, (pairs, true) in truths(dataset).items()}


def encode(matrix: np.ndarray) -> dict[str, Any]:
    """A matrix without negative entries as text, in 255 steps: enough for a figure, and small."""
    largest = float(matrix.max()) or 1.0
    steps = np.round(matrix / largest * 255).astype(np.uint8)
    return {"size": len(matrix), "largest": largest, "uint8": base64.b64encode(steps.tobytes()).decode()}


def decode(stored: Mapping[str, Any]) -> np.ndarray:
    """The matrix, divided by its largest entry."""
    steps = np.frombuffer(base64.b64decode(stored["uint8"]), dtype=np.uint8)
    return steps.reshape(stored["size"], stored["size"]) / 255.0


def strongest(precision: Mapping[str, Mapping[str, Sequence[float]]], kind: str) -> tuple[str, float]:
    """The attention matrix that finds a kind of bond best, and its precision."""
    own = {label: values[kind][0] for label, values in precision.items() if label != CONTROL}
    label = max(own, key=lambda name: own[name])
    return label, own[label]
