"""`geomatt info`: the metadata of a model file, and what is used of this machine."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
from pathlib import Path
from typing import Annotated

from geomatt.cli.console import facts, output
from geomatt.cli.options import OptionalModel, option, set_up
from geomatt.errors import GeomAttError

# Engines by their place in the folder of a network.
ENGINES = {
    "cpu": "C++, compiled for this processor",
    "gpu": "Triton kernels",
    "dense": "plain torch",
    "sparse": "neighbour lists",
    "autograd": "plain torch, automatic differentiation",
}


def info(
    model: OptionalModel = None,
    as_json: Annotated[bool, option("Print all of it as JSON instead.", "--json")] = False,
    system: Annotated[
        bool, option("Versions, processor, threads, GPU, compiler and engines here.", "--system")
    ] = False,
) -> None:
    """Print the metadata of a model file: units, elements, data, training, versions.

    With --system, what geomatt uses of this machine.
    """
    if model is None and not system:
        raise GeomAttError(
            "Which model? Name a file, a run or a model of geomatt models; or ask for --system."
        )
    if system:
        rows = _system_rows()
        if as_json:
            print(json.dumps(rows, indent=2))
        else:
            facts(rows.items())
    if model is not None:
        _print_model(model, as_json)


def _print_model(model: Path, as_json: bool) -> None:
    from geomatt.cli.model_tables import info_rows
    from geomatt.model import load
    from geomatt.model.files import describe

    members = load(model).members
    if as_json:
        described = [describe(member) for member in members]
        print(json.dumps(described if len(members) > 1 else described[0], indent=2))
        return
    if len(members) > 1:
        output.print(f"A committee of {len(members)} members. The first of them:")
    facts(info_rows(members[0], str(model)))


def _system_rows() -> dict[str, str]:
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
    """A description of the engine that evaluates a small molecule; it is compiled if necessary."""
    import numpy as np

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
