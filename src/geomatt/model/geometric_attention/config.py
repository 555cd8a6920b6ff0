"""Hyper-parameters of the network, with the paper's values as defaults."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from geomatt.errors import GeomAttError


@dataclass(frozen=True)
class ModelConfig:
    """What defines a geometric-attention network; weights excluded."""

    elements: tuple[int, ...]  # atomic numbers the network has embeddings for
    orders: tuple[int, ...] = (2, 3, 4)  # k of each stream; N_S = len(orders)
    layers: int = 3  # N_L, interactions per stream
    features: int = 128  # F_v, width of an atom's feature vector
    overlap_features: int = 128  # F_I at k = 2; halves with every further order
    gamma: float = 20.0  # γ, 1/Å²
    d_max: float = 5.0  # Å, end of the grid of distances; not a cutoff
    spacing: float = 0.05  # Δd, Å
    bias: bool = True  # q and k of the overlap functions; without them the energy is size-extensive

    def __post_init__(self) -> None:
        object.__setattr__(self, "elements", tuple(sorted({int(z) for z in self.elements})))
        object.__setattr__(self, "orders", tuple(int(k) for k in self.orders))
        if not self.elements or not all(0 < z < 119 for z in self.elements):
            raise GeomAttError(f"Elements must be atomic numbers between 1 and 118, not {self.elements}.")
        if not self.orders or min(self.orders) < 2:
            raise GeomAttError(f"Attention orders must be 2 or more, not {self.orders}.")
        if min(self.layers, self.features, self.overlap_features) < 1:
            raise GeomAttError("Layers, features and overlap features must be at least 1.")
        if self.width(max(self.orders)) < 1:
            raise GeomAttError(
                f"Order {max(self.orders)} leaves no overlap features: F_I = {self.overlap_features} "
                "halves with every order above 2. Raise overlap_features."
            )
        if min(self.gamma, self.d_max, self.spacing) <= 0 or self.spacing > self.d_max:
            raise GeomAttError("gamma, d_max and spacing must be positive, with spacing below d_max.")

    def width(self, order: int) -> int:
        """F_I of an attention of the given order."""
        return self.overlap_features // 2 ** (order - 2)

    @property
    def basis_size(self) -> int:
        """L, the number of basis functions."""
        return round(self.d_max / self.spacing)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)
