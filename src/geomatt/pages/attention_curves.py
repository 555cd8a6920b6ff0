"""α of two atoms alone as a function of their distance, for coefficients of two bodies."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
import torch

from geomatt.data.batch import Batch
from geomatt.data.structures import Structure
from geomatt.elements import symbols
from geomatt.model import AnyPotential, AttentionRecord

DISTANCES = np.arange(0.5, 8.01, 0.05)  # Å
MOST_CURVES = 6  # pairs of elements
COLOURS = ("positive", "negative", "accent", "mark", "ink")


def distance_curves(
    potential: AnyPotential, records: Sequence[AttentionRecord[Any]], structures: Sequence[Structure]
) -> dict[str, Any]:
    """Curves of every record of order 2; one for all pairs of elements where they are the same."""
    two = [k for k, record in enumerate(records) if record.order == 2]
    if not two:
        return {"distance": [], "lines": []}
    present = sorted({int(z) for s in structures for z in s.numbers})
    pairs = list(combinations_with_replacement(present, 2))[:MOST_CURVES]
    found = np.array([_curves(potential, pair) for pair in pairs])  # (pairs, records, distances)
    lines = []
    for k in two:
        spread = np.ptp(found[:, k], axis=0).max()
        same = spread <= 1e-5 * (np.abs(found[:, k]).max() or 1.0)
        for number, pair in enumerate(pairs[:1] if same else pairs):
            label = "all elements" if same else "–".join(symbols(pair))
            alpha = [float(f"{value:.5g}") for value in found[number, k]]
            colour = COLOURS[number % len(COLOURS)]
            lines.append({"record": k, "label": label, "alpha": alpha, "colour": colour})
    return {"distance": DISTANCES.round(3).tolist(), "lines": lines}


def _curves(potential: AnyPotential, pair: tuple[int, int]) -> np.ndarray:
    """α_01 of every record (records, distances), the mean of the members."""
    dtype, device = potential.dtype, potential.device
    positions = torch.zeros(len(DISTANCES), 2, 3, dtype=dtype, device=device)
    positions[:, 1, 0] = torch.from_numpy(DISTANCES)
    numbers = torch.tensor(pair, device=device).expand(len(DISTANCES), 2)
    with torch.no_grad():
        members = [
            torch.stack([r.matrix[:, 0, 1] for r in member.network.attention(Batch(numbers, positions))])
            for member in potential.members
        ]
    return torch.stack(members).mean(0).double().cpu().numpy()
