"""Watches the distances of one structure in dynamics: walls where the training data end, and one warning."""

from __future__ import annotations

import warnings

import numpy as np
from scipy.spatial.distance import pdist

from geomatt.data.batch import Batch
from geomatt.model.domain import MOST_WATCHED, WARNING, Domain, Limits, warning


def watched(atoms: int) -> bool:
    """False, with a warning, if a structure has more pairs of atoms than can be watched."""
    if atoms > MOST_WATCHED:
        warnings.warn(
            f"Of {atoms:,} atoms not all pairs are watched: there are no walls, no search for broken bonds, "
            f"and no warning if distances leave the training data. All that is for up to {MOST_WATCHED:,}.",
            stacklevel=3,
        )
    return atoms <= MOST_WATCHED


class RangeWatch:
    """Checks in every step if walls are needed; in numpy, since most steps need none."""

    def __init__(self, domain: Domain | None, walls: bool) -> None:
        self.domain, self.walls = domain, walls
        self.active = 0  # steps with an active wall
        self._limits: Limits | None = None
        self._range: tuple[np.ndarray, np.ndarray] | None = None  # of the pairs i < j, without a cell
        self._warned = False

    def start(self, batch: Batch) -> str:
        """Take the limits of a structure (1, N) from its present bonds; says what is not known of it."""
        self._limits = self._range = None
        if self.domain is None or not watched(batch.numbers.shape[1]):
            return ""
        self._limits = self.domain.limits(batch)
        if batch.cell is None:
            pairs = np.triu_indices(batch.numbers.shape[1], 1)
            lower, upper = (x[0].double().cpu().numpy() for x in (self._limits.lower, self._limits.upper))
            self._range = lower[pairs], upper[pairs]
        return self._limits.notes[0]

    def limits(self, batch: Batch, positions: np.ndarray) -> Limits | None:
        """The limits for walls if a pair of `positions` (N, 3) is outside its range, else None."""
        if self.domain is None or self._limits is None:
            return None
        if self._range is None:  # a periodic cell
            excess = float(self.domain.outside(batch, self._limits).excess[0])
        else:
            distance = pdist(positions)
            beyond = np.maximum(self._range[0] - distance, distance - self._range[1])
            excess = float(beyond.max(initial=-np.inf))
        if excess > WARNING and not self._warned:
            self._warned = True
            message = warning(batch.numbers, self.domain.outside(batch, self._limits))
            warnings.warn(message or "A pair is outside its range in the training data.", stacklevel=4)
        if not self.walls or excess <= self.domain.walls.margin:
            return None
        self.active += 1
        return self._limits
