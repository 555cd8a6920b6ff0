"""Hyper-parameters of SchNet."""

from __future__ import annotations

from dataclasses import dataclass

from geomatt.model.settings import NetworkConfig, setting


@dataclass(frozen=True)
class SchNetConfig(NetworkConfig):
    """Hyper-parameters of a SchNet."""

    features: int = setting(128, "width of an atom's feature vector", within=(1, 10_000))
    filters: int = setting(128, "width of the continuous-filter convolutions", within=(1, 10_000))
    interactions: int = setting(3, "number of interaction blocks", within=(1, 100))
    gaussians: int = setting(50, "basis functions of the distance", within=(1, 10_000))
    cutoff: float = setting(5.0, "distance at which interactions end, Å", within=(1e-3, 1e3))
