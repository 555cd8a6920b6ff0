"""Attention matrices as npz and JSON files."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from geomatt.data.bonds import bond_matrix, distances
from geomatt.data.structures import Structure
from geomatt.elements import symbols
from geomatt.files import atomic_output
from geomatt.model.interface import AttentionRecord

Records = Sequence[AttentionRecord[np.ndarray]]


def write_npz(records: Records, structure: Structure, path: str | os.PathLike[str]) -> Path:
    """`alpha` (records, N, N) with `order`, `layer`, `head` of each; also the structure and its bonds."""
    arrays: dict[str, Any] = {
        "alpha": np.stack([r.matrix for r in records]),
        "order": np.array([r.order for r in records]),
        "layer": np.array([r.layer for r in records]),
        "head": np.array([r.head for r in records]),
        "numbers": structure.numbers,
        "positions": structure.positions,
        "distances": distances(structure),
        "bonds": bond_matrix(structure),
    }
    if records and records[0].images is not None:  # a row for each image of a neighbour
        for name in ("i", "j", "shift"):
            arrays[f"image_{name}"] = getattr(records[0].images, name)
        arrays["image_alpha"] = np.stack([r.images.value for r in records])
    target = Path(path)
    with atomic_output(target) as temporary, open(temporary, "wb") as stream:
        np.savez_compressed(stream, **arrays)
    return target


def write_json(records: Records, structure: Structure, path: str | os.PathLike[str]) -> Path:
    """The same as JSON, one entry per record."""
    content = {
        "elements": symbols(structure.numbers),
        "positions": structure.positions.tolist(),
        "bonds": np.argwhere(np.triu(bond_matrix(structure))).tolist(),
        "attention": [
            {"order": r.order, "layer": r.layer, "head": r.head, "matrix": r.matrix.tolist()} for r in records
        ],
    }
    target = Path(path)
    with atomic_output(target) as temporary:
        temporary.write_text(json.dumps(content), encoding="utf-8")
    return target
