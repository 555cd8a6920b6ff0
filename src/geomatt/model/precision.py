"""Precisions by name."""

from __future__ import annotations

import torch

from geomatt.errors import GeomAttError

DTYPES = {"float32": torch.float32, "float64": torch.float64}


def parse_dtype(dtype: torch.dtype | str | None) -> torch.dtype | None:
    """A precision by name or as torch names it."""
    if dtype is None or dtype in DTYPES.values():
        return dtype  # type: ignore[return-value]
    if str(dtype) not in DTYPES:
        raise GeomAttError(f"Unknown precision {dtype!r}. Use float32 or float64.")
    return DTYPES[str(dtype)]
