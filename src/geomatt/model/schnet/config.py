"""Hyper-parameters of SchNet."""

from __future__ import annotations

from dataclasses import dataclass

from geomatt.model.settings import NetworkConfig, require_range, setting


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
        require_range(self, 1, 100, "interactions")
        require_range(self, 1, 10_000, "features", "filters", "gaussians")
        require_range(self, 1e-3, 1e3, "cutoff")
