"""geomatt: machine-learned molecular force fields whose attention can be read.

Names are imported when first used, so that `import geomatt` is quick and needs neither ASE nor torch.
"""

from __future__ import annotations

import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from geomatt.errors import GeomAttError
from geomatt.lazy import lazy_names

if TYPE_CHECKING:
    from geomatt.analysis import attention, intervene, pair_effects
    from geomatt.data import read
    from geomatt.data.dataset import Dataset
    from geomatt.data.splits import Split, blocked_split, random_split
    from geomatt.data.structures import Structure
    from geomatt.evaluation import evaluate
    from geomatt.model import Committee, Potential, load, save
    from geomatt.pages import explain
    from geomatt.simulation.calculator import GeomAttCalculator
    from geomatt.training import TrainConfig, TrainResult, resolve, train, train_members


def _version() -> str:
    try:
        return version("geomatt")
    except PackageNotFoundError:  # a source tree that was never installed
        project = Path(__file__).parents[2] / "pyproject.toml"
        return tomllib.loads(project.read_text())["project"]["version"] if project.is_file() else "0+unknown"


__version__ = _version()

_names, __getattr__, __dir__ = lazy_names(__name__)
__all__ = ["GeomAttError", "__version__", *_names]
