"""geomatt: machine-learned molecular force fields whose attention can be read.

Names are imported when first used, so that `import geomatt` is quick and needs neither ASE nor torch.
"""

from __future__ import annotations

import importlib
import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from geomatt.errors import GeomAttError

if TYPE_CHECKING:
    from geomatt.analysis import attention
    from geomatt.data import Dataset, Structure, read
    from geomatt.evaluation import evaluate
    from geomatt.model import Committee, ModelConfig, Potential, load, save
    from geomatt.simulation.calculator import GeomAttCalculator
    from geomatt.training import TrainConfig, train


def _version() -> str:
    try:
        return version("geomatt")
    except PackageNotFoundError:  # a source tree that was never installed, as on a borrowed machine
        project = Path(__file__).parents[2] / "pyproject.toml"
        return tomllib.loads(project.read_text())["project"]["version"] if project.is_file() else "0+unknown"


__version__ = _version()

_ROOMS = {
    "Committee": "geomatt.model",
    "Dataset": "geomatt.data.structures",
    "GeomAttCalculator": "geomatt.simulation.calculator",
    "ModelConfig": "geomatt.model",
    "Potential": "geomatt.model",
    "Structure": "geomatt.data.structures",
    "TrainConfig": "geomatt.training",
    "attention": "geomatt.analysis",
    "evaluate": "geomatt.evaluation",
    "load": "geomatt.model",
    "read": "geomatt.data",
    "save": "geomatt.model",
    "train": "geomatt.training",
}

__all__ = [
    "Committee",
    "Dataset",
    "GeomAttCalculator",
    "GeomAttError",
    "ModelConfig",
    "Potential",
    "Structure",
    "TrainConfig",
    "__version__",
    "attention",
    "evaluate",
    "load",
    "read",
    "save",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in _ROOMS:
        raise AttributeError(f"module 'geomatt' has no attribute {name!r}")
    value = getattr(importlib.import_module(_ROOMS[name]), name)
    globals()[name] = value  # found at once from now on
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
