"""How well attention ranks bonds first, with inverse distance and untrained networks as controls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from geomatt.analysis.bonds import average_precision, symmetrised
from geomatt.analysis.controls import untrained_networks
from geomatt.data.batch import collate
from geomatt.data.bonds import bond_matrix, distances, hydrogen_bonds
from geomatt.data.structures import Structure
from geomatt.model import AnyPotential, AttentionRecord

MOST_FRAMES, UNTRAINED_FRAMES = 20, 3
KINDS = ("covalent", "hydrogen")

Records = Sequence[AttentionRecord[Any]]


def score_table(
    potential: AnyPotential,
    structures: Sequence[Structure],
    found: Sequence[Records],
    untrained: int,
    tell: Callable[[str, int, int], None],
) -> dict[str, Any]:
    """Average precision of every record for covalent and hydrogen bonds: header, rows and a note.

    For hydrogen bonds the covalently bonded pairs are left out. The mean over frames is shown; untrained
    networks are the mean and standard deviation over networks, for the same record.
    """
    scored = np.unique(np.linspace(0, len(structures) - 1, min(MOST_FRAMES, len(structures))).round()).astype(
        int
    )
    few = [structures[k] for k in scored[:UNTRAINED_FRAMES]]
    targets = [_targets(structures[k]) for k in scored]
    kinds = [kind for kind in KINDS if any(kind in t for t in targets)]
    if not kinds:
        return {"header": [], "rows": [], "note": ""}
    labels = [record.label for record in found[0]]
    closeness = [1.0 / (distances(structures[k]) + np.eye(len(structures[k]))) for k in scored]
    controls = _untrained(potential, few, untrained, tell)
    rows = []
    for number, label in enumerate(labels):
        row = [label]
        for kind in kinds:
            matrices = [found[k][number].matrix for k in scored]
            row += [_text([_mean(kind, targets, matrices)])]
            if untrained:
                own = [_mean(kind, targets[: len(few)], each) for each in controls[number]]
                row += [_text(own)]
        rows.append(row)
    control = ["1 / distance"]
    for kind in kinds:
        control += [_text([_mean(kind, targets, closeness)]), *([""] if untrained else [])]
    header = ["average precision"]
    for kind in kinds:
        header += [f"{kind} bonds", *([f"{kind}: untrained"] if untrained else [])]
    over = "" if len(scored) == 1 else f"Mean over {len(scored)} frames."
    note = (
        f"1 is perfect: all bonds before all other pairs. {over} Bonds are those of "
        "the geometry (distances, and angles for hydrogen bonds), which the model was never told."
    )
    if untrained:
        note += f" Untrained: {untrained} networks with random weights, mean ± standard deviation."
    return {"header": header, "rows": [*rows, control], "note": note}


def _targets(structure: Structure) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """By kind of bond: the pairs i < j that take part, and which of them are bonds."""
    covalent, hydrogen = bond_matrix(structure), hydrogen_bonds(structure)
    upper = np.triu(np.ones_like(covalent), 1)
    both = {"covalent": (upper, covalent), "hydrogen": (upper & ~covalent, hydrogen)}
    return {kind: (pairs, true) for kind, (pairs, true) in both.items() if true.any()}


def _mean(
    kind: str, targets: Sequence[dict[str, tuple[np.ndarray, np.ndarray]]], matrices: Sequence[np.ndarray]
) -> float:
    values = []
    for target, matrix in zip(targets, matrices, strict=True):
        if kind in target:
            pairs, true = target[kind]
            values.append(average_precision(true[pairs], symmetrised(matrix)[pairs]))
    return float(np.mean(values)) if values else float("nan")


def _untrained(
    potential: AnyPotential,
    structures: Sequence[Structure],
    count: int,
    tell: Callable[[str, int, int], None],
) -> list[list[list[np.ndarray]]]:
    """Matrices by record, network and structure."""
    network = potential.members[0].network
    found: list[list[list[np.ndarray]]] = []
    for number, each in enumerate(untrained_networks(network, count)):
        for k, structure in enumerate(structures):
            with torch.no_grad():
                records = each.attention(collate([structure], each.dtype, each.device))
            if not found:
                found = [[] for _ in records]
            for r, record in enumerate(records):
                if k == 0:
                    found[r].append([])
                found[r][-1].append(record.matrix[0].double().cpu().numpy())
        tell("untrained networks", number + 1, count)
    return found


def _text(values: Sequence[float]) -> str:
    known = [v for v in values if np.isfinite(v)]
    if not known:
        return "–"
    spread = f" ± {np.std(known):.2f}" if len(known) > 1 else ""
    return f"{np.mean(known):.2f}{spread}"
