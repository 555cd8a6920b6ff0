"""The model of a simulation: its own copy, in the precision and on the device of the simulation."""

from __future__ import annotations

import copy
import os
import warnings

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
        found = copy.deepcopy(model).to(check_device(device), parse_dtype(dtype))
    else:
        found = load(model, device, dtype)
    warn_if_unstable(found)
    return found


def warn_if_unstable(model: AnyPotential) -> None:
    """Warn about a model that fell apart when it was tried in long dynamics (`record["stability"]`)."""
    for member in model.members:
        tried = member.record.get("stability", {})
        runs = tried.get("walls") or tried.get("free")
        if runs and runs["intact"] < runs["runs"]:
            failed, walls = runs["runs"] - runs["intact"], "with" if tried.get("walls") else "without"
            warnings.warn(
                f"This model did not stay intact in long dynamics: {failed} of {runs['runs']} runs of "
                f"{runs['ps']:g} ps at 500 K, {walls} walls, broke a bond, the first after "
                f"{min(runs['failed_at_ps']):.1f} ps.",
                stacklevel=3,
            )
            return
