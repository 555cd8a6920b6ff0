"""Effects of switching pairs off, and the strongest paths: the costly parts of an explorer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from geomatt.analysis.bonds import symmetrised
from geomatt.analysis.intervention import BATCH, switched
from geomatt.data.batch import collate
from geomatt.data.bonds import bond_matrix, hydrogen_bonds
from geomatt.data.structures import Structure
from geomatt.model import AnyPotential, AttentionRecord, Potential
from geomatt.pages.page import evenly, quantised
from geomatt.pages.pair_sets import Pairs, PairSet, atom_sets, own_sets, usual_sets

MOST_PAIRS = 400  # switched off in one frame: bonds first, then the strongest by attention
MOST_DETAILED = 20  # frames in which pairs are switched off
USUAL_COST = 200_000  # pairs switched off by default, times the squared number of atoms: about a minute
USUAL_PAIRS, USUAL_ATOMS = 2000, 150  # pairs at most, and the largest structures in which any are by default
ATOM_SHARE = 2  # all pairs of an atom are switched off where these sets are at most 1/2 of the single pairs
PATHS, PATH_PAIRS, PATH_FRAMES = 5, 250, 5  # paths of a pair, pairs of a frame, and frames, for one record

Tell = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Detail:
    """A frame that is looked at in detail, and what is switched off in it."""

    frame: int
    sets: list[PairSet]  # single pairs first
    matrices: list[np.ndarray]  # |α| of every record, both directions averaged


def usual_budget(structures: Sequence[Structure]) -> int:
    """The number of pairs switched off by default, in all frames together."""
    atoms = max(len(s) for s in structures)
    return min(USUAL_PAIRS, USUAL_COST // atoms**2) if atoms <= USUAL_ATOMS else 0


def choose_details(
    structures: Sequence[Structure],
    found: Sequence[Sequence[AttentionRecord[np.ndarray]]],
    budget: int,
    own: Sequence[Pairs] = (),
) -> list[Detail]:
    """Frames, evenly chosen, and what to switch off in them: at most `budget` single pairs, and sets.

    The sets a user asks for, `own`, are switched off in every frame that is chosen.
    """
    per_frame = max(1, min(MOST_PAIRS, max(len(s) * (len(s) - 1) // 2 for s in structures)))
    most = min(MOST_PAIRS, budget)
    details = []
    for frame in evenly(len(structures), min(max(1, budget // per_frame), MOST_DETAILED)):
        structure, matrices = structures[frame], [symmetrised(r.matrix) for r in found[frame]]
        pairs = _strongest(structure, matrices, most)
        sets = [PairSet("", pair[None]) for pair in pairs] + own_sets(own, structure)
        if len(pairs):
            sets += usual_sets(structure)
        if len(structure) <= len(pairs) // ATOM_SHARE:
            sets += atom_sets(structure)
        details.append(Detail(int(frame), sets, matrices))
    return details


def _strongest(structure: Structure, matrices: list[np.ndarray], most: int) -> np.ndarray:
    """Pairs i < j (P, 2): bonds, then the strongest by attention."""
    i, j = np.triu_indices(len(structure), 1)
    strongest = np.max([m / (m.max() or 1.0) for m in matrices], axis=0)
    bonded = bond_matrix(structure) | hydrogen_bonds(structure)
    order = np.argsort(-(strongest + 2.0 * bonded)[i, j], kind="stable")[:most]
    return np.column_stack([i, j])[np.sort(order)]


def gather_effects(
    potential: AnyPotential,
    structures: Sequence[Structure],
    details: Sequence[Detail],
    factor: float,
    tell: Tell,
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The effect of switching off each set of pairs: a description, and arrays."""
    note = ""
    if any(member.network.switch_layers == 0 for member in potential.members):
        note = "Pairs of this network cannot be switched off."
    elif not any(d.sets for d in details):
        note = "No pairs were switched off when this page was made."
    chosen = [] if note else [d for d in details if d.sets]
    counts = np.zeros(len(structures), dtype=np.int64)
    sets, energy, forces, scales = [], [np.zeros(0)], [np.zeros(0, dtype=np.int16)], []
    total, done = sum(len(d.sets) for d in chosen), 0
    for detail in chosen:
        structure, atoms = structures[detail.frame], len(structures[detail.frame])
        size = max(1, BATCH * 40**2 // max(40, atoms) ** 2)  # evaluated at once, as memory allows
        for start in range(0, len(detail.sets), size):
            part = detail.sets[start : start + size]
            off = np.zeros((len(part), atoms, atoms), dtype=bool)
            for row, each in enumerate(part):
                i, j = each.pairs.T
                off[row, i, j] = off[row, j, i] = True
            found = switched(potential, structure, off)
            energy.append(factor * found.energy)
            for change in factor * found.forces:
                values, scale = quantised(change.ravel())
                forces.append(values)
                scales.append(scale)
            done += len(part)
            tell("switching pairs off", done, total)
        sets += detail.sets
        counts[detail.frame] = len(detail.sets)
    if not note and any(structures[d.frame].periodic for d in chosen):
        note = "In cells a pair is switched off with all its images."
    description = {
        "computed": bool(chosen),
        "note": note,
        "frames": [d.frame for d in chosen],
        "labels": {number: each.label for number, each in enumerate(sets) if each.label},
    }
    pairs = [np.zeros((0, 2), dtype=np.int64), *(each.pairs for each in sets)]
    return description, {
        "effectPairs": np.concatenate(pairs).astype(np.uint16),
        "effectPairOffsets": np.cumsum([len(p) for p in pairs]).astype(np.uint32),
        "effectOffsets": np.concatenate([[0], np.cumsum(counts)]).astype(np.uint32),
        "effectEnergy": np.concatenate(energy).astype(np.float32),
        "effectForces": np.concatenate(forces),
        "effectScale": np.array(scales, dtype=np.float32),
    }


def gather_paths(
    member: Potential,
    structures: Sequence[Structure],
    records: Sequence[AttentionRecord[Any]],
    details: Sequence[Detail],
) -> tuple[list[dict[str, Any]], dict[str, np.ndarray]]:
    """The strongest paths of the strongest pairs of every record, of one member: descriptions and arrays."""
    described: list[dict[str, Any]] = []
    arrays: dict[str, np.ndarray] = {}
    network = member.network
    details = details[:: -(-len(details) // PATH_FRAMES)]
    for number, record in enumerate(records):
        pairs, atoms, values, note = [], [], [], ""
        for detail in details:
            structure = structures[detail.frame]
            if structure.periodic or len(structure) < 2:
                continue
            every = np.column_stack(np.triu_indices(len(structure), 1))
            strength = detail.matrices[number][tuple(every.T)]
            chosen = every[np.argsort(-strength, kind="stable")]
            chosen = chosen[: PATH_PAIRS if len(structure) <= USUAL_ATOMS else PATH_PAIRS // 10]
            with torch.no_grad():
                batch = collate([structure], network.dtype, network.device)
                found = network.paths(batch, record, [(int(i), int(j)) for i, j in chosen], PATHS)
            if found is None:
                continue
            note = found.note
            missing = PATHS - found.values.shape[1]  # tiny molecules have fewer
            frame = np.full((len(chosen), 1), detail.frame)
            pairs.append(np.concatenate([frame, chosen], axis=1))
            atoms.append(np.pad(found.atoms.cpu().numpy(), ((0, 0), (0, missing), (0, 0))))
            values.append(np.pad(found.values.double().cpu().numpy(), ((0, 0), (0, missing))))
        if pairs:
            length = atoms[0].shape[-1]
            described.append({"record": number, "length": length, "count": PATHS, "note": note})
            arrays[f"pathPairs-{number}"] = np.concatenate(pairs).astype(np.uint16)
            arrays[f"pathAtoms-{number}"] = np.concatenate(atoms).astype(np.uint16)
            arrays[f"pathValues-{number}"] = np.concatenate(values).astype(np.float32)
    return described, arrays
