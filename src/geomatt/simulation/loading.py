"""The model of a simulation: its own copy, in the precision and on the device of the simulation."""

from __future__ import annotations

import copy
import os

import torch

from geomatt.model import AnyPotential, check_device, load
from geomatt.model.precision import parse_dtype

# A model file, the folder of a run, a shipped model's name, a `Potential` or a `Committee`.
Model = str | os.PathLike[str] | AnyPotential


def load_model(
    model: Model, device: torch.device | str = "cpu", dtype: torch.dtype | str | None = None
) -> AnyPotential:
    """The potential of a simulation. A potential is copied: the caller's keeps its precision and device."""
    if isinstance(model, AnyPotential):
        return copy.deepcopy(model).to(check_device(device), parse_dtype(dtype))
    return load(model, device, dtype)
