"""How much memory a network needs, found out before it is allocated."""

from __future__ import annotations

import os
from pathlib import Path

import torch

from geomatt.errors import GeomAttError
from geomatt.model.interface import Network
from geomatt.model.settings import NetworkConfig

COPIES = 4  # weights, gradient and two moments of the optimiser
_SMALL = 1e9  # bytes; for less the free memory is not looked up


def weight_bytes(network: type[Network], config: NetworkConfig, dtype: torch.dtype) -> int:
    """Bytes of all weights, which are not allocated; 0 for a network that cannot be made without."""
    try:
        with torch.random.fork_rng(devices=[]), torch.device("meta"):
            weights = list(network(config, dtype).parameters())
    except (RuntimeError, TypeError, NotImplementedError):  # its constructor reads values
        return 0
    return sum(w.numel() * w.element_size() for w in weights)


def require_memory(network: type[Network], config: NetworkConfig, dtype: torch.dtype) -> None:
    """Raise an error if a network cannot be trained in the memory there is."""
    needed = COPIES * weight_bytes(network, config, dtype)
    if needed > _SMALL and needed > (there := available_memory()):
        raise GeomAttError(
            f"A network with these settings needs {needed / 1e9:,.0f} GB for its weights and their training; "
            f"{there / 1e9:,.0f} GB of memory are free. Choose a smaller network."
        )


def free_memory(device: torch.device) -> int:
    """Bytes that torch can still use on a device."""
    if device.type != "cuda":
        return available_memory()
    kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return int(torch.cuda.mem_get_info(device)[0]) + kept


def available_memory() -> int:
    """Bytes of memory that are free, or all there are where the system does not tell."""
    try:
        for line in Path("/proc/meminfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("MemAvailable:"):
                return 1024 * int(line.split()[1])
    except OSError:
        pass
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # Windows
        return 2**63
