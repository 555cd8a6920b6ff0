"""Hyper-parameters of pair states."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from geomatt.errors import GeomAttError
from geomatt.model.settings import DataSetting, NetworkConfig, Recipe, setting

NORMALISATIONS = ("atoms", "constant")
DECAY = 1.0  # Å, of x = exp(−d / DECAY)
NEAREST, FARTHEST = 1.0, math.exp(-10.0)  # x at d = 0 and at 10 Å: the range of the centres μ
RADIUS = 5.0  # Å, for periodic data
# An unsquared loss in units of the forces; without clipping wide networks diverge.
RECIPE = Recipe(
    {
        "epochs": 500,
        "batch": 10,
        "learning_rate": 2e-3,
        "schedule": "cosine",
        "warmup": 5,
        "final": 0.0,
        "ema_decay": 0.999,
        "clip": 1.0,
        "patience": 0,
        "validate_every": 5,
        "weighting": "unsquared",
        "rho": 0.01,
        "scale": "forces",
    },
    validation_share=20,
)


@dataclass(frozen=True)
class PairStatesConfig(NetworkConfig):
    """Hyper-parameters of a pair-states network."""

    recipes: ClassVar[Mapping[str, Recipe]] = {"pair": RECIPE}
    retired: ClassVar[Mapping[str, Any]] = {"symmetric": False}

    channels: int = setting(
        128, "numbers in the state of a pair (C); sizes S and M are 64 and 128", within=(1, 10_000)
    )
    rounds: int = setting(
        3,
        "rounds in which pairs learn from third atoms (T); with 128 channels and 5 rounds this is size L",
        within=(1, 100),
    )
    functions: int = setting(16, "basis functions of the distance (L)", within=(2, 1000))
    normalisation: str = setting(
        "atoms",
        "what divides sums over atoms: the square root of the number of atoms, or a constant; with a radius "
        "always a constant",
        choices=NORMALISATIONS,
    )
    typical_atoms: float = setting(
        20.0, "the number of atoms that a constant normalisation stands for", within=(1e-3, 1e9)
    )
    radius: float = setting(
        0.0,
        "distance in Å beyond which atoms do not interact, so that cells may be periodic; 0: all pairs do",
    )
    electrons: bool = setting(
        False, "total charge and number of unpaired electrons as inputs; on where the data has them"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.radius:
            if not 0.5 <= self.radius <= 100.0:
                raise GeomAttError(f"`radius` must be 0 or from 0.5 to 100 Å, not {self.radius:g}.")
            # A factor that depends on the number of atoms would let far atoms matter.
            object.__setattr__(self, "normalisation", "constant")

    @classmethod
    def for_data(
        cls, settings: Mapping[str, Any], *, periodic: bool, electrons: bool
    ) -> dict[str, DataSetting]:
        found = {}
        if periodic and not settings["radius"]:
            note = f"The data is periodic: interactions end at {RADIUS:g} Å (`radius`)."
            found["radius"] = DataSetting(RADIUS, note)
        if electrons and not settings["electrons"]:
            note = "The data has charges or unpaired electrons: they are inputs of the network (`electrons`)."
            found["electrons"] = DataSetting(True, note)
        return found

    @property
    def sharpness(self) -> float:
        """β of the basis functions: neighbours overlap at half their width."""
        return (2.0 * (NEAREST - FARTHEST) / self.functions) ** -2
