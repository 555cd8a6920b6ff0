"""Settings of the workflows. No torch here: the command line generates its options from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from geomatt.data.make.config import SampleConfig
from geomatt.errors import GeomAttError
from geomatt.settings import setting
from geomatt.training.config import TrainConfig

TRAINING, TEST = "Training", "Dynamics with the model"


@dataclass(frozen=True)
class AutoConfig(SampleConfig):
    """From a molecule to a force field: how it is sampled, trained and tried out."""

    train: int | None = setting(None, "frames to train on; half of all by default", group=TRAINING)
    model: str = setting(TrainConfig.model, "kind of network", group=TRAINING)
    epochs: int = setting(300, "passes over the training data", group=TRAINING)
    members: int = setting(0, "train so many models, whose spread is an uncertainty", group=TRAINING)
    network: dict[str, Any] = setting(
        None, "setting of the network: features=32", group=TRAINING, flag="--network", example="features=32"
    )
    picoseconds: float = setting(1.0, "length of the dynamics at constant energy", group=TEST)
    start_temperature: float = setting(300.0, "temperature of its first velocities in K", group=TEST)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "network", dict(self.network or {}))
        if self.frames < 20:
            raise GeomAttError(
                f"`frames` must be at least 20 to train, validate and test, not {self.frames}."
            )
        if self.train is not None and not 1 <= self.train <= self.frames * 8 // 10:
            raise GeomAttError(
                f"`train` must be from 1 to four fifths of the {self.frames} frames, not {self.train}."
            )
        if self.epochs < 1:
            raise GeomAttError(f"`epochs` must be at least 1, not {self.epochs}.")
        if self.members < 0:
            raise GeomAttError(f"`members` must not be negative, but is {self.members}.")
        if not 0 < self.picoseconds <= 1e6 or not 0 < self.start_temperature <= 1e5:
            raise GeomAttError("`picoseconds` and `start_temperature` must be positive.")

    @property
    def train_frames(self) -> int:
        return self.frames // 2 if self.train is None else self.train

    @property
    def validation_frames(self) -> int:
        return max(1, self.frames // 10)
