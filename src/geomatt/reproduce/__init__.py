"""The paper's experiments, each one command: `geomatt reproduce NAME`.

`frame.py` says what an experiment is; every other module named in `registry.py` is one. Nothing heavy is
imported here: an experiment is imported when it is asked for.
"""

from geomatt.reproduce.frame import Experiment, Figure, Pieces, Progress, Settings, run_experiment, silent
from geomatt.reproduce.registry import NAMES, available, get
from geomatt.reproduce.table import ResultTable

__all__ = [
    "NAMES",
    "Experiment",
    "Figure",
    "Pieces",
    "Progress",
    "ResultTable",
    "Settings",
    "available",
    "get",
    "run_experiment",
    "silent",
]
