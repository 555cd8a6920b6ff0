"""Training: from data and settings to a potential."""

from typing import TYPE_CHECKING

from geomatt.lazy import lazy_names

if TYPE_CHECKING:
    from geomatt.training.config import TrainConfig, resolve
    from geomatt.training.interruption import Interrupted
    from geomatt.training.loop import TrainCallback, TrainProgress, train, train_together
    from geomatt.training.loss import Errors, Loss
    from geomatt.training.members import train_members
    from geomatt.training.record import commit, hardware
    from geomatt.training.run import Diverged, Job, TrainResult
    from geomatt.training.step import Stepper
    from geomatt.training.targets import normalised
    from geomatt.training.zero import with_zero, without_zero

__all__, __getattr__, __dir__ = lazy_names(__name__)
