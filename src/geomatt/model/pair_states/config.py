"""Hyper-parameters of the network."""

from __future__ import annotations

import math
from dataclasses import dataclass

from geomatt.errors import GeomAttError
from geomatt.model.settings import NetworkConfig, require_range, setting

NORMALISATIONS = ("atoms", "constant")
DECAY = 1.0  # Å, of x = exp(−d / DECAY)
NEAREST, FARTHEST = 1.0, math.exp(-10.0)  # x at d = 0 and at 10 Å: the range of the centres μ


@dataclass(frozen=True)
class PairStatesConfig(NetworkConfig):
    """What defines a pair-states network; weights excluded."""

    channels: int = setting(128, "numbers in the state of a pair (C); sizes S and M are 64 and 128")
    rounds: int = setting(
        3, "rounds in which pairs learn from third atoms (T); with 128 channels and 5 rounds this is size L"
    )
    functions: int = setting(16, "basis functions of the distance (L)")
    normalisation: str = setting(
        "atoms",
        "what divides sums over atoms: the square root of the number of atoms, or a constant; with a radius "
        "always a constant",
        choices=NORMALISATIONS,
    )
    typical_atoms: float = setting(20.0, "the number of atoms that a constant normalisation stands for")
    radius: float = setting(
        0.0,
        "distance in Å beyond which atoms do not interact, so that cells may be periodic; 0: all pairs do",
    )
    electrons: bool = setting(
        False, "total charge and number of unpaired electrons as inputs; on where the data has them"
    )
    symmetric: bool = setting(False, "states of (i, j) and (j, i) are the same")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_range(self, 1, 10_000, "channels")
        require_range(self, 1, 100, "rounds")
        require_range(self, 2, 1000, "functions")
        if self.normalisation not in NORMALISATIONS:
            raise GeomAttError(
                f"Unknown `normalisation` {self.normalisation!r}. Use one of: {', '.join(NORMALISATIONS)}."
            )
        require_range(self, 1e-3, 1e9, "typical_atoms")
        if self.radius:
            require_range(self, 0.5, 100.0, "radius")
            # A factor that depends on the number of atoms would let far atoms matter.
            object.__setattr__(self, "normalisation", "constant")

    @property
    def sharpness(self) -> float:
        """β of the basis functions: neighbours overlap at half their width."""
        return (2.0 * (NEAREST - FARTHEST) / self.functions) ** -2
