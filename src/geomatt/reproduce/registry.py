"""The experiments by name. Each module holds its experiment as `EXPERIMENT`."""

from __future__ import annotations

import importlib
from importlib.util import find_spec

from geomatt.errors import GeomAttError
from geomatt.reproduce.frame import Experiment

# In the order of the report.
NAMES = ("table1", "table2", "table3", "shapes", "bonds", "dna", "theory")


def available() -> list[str]:
    """The names of the experiments that exist."""
    return [name for name in NAMES if find_spec(f"geomatt.reproduce.{name}") is not None]


def get(name: str) -> Experiment:
    """The experiment of that name."""
    if name not in available():
        raise GeomAttError(f"There is no experiment {name!r}. Choose from: {', '.join(available())}, all.")
    experiment = importlib.import_module(f"geomatt.reproduce.{name}").EXPERIMENT
    assert isinstance(experiment, Experiment)
    return experiment
