"""What switching pairs off changes, and the strongest paths: the costly parts of an explorer."""

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
from geomatt.pages.page import quantised

MOST_PAIRS = 400  # switched off in one frame: bonds first, then the strongest by attention
MOST_DETAILED = 20  # frames in which pairs are switched off
USUAL_COST = 200_000  # pairs switched off by default, times the squared number of atoms: about a minute
USUAL_PAIRS, USUAL_ATOMS = 2000, 150  # pairs at most, and the largest structures in which any are by default
PATHS, PATH_PAIRS, PATH_FRAMES = 5, 250, 5  # paths of a pair, pairs of a frame, and frames, for one record

Tell = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Detail:
    """A frame that is looked at in detail, and the pairs i < j in it."""

    frame: int
    pairs: np.ndarray  # (P, 2)
    matrices: list[np.ndarray]  # |α| of every record, both directions averaged


def usual_budget(structures: Sequence[Structure]) -> int:
    """How many pairs are switched off by default, in all frames together."""
    atoms = max(len(s) for s in structures)
    return min(USUAL_PAIRS, USUAL_COST // atoms**2) if atoms <= USUAL_ATOMS else 0


def choose_details(
    structures: Sequence[Structure],
    found: Sequence[Sequence[AttentionRecord[np.ndarray]]],
    budget: int,
) -> list[Detail]:
    """Frames, evenly chosen, and pairs in them, at most `budget` in all."""
    per_frame = max(1, min(MOST_PAIRS, max(len(s) * (len(s) - 1) // 2 for s in structures)))
    count = min(len(structures), max(1, budget // per_frame), MOST_DETAILED)
    frames = np.unique(np.linspace(0, len(structures) - 1, count).round().astype(int))
    most = min(MOST_PAIRS, budget)
    return [_detail(int(f), structures[f], [symmetrised(r.matrix) for r in found[f]], most) for f in frames]


def _detail(frame: int, structure: Structure, matrices: list[np.ndarray], most: int) -> Detail:
    i, j = np.triu_indices(len(structure), 1)
    strongest = np.max([m / (m.max() or 1.0) for m in matrices], axis=0)
    bonded = bond_matrix(structure) | hydrogen_bonds(structure)
    order = np.argsort(-(strongest + 2.0 * bonded)[i, j], kind="stable")[:most]
    return Detail(frame, np.column_stack([i, j])[np.sort(order)], matrices)


def gather_effects(
    potential: AnyPotential,
    structures: Sequence[Structure],
    details: Sequence[Detail],
    factor: float,
    tell: Tell,
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """What each pair of the details changes when it is switched off alone: a description, and arrays."""
    note = ""
    if any(member.network.switch_layers == 0 for member in potential.members):
        note = "Pairs of this network cannot be switched off."
    elif any(s.periodic for s in structures):
        note = "Pairs can be switched off in molecules only."
    elif not any(len(d.pairs) for d in details):
        note = "No pairs were switched off when this page was made."
    counts = np.zeros(len(structures), dtype=np.int64)
    pairs, energy, forces, scales = [np.zeros((0, 2), dtype=np.int64)], [np.zeros(0)], [], []
    total, done = sum(len(d.pairs) for d in details), 0
    for detail in [] if note else details:
        structure, atoms = structures[detail.frame], len(structures[detail.frame])
        size = max(1, BATCH * 40**2 // max(40, atoms) ** 2)  # evaluated at once, as memory allows
        for start in range(0, len(detail.pairs), size):
            part = detail.pairs[start : start + size]
            off = np.zeros((len(part), atoms, atoms), dtype=bool)
            rows = np.arange(len(part))
            off[rows, part[:, 0], part[:, 1]] = off[rows, part[:, 1], part[:, 0]] = True
            found = switched(potential, structure, off)
            energy.append(factor * found.energy)
            for change in factor * found.forces:
                values, scale = quantised(change.ravel())
                forces.append(values)
                scales.append(scale)
            done += len(part)
            tell("switching pairs off", done, total)
        pairs.append(detail.pairs)
        counts[detail.frame] = len(detail.pairs)
    description = {
        "computed": not note,
        "note": note,
        "frames": [d.frame for d in details if counts[d.frame]],
    }
    return description, {
        "effectPairs": np.concatenate(pairs).astype(np.uint16),
        "effectOffsets": np.concatenate([[0], np.cumsum(counts)]).astype(np.uint32),
        "effectEnergy": np.concatenate(energy).astype(np.float32),
        "effectForces": np.concatenate(forces) if forces else np.zeros(0, dtype=np.int16),
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
