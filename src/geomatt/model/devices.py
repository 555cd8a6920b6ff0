"""Where to compute: a CPU or an NVIDIA GPU. No torch until a device is looked for."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from geomatt.errors import GeomAttError

if TYPE_CHECKING:
    import torch


def check_device_name(device: Any) -> str:
    """The name of a device that geomatt can compute on, whether or not this machine has it."""
    name = str(device)
    if not re.fullmatch(r"cpu(:0)?|cuda(:\d{1,3})?", name):
        why = " (Apple GPUs have no float64, which total energies need)" if name.startswith("mps") else ""
        raise GeomAttError(f"geomatt does not compute on `device` {name!r}{why}. Use cpu or cuda.")
    return name


def check_device(device: torch.device | str) -> torch.device:
    """A device that is there, or an error that says so."""
    import torch

    found = torch.device(check_device_name(device))
    if found.type == "cuda" and not torch.cuda.is_available():
        raise GeomAttError("No CUDA device is available here. Use `device` cpu.")
    if found.type == "cuda" and (found.index or 0) >= torch.cuda.device_count():
        raise GeomAttError(f"There is no device {device}; the last is cuda:{torch.cuda.device_count() - 1}.")
    return found
