"""What geomatt uses of this machine: versions, processor, threads, GPU, compiler and engines."""

from __future__ import annotations

import importlib.metadata
import os
import platform

from geomatt.errors import GeomAttError

# Engines by their place in the folder of a network.
ENGINES = {
    "cpu": "C++, compiled for this processor",
    "gpu": "Triton kernels",
    "dense": "plain torch",
    "sparse": "neighbour lists",
    "autograd": "plain torch, automatic differentiation",
}


def system_report() -> dict[str, str]:
    """Rows of `geomatt info --system`."""
    import torch

    from geomatt import __version__
    from geomatt.cache import cache_directory
    from geomatt.model import network_names
    from geomatt.model.native.library import compiler_in_words
    from geomatt.training import hardware

    rows = {
        "geomatt": __version__,
        "Python": platform.python_version(),
        "torch": str(torch.__version__),
        "Triton": _installed("triton"),
        "ASE": _installed("ase"),
        "processor": f"{hardware('cpu')} of {os.cpu_count()} processors",
        "GPU": _gpu(),
        "C++ compiler": compiler_in_words(),
        "compiled code": str(cache_directory() / "native"),
    }
    device = "cuda" if torch.cuda.is_available() else "cpu"
    for name in network_names():
        for dtype in ("float32", "float64"):
            rows[f"{name}, {dtype}"] = _engine(name, device, dtype)
    return rows


def _engine(name: str, device: str, dtype: str) -> str:
    """What evaluates a small molecule with a kind of network, in words; compiled if it was not before."""
    import numpy as np

    from geomatt.cli.options import set_up
    from geomatt.data import Structure
    from geomatt.data.batch import collate
    from geomatt.model import new_network
    from geomatt.model.precision import DTYPES

    try:
        network = new_network(name, {}, (1,), dtype=DTYPES[dtype]).to(device)
    except GeomAttError as error:  # it needs a package that is not there
        return str(error)
    engine = network.engine()
    if dtype == "float32":
        set_up(engine, device)
    hydrogen = Structure(np.array([1, 1]), np.array([[0.0, 0.0, 0.0], [0.0, 0.0, 0.74]]))
    batch = collate([hydrogen], DTYPES[dtype], device).as_member()
    module = type(engine.chosen(network.stacked(), batch)).__module__.split(".")
    return next((words for place, words in ENGINES.items() if place in module), module[-1])


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
