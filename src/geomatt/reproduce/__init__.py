"""The paper's experiments, one command each: `geomatt reproduce NAME`.

`frame.py` defines what an experiment is; the module of the same name holds each experiment as `EXPERIMENT`
and is imported when it is asked for.
"""

from __future__ import annotations

import importlib

from geomatt.errors import GeomAttError
from geomatt.progress import silent
from geomatt.reproduce.frame import Experiment, ExperimentSettings, draw_figures, run_experiment

__all__ = ["NAMES", "Experiment", "ExperimentSettings", "draw_figures", "get", "run_experiment", "silent"]

# In the order of the report.
NAMES = (
    "table1",
    "table2",
    "table3",
    "shapes",
    "bonds",
    "dna",
    "theory",
    "pair",
    "ablation",
    "learning",
    "stability",
    "cause",
    "physics",
)


def get(name: str) -> Experiment:
    """The experiment called `name`."""
    if name not in NAMES:
        raise GeomAttError(f"There is no experiment {name!r}. Choose from: {', '.join(NAMES)}, all.")
    experiment = importlib.import_module(f"geomatt.reproduce.{name}").EXPERIMENT
    assert isinstance(experiment, Experiment)
    return experiment
