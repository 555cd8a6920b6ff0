"""Attention as a value: what networks return, and all that reads attention takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from torch import Tensor

Matrix = TypeVar("Matrix", Tensor, np.ndarray)


@dataclass(frozen=True)
class AttentionRecord(Generic[Matrix]):
    """Attention coefficients of one order, layer and head: (B, N, N), or (N, N) for one structure."""

    order: int
    layer: int
    head: int
    matrix: Matrix

    @property
    def label(self) -> str:
        """A short name for tables and figures, such as 'k=3 layer 1'."""
        head = f" head {self.head + 1}" if self.head else ""
        return f"k={self.order} layer {self.layer + 1}{head}"
