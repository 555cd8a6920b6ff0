"""Comparison of a transfer with the same network trained from scratch on the same frames."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from geomatt.data.dataset import Dataset
from geomatt.data.splits import Split
from geomatt.model.registry import network_class
from geomatt.training.config import TrainConfig
from geomatt.training.folder import CONFIG, write_safely
from geomatt.training.loop import TrainCallback, train
from geomatt.training.recipes import recipe_settings
from geomatt.training.run import TrainResult

SCRATCH, COMPARISON = "scratch", "comparison.json"  # in the folder of the transfer


@dataclass(frozen=True)
class Comparison:
    """Mean absolute errors of forces on the validation frames, eV/Å."""

    transferred: float
    from_scratch: float
    zero_forces: float
    epochs: int
    recipe: str  # of the run from scratch

    @property
    def paid(self) -> bool:
        """True if the transferred model is better than both others."""
        return self.transferred < min(self.from_scratch, self.zero_forces)


def scratch_settings(config: TrainConfig) -> TrainConfig:
    """The settings of a transfer as those of a run from scratch: the network's own recipe, as many epochs."""
    recipe = {**recipe_settings(network_class(config.model).recipe), "epochs": config.epochs}
    return config.replace(base=None, unfreeze=(), folds=0, members=0, member=None, **recipe)


def compare_with_scratch(
    dataset: Dataset,
    split: Split,
    config: TrainConfig,
    transferred: TrainResult,
    *,
    callback: TrainCallback | None = None,
    checkpoint_every: float = 30.0,
) -> Comparison | None:
    """Train from scratch in the folder `scratch` of a transfer and compare; None for data without forces.

    A run that is there is continued or, if it is finished, used as it is.
    """
    if dataset.forces is None or config.energy_only:
        return None
    folder = transferred.folder / SCRATCH
    settings = scratch_settings(config)
    result = train(
        dataset,
        split,
        settings,
        folder,
        resume=(folder / CONFIG).is_file(),
        callback=callback,
        checkpoint_every=checkpoint_every,
    )
    errors = [r.best_errors.get("force_mae", math.nan) for r in (transferred, result)]
    forces = dataset.select(split.validation).forces
    assert forces is not None
    zero = float(np.nanmean(np.abs(forces)))
    found = Comparison(errors[0], errors[1], zero, settings.epochs, settings.recipe)
    write_safely(Path(transferred.folder) / COMPARISON, (json.dumps(asdict(found), indent=2) + "\n").encode())
    return found
