"""Training: from data and settings to a potential, with nothing lost on the way."""

from geomatt.training.config import TrainConfig, resolve
from geomatt.training.interrupt import Interrupted
from geomatt.training.members import run
from geomatt.training.run import Job, TrainResult
from geomatt.training.trainer import Progress, train, train_together

__all__ = [
    "Interrupted",
    "Job",
    "Progress",
    "TrainConfig",
    "TrainResult",
    "resolve",
    "run",
    "train",
    "train_together",
]
