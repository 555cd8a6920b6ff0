"""Hyper-parameters of SchNet."""

from __future__ import annotations

import math
from dataclasses import dataclass

from geomatt.errors import GeomAttError
from geomatt.model.settings import NetworkConfig, setting


@dataclass(frozen=True)
class SchNetConfig(NetworkConfig):
    """Hyper-parameters of a SchNet."""

    features: int = setting(128, "width of an atom's feature vector")
    filters: int = setting(128, "width of the continuous-filter convolutions")
    interactions: int = setting(3, "number of interaction blocks")
    gaussians: int = setting(50, "basis functions of the distance")
    cutoff: float = setting(5.0, "distance at which interactions end, Å")

    def __post_init__(self) -> None:
        super().__post_init__()
        if min(self.features, self.filters, self.interactions, self.gaussians) < 1:
            raise GeomAttError("`features`, `filters`, `interactions` and `gaussians` must be at least 1.")
        if not 0 < self.cutoff < math.inf:
            raise GeomAttError(f"`cutoff` must be a positive distance, not {self.cutoff}.")
