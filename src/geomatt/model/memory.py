"""How much memory a network needs, found out before it is allocated."""

from __future__ import annotations

import math
import os
import re
import traceback
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from geomatt.data.batch import Batch
from geomatt.errors import GeomAttError
from geomatt.model.interface import Network
from geomatt.model.settings import NetworkConfig

COPIES = 4  # weights, gradient and two moments of the optimiser
_SMALL = 1e9  # bytes; for less the free memory is not looked up
_REQUEST = re.compile(r"allocate ([\d.]+) (bytes|[KMGTP]iB)")
_UNITS = {"bytes": 1, **{f"{letter}iB": 1024 ** (n + 1) for n, letter in enumerate("KMGTP")}}


@lru_cache(maxsize=64)
def weight_bytes(network: type[Network], config: NetworkConfig, dtype: torch.dtype) -> int:
    """Bytes of all weights; large ones are not allocated. 0 if the constructor cannot run without them."""
    # Small networks are made: the first use of torch's meta device imports modules for more than a second.
    for device in ("cpu", "meta"):
        try:
            with torch.random.fork_rng(devices=[]), torch.device(device), _Limit(device):
                weights = list(network(config, dtype).parameters())
        except _TooLargeError:
            continue
        except (RuntimeError, TypeError, NotImplementedError):  # its constructor reads values
            return 0
        return sum(w.numel() * w.element_size() for w in weights)
    return 0


class _TooLargeError(Exception):
    pass


class _Limit(TorchFunctionMode):
    """Ends a constructor on the CPU before its new tensors have more than 16 million elements together."""

    def __init__(self, device: str) -> None:
        super().__init__()
        self.left = 2.0**24 if device == "cpu" else math.inf

    def __torch_function__(
        self, func: Callable, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        named = kwargs or {}
        if func in _CREATE:
            size = named.get("size", args[0] if args and not isinstance(args[0], int) else args)
            self.left -= math.prod(size)
        if self.left < 0:
            raise _TooLargeError
        return func(*args, **named)


_CREATE = {torch.empty, torch.zeros, torch.ones, torch.full, torch.rand, torch.randn}


def require_memory(network: type[Network], config: NetworkConfig, dtype: torch.dtype) -> None:
    """Raise an error if a network cannot be trained in the memory there is."""
    needed = COPIES * weight_bytes(network, config, dtype)
    if needed > _SMALL and needed > (there := available_memory()):
        raise GeomAttError(
            f"A network with these settings needs {needed / 1e9:,.0f} GB for its weights and their training; "
            f"{there / 1e9:,.0f} GB of memory are free. Choose a smaller network."
        )


def out_of_memory(error: BaseException) -> bool:
    """True if memory could not be allocated; on a CPU torch says so with a plain RuntimeError."""
    words = ("DefaultCPUAllocator", "bad_alloc")
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or any(w in str(error) for w in words)


def too_large(error: BaseException, batch: Batch, linear: bool) -> GeomAttError:
    """The error for a batch that did not fit into memory, with how many atoms would.

    `linear` if memory grows with the number of atoms, and not with that of their pairs.
    """
    device, found = batch.positions.device, _REQUEST.search(str(error))
    left = free_memory(device)
    traceback.clear_frames(error.__traceback__)  # gives back what the evaluation had until then
    free = max(left, free_memory(device))
    request = float(found[1]) * _UNITS[found[2]] if found else 0.0
    needed = max(request + free - left, free)  # at least, since it ended before it had all
    structures, atoms, share = len(batch), int(batch.atoms.max()), min(free / needed, 0.9)
    one = f"A structure of {atoms:,} atoms needs"
    what = f"{structures} structures of up to {atoms:,} atoms need" if structures > 1 else one
    text = (
        f"{what} more than {needed / 1e9:.1f} GB of memory; {free / 1e9:.1f} GB are free, enough for at most"
    )
    if structures * share >= 1:
        return GeomAttError(f"{text} {int(structures * share)} of them. Take fewer structures at once.")
    fits = fitting_atoms(atoms, structures * share, linear)
    advice = "" if linear else "a model with a radius, "
    return GeomAttError(
        f"{text} about {fits:,} atoms. Use fewer atoms, {advice}or a machine with more memory."
    )


def fitting_atoms(atoms: int, share: float, linear: bool) -> int:
    """How many atoms fit where there is memory for a share of what `atoms` need."""
    return max(1, int(atoms * min(1.0, share if linear else math.sqrt(share))))


def free_memory(device: torch.device) -> int:
    """Bytes that torch can still use on a device."""
    if device.type != "cuda":
        return available_memory()
    kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return int(torch.cuda.mem_get_info(device)[0]) + kept


def available_memory() -> int:
    """Bytes of memory that are free, or all there are where the system does not tell."""
    return min(_system_memory(), _allowed_memory())


def _allowed_memory() -> int:
    """Bytes this process may still allocate if it has a limit (`ulimit -v`)."""
    try:
        import resource

        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        if limit != resource.RLIM_INFINITY:
            pages = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[0])
            return max(0, limit - pages * os.sysconf("SC_PAGE_SIZE"))
    except (ImportError, OSError):  # Windows, macOS
        pass
    return 2**63


def _system_memory() -> int:
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
