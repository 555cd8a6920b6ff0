"""Error bars from the spread of a committee, or from the estimated error of a single model.

They are calibrated on validation data by conformal prediction. The score of a prediction is its error divided
by its spread. An error bar at level p is the spread times the p-quantile of the scores of validation data:
for new data of the same kind, a share p of errors is below it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from geomatt.errors import GeomAttError
from geomatt.files import atomic_write

if TYPE_CHECKING:
    from geomatt.model.potential import Potential

FILE = "calibration.json"
LEVELS = tuple(round(0.05 * i, 2) for i in range(1, 20))  # 0.05 to 0.95
_FLOOR = 0.1  # of the median spread: members may agree by chance


@dataclass(frozen=True)
class Scale:
    """Factors between spread and error bar of one quantity, one for each of LEVELS."""

    factors: tuple[float, ...]
    floor: float  # added to the spread

    @classmethod
    def fit(cls, error: np.ndarray, spread: np.ndarray) -> Scale:
        """From absolute errors (n,) and spreads (n,) of data the members were not fitted to."""
        floor = _FLOOR * float(np.median(spread)) or float(np.abs(error).mean()) or 1.0
        scores = np.sort(np.abs(error) / (spread + floor))
        # The (n + 1)-th observation is the new one; with few data the largest score is used.
        ranks = [min(len(scores), math.ceil((len(scores) + 1) * level)) for level in LEVELS]
        return cls(tuple(float(scores[rank - 1]) for rank in ranks), floor)

    def bar(self, spread: np.ndarray, level: float) -> np.ndarray:
        """The error bar of predictions with these spreads."""
        if not LEVELS[0] <= level <= LEVELS[-1]:
            raise GeomAttError(f"The level must be from {LEVELS[0]} to {LEVELS[-1]}, not {level}.")
        return (np.asarray(spread) + self.floor) * float(np.interp(level, LEVELS, self.factors))


@dataclass(frozen=True)
class Calibration:
    """Calibrated error bars: of energies, and of the length of the error of a force."""

    energy: Scale
    forces: Scale | None
    frames: int  # validation frames it was fitted on
    members: list[Any]  # what identifies the members it belongs to

    def write(self, folder: Path) -> None:
        atomic_write(folder / FILE, (json.dumps(asdict(self), indent=2) + "\n").encode())

    @classmethod
    def from_dict(cls, stored: dict[str, Any]) -> Calibration:
        """From what `dataclasses.asdict` gives."""
        energy, forces = (
            s and Scale(tuple(s["factors"]), s["floor"]) for s in (stored["energy"], stored["forces"])
        )
        if any(len(s.factors) != len(LEVELS) for s in (energy, forces) if s):
            raise ValueError("another number of levels")
        return cls(energy, forces, stored["frames"], stored["members"])

    @classmethod
    def read(cls, folder: Path, members: Sequence[Potential]) -> Calibration | None:
        """The calibration in a run's folder; None if there is none, or it belongs to other members."""
        path = folder / FILE
        if not path.is_file():
            return None
        try:
            found = cls.from_dict(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise GeomAttError(
                f"{path} is damaged ({error}). Remove it; `resume` the run to calibrate again."
            ) from None
        return found if found.members == identity(members) else None


def identity(members: Sequence[Potential]) -> list[Any]:
    """Seed, best epoch and data of each member, by which a calibration is known to be theirs."""
    records = [member.record for member in members]
    return [[r.get("seed"), r.get("best_epoch"), r.get("data", {}).get("fingerprint")] for r in records]


def force_errors(predicted: np.ndarray, true: np.ndarray) -> np.ndarray:
    """Length of the error of each atom's force (atoms,), eV/Å."""
    lengths: np.ndarray = np.linalg.norm(predicted - true, axis=-1)
    return lengths
