"""Warnings about transfers: pairs of atoms the base model was not trained on, and errors like zero forces."""

from __future__ import annotations

import numpy as np

from geomatt.data.bonds import bond_matrix
from geomatt.data.dataset import Dataset
from geomatt.model import Potential
from geomatt.model.domain.ranges import PairKey, describe, pairs_of

CLEARLY_BETTER = 0.5  # of the error of zero forces that a useful model has at most
FRAMES = 50  # of the new data that are looked at
NAMED = 4  # pairs named in a message
ADVICE = (
    "A transfer pays for molecules much like those of the base; else train from scratch, or `unfreeze` all."
)


def never_seen(base: Potential, data: Dataset) -> str | None:
    """Which pairs of atoms the new data has and the base never saw, in words; None if it saw all."""
    if base.domain is None:
        return None
    found: set[PairKey] = set()
    for index in np.unique(np.linspace(0, len(data) - 1, FRAMES).astype(int)):
        structure = data[int(index)]
        if structure.periodic:
            return None
        found |= pairs_of(structure.numbers, bond_matrix(structure))
    # Bonds and angles first; beyond three bonds a pair says little.
    unseen = sorted(
        (k for k in found - base.domain.ranges.known_pairs() if 1 <= k[2] <= 3), key=lambda k: k[::-1]
    )
    if not unseen:
        return None
    more = f" and {len(unseen) - NAMED} more kinds" if len(unseen) > NAMED else ""
    return f"The base never saw {', '.join(map(describe, unseen[:NAMED]))}{more}. {ADVICE}"


def hardly_better(force_mae: float, data: Dataset) -> str | None:
    """A warning if a force error (eV/Å) is not clearly below that of zero forces; else None."""
    if data.forces is None or not np.isfinite(data.forces).any():
        return None
    zero = float(np.nanmean(np.abs(data.forces)))
    if force_mae < CLEARLY_BETTER * zero:
        return None
    return (
        f"The transferred model is not clearly better than no forces at all: its force MAE on the validation "
        f"set is {force_mae:.3g} eV/Å, that of zero forces {zero:.3g} eV/Å. Do not use it. {ADVICE}"
    )
