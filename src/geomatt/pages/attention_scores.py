"""Scores of attention as a ranking of bonds, with inverse distance and untrained networks as controls."""

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
from geomatt.pages.page import evenly

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
    scored = evenly(len(structures), MOST_FRAMES)
    few = [structures[k] for k in scored[:UNTRAINED_FRAMES]]
    targets = [_targets(structures[k]) for k in scored]
    kinds = [kind for kind in KINDS if any(kind in t for t in targets)]
    if not kinds:
        return {"header": [], "rows": [], "note": ""}
    labels = [record.label for record in found[0]]
    closeness = [1.0 / (distances(structures[k]) + np.eye(len(structures[k]))) for k in scored]
    controls = _untrained(potential, few, untrained, tell)

    def row(label: str, matrices: Sequence[np.ndarray], record: int | None) -> list[str]:
        cells = [label]
        for kind in kinds:
            cells.append(_text([_mean(kind, targets, matrices)]))
            if untrained:
                few_targets = targets[: len(few)]
                own = [] if record is None else [[each[record] for each in network] for network in controls]
                cells.append(_text([_mean(kind, few_targets, each) for each in own]) if own else "")
        return cells

    rows = [row(label, [found[k][r].matrix for k in scored], r) for r, label in enumerate(labels)]
    rows.append(row("1 / distance", closeness, None))
    header = ["average precision"]
    for kind in kinds:
        header += [f"{kind} bonds", *([f"{kind}: untrained"] if untrained else [])]
    over = "" if len(scored) == 1 else f"Mean over {len(scored)} frames."
    note = (
        f"1: all bonds rank before all other pairs. {over} Bonds are those of "
        "the geometry (distances, and angles for hydrogen bonds), which the model is not given."
    )
    if untrained:
        note += f" Untrained: {untrained} networks with random weights, mean ± standard deviation."
    return {"header": header, "rows": rows, "note": note}


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
    """Matrices by network, structure and record."""
    found = []
    for network in untrained_networks(potential.members[0].network, count):
        with torch.no_grad():
            all_records = [network.attention(collate([s], network.dtype, network.device)) for s in structures]
        found.append([[r.matrix[0].double().cpu().numpy() for r in records] for records in all_records])
        tell("untrained networks", len(found), count)
    return found


def _text(values: Sequence[float]) -> str:
    known = [v for v in values if np.isfinite(v)]
    if not known:
        return "–"
    spread = f" ± {np.std(known):.2f}" if len(known) > 1 else ""
    return f"{np.mean(known):.2f}{spread}"
