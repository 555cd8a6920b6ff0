"""Hyper-parameters of the geometric-attention network, with the paper's values as defaults."""

from __future__ import annotations

from dataclasses import dataclass

from geomatt.errors import GeomAttError
from geomatt.model.settings import NetworkConfig, setting

MOST_FUNCTIONS = 10_000
HIGHEST_ORDER = 100  # far above any that leaves overlap functions


@dataclass(frozen=True)
class GeometricAttentionConfig(NetworkConfig):
    """Hyper-parameters of a geometric-attention network."""

    orders: tuple[int, ...] = setting((2, 3, 4), "attention orders k, one stream each")
    layers: int = setting(3, "N_L, interactions in a stream", within=(1, 100))
    features: int = setting(128, "F_v, width of an atom's feature vector", within=(1, 10_000))
    overlap_features: int = setting(
        128, "F_I, overlap functions at k = 2; halves with every further order", within=(1, 10_000)
    )
    gamma: float = setting(20.0, "γ, sharpness of the basis functions, 1/Å²", within=(1e-3, 1e6))
    d_max: float = setting(5.0, "end of the grid of distances, Å; not a cutoff", within=(1e-3, 1e3))
    spacing: float = setting(0.05, "Δd, spacing of that grid, Å", within=(1e-3, 1e3))
    bias: bool = setting(True, "biases q and k of the overlap functions; without them cells may be periodic")

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "orders", tuple(int(k) for k in self.orders))
        if not self.orders or min(self.orders) < 2 or max(self.orders) > HIGHEST_ORDER:
            given = ", ".join(f"{k:.3g}" if k > 10**6 else str(k) for k in self.orders if k < 10**300)
            raise GeomAttError(f"Attention `orders` must be 2 to {HIGHEST_ORDER}, not {given}.")
        if self.width(max(self.orders)) < 1:
            raise GeomAttError(
                f"Order {max(self.orders)} leaves no overlap functions: F_I = {self.overlap_features} "
                "halves with every order above 2. Raise `overlap_features`."
            )
        if self.spacing > self.d_max or not 1 <= self.basis_size <= MOST_FUNCTIONS:
            raise GeomAttError(
                f"`d_max` {self.d_max:g} Å with `spacing` {self.spacing:g} Å needs {self.basis_size:,} basis "
                f"functions; choose them so that there are 1 to {MOST_FUNCTIONS:,}."
            )

    def width(self, order: int) -> int:
        """F_I of an attention of the given order."""
        return self.overlap_features // 2 ** (order - 2)

    @property
    def basis_size(self) -> int:
        """L, the number of basis functions."""
        return round(self.d_max / self.spacing)
