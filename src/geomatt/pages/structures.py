"""Structures as the viewer needs them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from geomatt.analysis.projection import flat_view
from geomatt.data.bonds import bond_matrix
from geomatt.data.structures import Structure
from geomatt.elements import COVALENT_RADII, SYMBOLS, formula, symbols

LABEL_KEYS = ("comment", "name", "label", "title", "config_type")  # of a structure's info


def structure_label(structure: Structure) -> str:
    """The name or comment a file gives to a structure, or its formula."""
    named = [text for key in LABEL_KEYS if isinstance(text := structure.info.get(key), str)]
    words = " ".join(key for key, value in structure.info.items() if value is True)  # a plain comment line
    return next((text.strip()[:80] for text in (*named, words) if text.strip()), formula(structure.numbers))


def element_table(structures: Iterable[Structure]) -> dict[str, Any]:
    """Symbols by atomic number and covalent radii by symbol, of the elements that occur."""
    present = sorted({int(z) for s in structures for z in s.numbers})
    return {
        "symbols": {z: SYMBOLS[z] for z in present},
        "radii": {
            SYMBOLS[z]: float(COVALENT_RADII[z - 1]) if z <= len(COVALENT_RADII) else 1.5 for z in present
        },
    }


def pair_lists(matrices: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Pairs i < j of symmetric matrices one after the other (P, 2), and where those of each begin."""
    lists = [np.argwhere(np.triu(matrix, 1)) for matrix in matrices]
    offsets = np.cumsum([0, *map(len, lists)])
    return np.concatenate(lists).astype(np.uint16).reshape(-1, 2), offsets.astype(np.uint32)


def good_view(structure: Structure) -> list[float]:
    """A rotation (3 × 3, row-major) that shows the atoms well apart."""
    centred = structure.positions - structure.positions.mean(0)
    view: list[float] = _rotation(centred.T @ flat_view(structure.positions)).ravel().tolist()
    return view


def common_turns(structures: Sequence[Structure]) -> np.ndarray:
    """Rotations (F, 9), row-major, after which frames of the same atoms lie on each other.

    Atoms weigh as their atomic numbers. Each molecule that differs from the first is turned to a view of its
    own; cells keep their orientation.
    """
    base = np.reshape(good_view(structures[0]), (3, 3))
    first: dict[bytes, tuple[Structure, np.ndarray]] = {}
    turns = []
    for number, structure in enumerate(structures):
        if structure.periodic:
            turns.append(np.eye(3))
            continue
        key = structure.numbers.tobytes()
        if key not in first:
            view = np.eye(3) if number == 0 else base.T @ np.reshape(good_view(structure), (3, 3))
            first[key] = structure, view
        other, view = first[key]
        turns.append(view @ _onto(structure, other))
    return np.reshape(turns, (-1, 9)).astype(np.float32)


def _onto(structure: Structure, other: Structure) -> np.ndarray:
    """The rotation that brings a structure closest to another of the same atoms."""
    weights = structure.numbers / structure.numbers.sum()
    here, there = (s.positions - weights @ s.positions for s in (structure, other))
    return _rotation((weights[:, None] * here).T @ there)


def _rotation(covariance: np.ndarray) -> np.ndarray:
    """The rotation that brings the first of two sets of points closest to the second (Kabsch)."""
    u, _, vt = np.linalg.svd(covariance)
    sign = np.diag([1.0, 1.0, np.sign(np.linalg.det(u @ vt)) or 1.0])
    rotation: np.ndarray = (u @ sign @ vt).T
    return rotation


def molecule_item(
    structure: Structure, title: str, note: str = "", arrows: np.ndarray | None = None
) -> dict[str, Any]:
    """An entry of a block of molecules."""
    return {
        "title": title,
        "note": note,
        "symbols": symbols(structure.numbers),
        "positions": structure.positions.round(4).ravel().tolist(),
        "bonds": np.argwhere(np.triu(bond_matrix(structure))).tolist(),
        "radii": element_table([structure])["radii"],
        "view": good_view(structure),
        "arrows": [] if arrows is None else arrows.ravel().tolist(),
    }
