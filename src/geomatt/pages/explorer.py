"""The attention explorer: numbers of a model and its structures, gathered into one page."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from geomatt.analysis.coefficients import Model
from geomatt.analysis.controls import UNTRAINED
from geomatt.data.bonds import bond_matrix, hydrogen_bonds
from geomatt.data.structures import Structure
from geomatt.elements import formula, symbols
from geomatt.errors import GeomAttError
from geomatt.model import AnyPotential, AttentionRecord, Potential, load
from geomatt.model.output import Prediction
from geomatt.model.potential import several
from geomatt.pages.attention_curves import distance_curves
from geomatt.pages.attention_scores import score_table
from geomatt.pages.effects import choose_details, gather_effects, gather_paths, usual_budget
from geomatt.pages.page import Block, Page, evenly, notes, quantised
from geomatt.pages.pair_sets import Pairs, own_sets
from geomatt.pages.structures import common_turns, element_table, good_view, pair_lists, structure_label
from geomatt.units import from_ev

FRAMES = 100  # shown at most, evenly chosen
MOST_BYTES = 13_000_000  # of attention in a page

Progress = Callable[[str, int, int], None]  # what is done, how much of how much


def explain(
    model: Model,
    atoms: Any,
    *,
    name: str = "",
    frames: int = FRAMES,
    effects: int | None = None,
    off: Sequence[Pairs] = (),
    untrained: int | None = None,
    unit: str | None = None,
    progress: Progress | None = None,
) -> Page:
    """A page that shows the attention of a model in structures: display it in a notebook, or `save` it.

    `model` is a potential, a committee, or the path or name of one; `atoms` are ASE Atoms, a `Structure`, or
    several of them. At most `frames` structures are shown, evenly chosen, and fewer where the page would
    become too large. `effects` is how many pairs are switched off in all (see `geomatt.intervene`), by
    default as many as take about a minute; `off` are sets of pairs to switch off together, such as
    [[(0, 1), (2, 5)]], besides bonds, pairs beyond a distance and those of an atom; `untrained` is how many
    networks with random weights serve as control. Energies are in `unit`, by default that of the
    training data.
    """
    potential = model if isinstance(model, AnyPotential) else load(model)
    block, arrays = explorer_block(
        potential,
        several(atoms),
        name=name,
        frames=frames,
        effects=effects,
        off=off,
        untrained=untrained,
        unit=unit,
        progress=progress,
    )
    title = f"Attention: {name or block['frames'][0]['label']}"
    return Page(title, describe(potential), [*notes(block.pop("notes")), block], arrays)


def explorer_block(
    potential: AnyPotential,
    structures: Sequence[Structure],
    *,
    name: str = "",
    frames: int = FRAMES,
    effects: int | None = None,
    off: Sequence[Pairs] = (),
    untrained: int | None = None,
    unit: str | None = None,
    progress: Progress | None = None,
) -> tuple[Block, dict[str, np.ndarray]]:
    """The explorer as a block of a page, and its arrays."""
    tell = progress or (lambda what, done, total: None)
    if not structures:
        raise GeomAttError("There is no structure to explain.")
    if frames < 1 or min(untrained or 0, effects or 0) < 0:
        raise GeomAttError("`frames` must be at least 1, `effects` and `untrained` must not be negative.")
    members = _views(potential)
    records = _records(potential, structures[0])
    if not records:
        kind = potential.members[0].network.kind
        raise GeomAttError(f"The network {kind!r} has no attention, so there is nothing to explain.")
    shown, remarks = _choose(structures, frames, len(records) * len(members))
    chosen = [structures[k] for k in shown]
    for structure in chosen:
        own_sets(off, structure)  # a mistake is told before anything is computed
    remarks += sorted({*potential.extrapolations(chosen), *(d for s in chosen for d in potential.doubts(s))})
    unit = unit or potential.record.get("report_unit") or "eV"
    factor = from_ev(unit)
    found = [_predict(member, chosen, tell) for _, member in members]
    arrays = _attention_arrays(found, len(records))
    arrays["numbers"] = np.concatenate([s.numbers for s in chosen]).astype(np.uint8)
    arrays["positions"] = np.concatenate([s.positions for s in chosen]).astype(np.float32)
    arrays["turns"] = common_turns(chosen)
    arrays["atomic"] = _network_energies(potential, chosen, found[0], factor)
    arrays["bonds"], arrays["bondOffsets"] = pair_lists([bond_matrix(s) for s in chosen])
    arrays["hydrogenBonds"], arrays["hydrogenOffsets"] = pair_lists([hydrogen_bonds(s) for s in chosen])
    budget = usual_budget(chosen) if effects is None else effects
    controls = (UNTRAINED if budget else 0) if untrained is None else untrained
    details = choose_details(chosen, [p.attention or [] for p in found[0]], budget, off)
    described, effect_arrays = gather_effects(potential, chosen, details, factor, tell)
    paths, path_arrays = gather_paths(potential.members[0], chosen, records, details)
    block: Block = {
        "kind": "explorer",
        "name": name or formula(chosen[0].numbers),
        "unit": unit,
        "frames": [
            _frame(s, number, factor * p.energy) for s, p, number in zip(chosen, found[0], shown, strict=True)
        ],
        "records": [_record(r) for r in records],
        "members": [label for label, _ in members],
        "view": good_view(chosen[0]),
        "curves": distance_curves(potential, records, chosen),
        "scores": score_table(potential, chosen, [p.attention or [] for p in found[0]], controls, tell),
        "effects": described,
        "paths": paths,
        "notes": remarks,
        **element_table(chosen),
    }
    return block, {**arrays, **effect_arrays, **path_arrays}


def describe(potential: AnyPotential) -> str:
    """The model in a line."""
    record, first = potential.record, potential.members[0]
    weights = sum(p.numel() for p in first.network.parameters())
    parts = [f"{first.network.kind}, {weights:,} weights, elements {' '.join(symbols(potential.elements))}"]
    if len(potential.members) > 1:
        parts.append(f"committee of {len(potential.members)}")
    if data := record.get("data", {}).get("name"):
        parts.append(f"trained on {data}")
    return "; ".join(parts)


def _views(potential: AnyPotential) -> list[tuple[str, AnyPotential]]:
    """The choices for the member: the model itself, and the members of a committee."""
    if len(potential.members) == 1:
        return [("model", potential)]
    own = [(f"member {k + 1}", member) for k, member in enumerate(potential.members)]
    return [("mean of the members", potential), *own]


def has_attention(potential: AnyPotential, structure: Structure) -> bool:
    """True if the model has attention in structures like this one."""
    return bool(_records(potential, structure))


def _records(potential: AnyPotential, structure: Structure) -> list[AttentionRecord[Any]]:
    """The records a model has, without matrices; a few atoms are enough to tell."""
    part = Structure(structure.numbers[:2], structure.positions[:2], cell=structure.cell, pbc=structure.pbc)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        (prediction,) = potential.predict([part], forces=False, attention=True, check_domain=False)
    return [record.with_matrix(None) for record in prediction.attention or []]


def _choose(structures: Sequence[Structure], frames: int, matrices: int) -> tuple[list[int], list[str]]:
    """Which structures to show, evenly chosen, and what to say about those left out."""
    largest = max(len(s) for s in structures)
    fitting = max(1, MOST_BYTES // (matrices * largest**2 * 2 * 4 // 3))
    count = min(len(structures), frames, fitting)
    shown = evenly(len(structures), count).tolist()
    if count == len(structures):
        return shown, []
    why = "" if count == frames else ", so that the page stays small"
    return shown, [f"{count} of {len(structures)} structures are shown, evenly chosen{why}."]


def _predict(potential: AnyPotential, structures: Sequence[Structure], tell: Progress) -> list[Prediction]:
    done: list[Prediction] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the page says it
        for structure in structures:
            done += potential.predict([structure], forces=False, attention=True, check_domain=False)
            tell("attention", len(done), len(structures))
    return done


def _attention_arrays(found: Sequence[Sequence[Prediction]], records: int) -> dict[str, np.ndarray]:
    """Matrices of each member and record over all frames, and their scales (members, records, frames)."""
    arrays: dict[str, np.ndarray] = {}
    scales = np.zeros((len(found), records, len(found[0])), dtype=np.float32)
    for member, predictions in enumerate(found):
        for record in range(records):
            parts = []
            for frame, prediction in enumerate(predictions):
                assert prediction.attention is not None
                values, scales[member, record, frame] = quantised(prediction.attention[record].matrix)
                parts.append(values.ravel())
            arrays[f"attention-{member}-{record}"] = np.concatenate(parts)
    return {**arrays, "scales": scales.ravel()}


def _network_energies(
    potential: AnyPotential, structures: Sequence[Structure], found: Sequence[Prediction], factor: float
) -> np.ndarray:
    """Atomic energies without the constant energies of the atoms, all frames one after the other."""

    def offset(member: Potential, structure: Structure) -> np.ndarray:
        numbers = torch.tensor(structure.numbers)[None]  # a copy: arrays on disk cannot be written to
        return member.normalisation.offset(numbers)[0].numpy()

    parts = [
        p.atomic_energies - np.mean([offset(member, s) for member in potential.members], axis=0)
        for s, p in zip(structures, found, strict=True)
    ]
    return (factor * np.concatenate(parts)).astype(np.float32)


def _frame(structure: Structure, number: int, energy: float) -> dict[str, Any]:
    label = structure_label(structure)
    frame: dict[str, Any] = {"atoms": len(structure), "label": label, "number": number, "energy": energy}
    if structure.periodic and structure.cell is not None:
        frame |= {"cell": np.asarray(structure.cell).ravel().tolist(), "pbc": list(structure.pbc)}
    return frame


def _record(record: AttentionRecord[Any]) -> dict[str, Any]:
    head = f", head {record.head + 1}" if record.head else ""
    return {
        "label": record.label,
        "order": record.order,
        "layer": record.layer,
        "head": record.head,
        "stream": f"order {record.order}{head}",
        "layerLabel": record.name or f"layer {record.layer + 1}",
    }
