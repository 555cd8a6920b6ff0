"""What geomatt uses of this machine: versions, processor, threads, GPU, compiler and engines."""

from __future__ import annotations

import importlib.metadata
import os
import platform


def system_report() -> dict[str, str]:
    """Rows of `geomatt info --system`."""
    import torch

    from geomatt import __version__
    from geomatt.cache import cache_directory
    from geomatt.model import network_class, network_names, new_network
    from geomatt.training import hardware

    rows = {
        "geomatt": __version__,
        "Python": platform.python_version(),
        "torch": str(torch.__version__),
        "Triton": _installed("triton"),
        "ASE": _installed("ase"),
        "processor": f"{hardware('cpu')} of {os.cpu_count()} processors",
        "GPU": _gpu(),
        "cache": str(cache_directory()),
    }
    for name in network_names():
        network = new_network(name, dict(network_class(name).small), (1,))
        for label, value in network.engine().report().items():
            rows[f"{name}: {label}"] = value
    return rows


def _installed(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _gpu() -> str:
    import torch

    if not torch.cuda.is_available():
        return "none that torch can use: the CPU computes"
    found = torch.cuda.get_device_properties(0)
    more = f" and {torch.cuda.device_count() - 1} more" if torch.cuda.device_count() > 1 else ""
    return f"{found.name}, {found.total_memory / 2**30:.0f} GiB, CUDA {torch.version.cuda}{more}"
