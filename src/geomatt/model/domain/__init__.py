"""Where a model has seen data: ranges of distances, walls at their ends, and a check for leaving them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from geomatt.data.batch import Batch
from geomatt.data.dataset import Dataset
from geomatt.elements import SYMBOLS
from geomatt.errors import GeomAttError
from geomatt.model.domain.limits import Limits, Outside, limits_of, outside
from geomatt.model.domain.measure import measure
from geomatt.model.domain.ranges import Bonds, ElementRanges, MoleculeRanges, PairLimits, Ranges
from geomatt.model.domain.walls import WallResult, Walls

__all__ = [
    "Bonds",
    "Domain",
    "ElementRanges",
    "Limits",
    "MoleculeRanges",
    "Outside",
    "PairLimits",
    "Ranges",
    "WallResult",
    "Walls",
    "measure",
]

WARNING = 0.15  # Å outside its range at which a pair is worth a warning
MOST_WATCHED = 3000  # atoms of a structure up to which all its pairs are compared with their ranges


@dataclass(frozen=True)
class Domain:
    """The ranges of the training frames and the walls at their ends, as a model carries them."""

    ranges: Ranges
    walls: Walls = field(default_factory=Walls)

    @classmethod
    def measure(cls, data: Dataset) -> Domain:
        """From the training frames."""
        return cls(measure(data))

    def limits(self, batch: Batch) -> Limits:
        """Limits of the structures of a batch; get them once, from the first positions of a simulation."""
        return limits_of(self.ranges, batch, self.walls.pairs)

    def outside(self, batch: Batch, limits: Limits | None = None) -> Outside:
        """The largest excess of each structure and the pair that has it."""
        return outside(batch.positions, limits or self.limits(batch), batch.cell)

    def to_dict(self) -> dict[str, Any]:
        return {"ranges": self.ranges.to_dict(), "walls": self.walls.to_dict()}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Domain:
        try:
            return cls(Ranges.from_dict(values["ranges"]), Walls(**values["walls"]))
        except (KeyError, TypeError) as error:
            raise GeomAttError(
                f"The domain of the model cannot be read ({type(error).__name__}: {error}). "
                "Use a fresh copy of the file."
            ) from error


def warning(numbers: Tensor, found: Outside) -> str | None:
    """Warning about the pair of structures (B, N) furthest outside its range; None if all are near or inside.

    Reads the device.
    """
    excess = found.excess.cpu()
    if not bool((excess > WARNING).any()):
        return None
    b = int(excess.argmax())
    i, j = (int(a) for a in found.pair[b])
    names = [f"{SYMBOLS[int(numbers[b, a])]}{a}" for a in (i, j)]
    return (
        f"The distance between {names[0]} and {names[1]} is {float(excess[b]):.2f} Å outside its range in "
        "the training data: energies and forces are an extrapolation. Keep walls on in dynamics, or train on "
        "frames like this one."
    )
