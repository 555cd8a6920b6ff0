"""Settings of the workflows. No torch here: the command line generates its options from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from geomatt.data.make.config import METHOD, MethodConfig, SampleConfig
from geomatt.errors import GeomAttError
from geomatt.settings import check_positive, check_types, setting
from geomatt.training.config import MOST_MEMBERS, TrainConfig

TRAINING, TEST = "Training", "Dynamics with the model"


@dataclass(frozen=True)
class AutoConfig(SampleConfig):
    """From a molecule to a force field: how it is sampled, trained and tried out."""

    train: int | None = setting(None, "frames to train on; half of all by default", group=TRAINING)
    model: str = setting(TrainConfig.model, "kind of network", group=TRAINING)
    epochs: int = setting(200, "passes over the training data", group=TRAINING)
    members: int = setting(0, "models to train, whose spread is an uncertainty", group=TRAINING)
    network: dict[str, Any] = setting(
        None, "setting of the network: channels=32", group=TRAINING, flag="--network", example="channels=32"
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
        if not 0 <= self.members <= MOST_MEMBERS:
            raise GeomAttError(f"`members` must be from 0 to {MOST_MEMBERS}, not {self.members}.")
        if not 0 < self.picoseconds <= 1e6 or not 0 < self.start_temperature <= 1e5:
            raise GeomAttError("`picoseconds` and `start_temperature` must be positive.")

    @property
    def train_frames(self) -> int:
        return self.frames // 2 if self.train is None else self.train

    @property
    def validation_frames(self) -> int:
        return max(1, self.frames // 10)


EXPLORE, CHOICE = "Exploration", "Choice"
CHOICES = ("uncertain", "novel", "random")


@dataclass(frozen=True)
class ImproveConfig(MethodConfig):
    """Rounds of dynamics, labels where the model is uncertain, and further training."""

    calculator: str = setting("", "reference method; the one the data was made with by default", group=METHOD)
    rounds: int = setting(1, "rounds of dynamics, labelling and training", group=CHOICE)
    labels: int = setting(100, "frames labelled in a round", group=CHOICE)
    choose: str = setting(
        "uncertain",
        "uncertain: where the members differ most (a single model: as novel); novel: far from the data; "
        "random: for comparison",
        group=CHOICE,
        choices=CHOICES,
    )

    temperature: float = setting(600.0, "temperature of the dynamics in K", group=EXPLORE)
    picoseconds: float = setting(2.0, "length of each trajectory", group=EXPLORE)
    replicas: int = setting(8, "trajectories", group=EXPLORE)
    timestep: float = setting(0.5, "length of a step in fs", group=EXPLORE)
    stride: int = setting(20, "steps between frames to choose from", group=EXPLORE)

    epochs: int = setting(100, "passes over the old and new data in a round", group=TRAINING)
    learning_rate: float | None = setting(
        None, "learning rate at its highest; a third of the model's own by default", group=TRAINING
    )
    seed: int = setting(0, "seed of the dynamics", group=EXPLORE)

    def __post_init__(self) -> None:
        check_types(self)
        object.__setattr__(self, "arguments", dict(self.arguments or {}))
        for name in ("rounds", "replicas", "stride", "epochs"):
            if getattr(self, name) < 1:
                raise GeomAttError(f"`{name}` must be at least 1, not {getattr(self, name)}.")
        if self.labels < 5:
            raise GeomAttError(
                f"`labels` must be at least 5: some validate and some test, not {self.labels}."
            )
        for name in ("temperature", "picoseconds", "timestep"):
            if not 0 < getattr(self, name) < 1e6:
                raise GeomAttError(f"`{name}` must be positive, not {getattr(self, name)}.")
        if self.learning_rate is not None:
            check_positive(self, "learning_rate")

    @property
    def records(self) -> int:
        """Frames of a trajectory to choose from."""
        return max(1, round(1000 * self.picoseconds / (self.timestep * self.stride)))
