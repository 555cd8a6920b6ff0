"""Training: from data and settings to a potential."""

from geomatt.training.config import TrainConfig, resolve
from geomatt.training.interruption import Interrupted
from geomatt.training.loop import TrainCallback, TrainProgress, train, train_together
from geomatt.training.loss import Loss
from geomatt.training.members import train_members
from geomatt.training.run import Job, TrainResult
from geomatt.training.step import Stepper, normalised

__all__ = [
    "Interrupted",
    "Job",
    "Loss",
    "Stepper",
    "TrainCallback",
    "TrainConfig",
    "TrainProgress",
    "TrainResult",
    "normalised",
    "resolve",
    "train",
    "train_members",
    "train_together",
]
