"""The paper's model: geometric attention (Frank & Chmiela 2021)."""

from typing import TYPE_CHECKING

from geomatt.lazy import lazy_names

if TYPE_CHECKING:
    from geomatt.model.geometric_attention.config import GeometricAttentionConfig
    from geomatt.model.geometric_attention.network import GeometricAttention, pair_distances

__all__, __getattr__, __dir__ = lazy_names(__name__)
